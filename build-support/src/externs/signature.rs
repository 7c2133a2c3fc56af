//! Reads the function declarations that bindgen writes.

/// A declared function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) params: Vec<(String, Type)>,
    /// What it returns; nothing for `void`.
    pub(super) returns: Option<Type>,
    /// Whether its symbol is a name of C++.
    pub(super) mangled: bool,
}

/// A type as far as launches are concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Type {
    /// A pointer to an array of constant extents, outermost first.
    Array { element: String, extents: Vec<u64>, written: bool },
    /// Any other pointer.
    Pointer,
    /// A value, as a Rust path.
    Value(String),
}

/// All functions that some bindings declare. `header` is the text of the header that they were made from: bindgen drops
/// the `const` of arrays with several dimensions, and the header has it.
pub(super) fn functions(bindings: &str, header: &str) -> Vec<Function> {
    let tokens = tokens(bindings);
    let header = &without_comments(header);
    let mut all = vec![];
    for (i, window) in tokens.windows(4).enumerate() {
        if let ["pub", "fn", name, "("] = window
            && let Some(mut function) = function(name, &tokens[i + 4..])
        {
            for (position, (_, ty)) in function.params.iter_mut().enumerate() {
                if let Type::Array { written, .. } = ty {
                    *written &= !is_const_in(header, name, position);
                }
            }
            function.mangled = is_mangled(&tokens[..i]);
            all.push(function);
        }
    }
    all
}

/// Whether the attribute in front of a function gives it a name of C++ for the linker.
fn is_mangled(before: &[&str]) -> bool {
    let attribute = before.iter().rposition(|t| *t == "#").filter(|_| before.last() == Some(&"]"));
    attribute.is_some_and(|start| {
        // `_Z...`, or on Windows `?...`.
        before[start..].contains(&"link_name") && before[start..].iter().any(|t| t.starts_with("_Z") || *t == "?")
    })
}

/// The type that a name stands for, through all `pub type` of the bindings.
pub(super) fn resolve(bindings: &str, name: &str) -> String {
    let tokens = tokens(bindings);
    let mut name = name.to_string();
    // A chain is no longer than that.
    for _ in 0..16 {
        let found = tokens.windows(4).position(|w| w[..2] == ["pub", "type"] && w[2] == name && w[3] == "=");
        let Some(start) = found else { break };
        let meaning = tokens[start + 4..].iter().take_while(|t| **t != ";");
        name = meaning.copied().collect();
    }
    name
}

/// The line of a header, from 1, in which a function is declared; the first if its name stands nowhere.
pub(super) fn line_of(header: &str, function: &str) -> usize {
    let declares = |line: &str| tokens(line).windows(2).any(|w| w == [function, "("]);
    header.lines().position(declares).map_or(1, |at| at + 1)
}

/// Splits Rust text into words and single punctuation marks, `::` and `->` kept whole.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") || rest.starts_with("->") => 2,
            0 => c.len_utf8(),
            n => n,
        };
        if !c.is_whitespace() {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

/// Reads parameters up to the closing parenthesis, and the return type. Nothing for a variadic function.
fn function(name: &str, mut tokens: &[&str]) -> Option<Function> {
    let mut params = vec![];
    while tokens.first() != Some(&")") {
        let (param, rest) = match tokens {
            [param, ":", rest @ ..] => (param.to_string(), rest),
            _ => return None,
        };
        let (ty, rest) = read_type(rest)?;
        params.push((param, ty));
        tokens = rest.strip_prefix(&[","]).unwrap_or(rest);
    }
    let returns = match &tokens[1..] {
        ["->", rest @ ..] => Some(read_type(rest)?.0),
        _ => None,
    };
    Some(Function { name: name.to_string(), params, returns, mangled: false })
}

fn read_type<'a, 'b>(tokens: &'b [&'a str]) -> Option<(Type, &'b [&'a str])> {
    match tokens {
        ["*", mutability, rest @ ..] => {
            let (element, extents, rest) = array(rest)?;
            let ty = match extents.is_empty() {
                true => Type::Pointer,
                false => Type::Array { element, extents, written: *mutability == "mut" },
            };
            Some((ty, rest))
        }
        _ => {
            let (value, extents, rest) = array(tokens)?;
            extents.is_empty().then_some((Type::Value(value), rest))
        }
    }
}

/// `[[f32; 8]; 3]` as `f32` and `[3, 8]`; a type that is no array has no extents.
fn array<'a, 'b>(tokens: &'b [&'a str]) -> Option<(String, Vec<u64>, &'b [&'a str])> {
    if let ["[", rest @ ..] = tokens {
        let (element, inner, rest) = array(rest)?;
        let [";", extent, "]", rest @ ..] = rest else { return None };
        let mut extents = vec![extent.trim_end_matches("usize").parse().ok()?];
        extents.extend(inner);
        return Some((element, extents, rest));
    }
    // A path, or something else (a function pointer, say) that ends where the parameter does.
    let mut depth = 0;
    let end = tokens.iter().position(|t| {
        depth += match *t {
            "(" | "<" | "[" => 1,
            ")" | ">" | "]" => -1,
            _ => 0,
        };
        depth < 0 || (depth == 0 && matches!(*t, "," | ";"))
    })?;
    Some((tokens[..end].concat(), vec![], &tokens[end..]))
}

/// A header without its comments, which may speak of functions too.
fn without_comments(header: &str) -> String {
    let mut out = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once('/') {
        out += before;
        rest = match comment.chars().next() {
            Some('/') => comment.find('\n').map_or("", |end| &comment[end..]),
            Some('*') => comment[1..].split_once("*/").map_or("", |(_, behind)| behind),
            _ => {
                out.push('/');
                comment
            }
        };
        out.push(' ');
    }
    out + rest
}

/// Whether the header declares a parameter of a function as constant, as far as its text says it plainly.
fn is_const_in(header: &str, function: &str, position: usize) -> bool {
    let tokens = tokens(header);
    let start = tokens.windows(2).position(|w| w == [function, "("]);
    let Some(start) = start else { return false };
    let mut depth = 0;
    let mut parameter = 0;
    for token in &tokens[start + 2..] {
        match *token {
            "(" | "[" => depth += 1,
            ")" if depth == 0 => return false,
            ")" | "]" => depth -= 1,
            "," if depth == 0 => parameter += 1,
            "const" if parameter == position => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What bindgen 0.73 writes for [`HEADER`], unformatted.
    const BINDINGS: &str = "pub const KS : u32 = 3 ; # [repr (C)] pub struct cfg { pub a : :: std :: os :: raw :: c_int , } \
        unsafe extern \"C\" { pub fn blur (x : * mut [[[f32 ; 8usize] ; 4usize] ; 3usize] , y : * mut [f32 ; 64usize] , \
        n : :: std :: os :: raw :: c_int) ; pub fn par (x : * const f32 , worker : i64 , begin : i64 , end : i64) ; \
        pub fn dot (a : * const [f64 ; 16usize]) -> f64 ; pub fn log (f : * const :: std :: os :: raw :: c_char , ...) ; }";

    const HEADER: &str = "void blur(const float x[3][4][8], float y[64], int n);\n\
        void par(const float *x, int64_t worker, int64_t begin, int64_t end);\ndouble dot(const double a[static 16]);";

    #[test]
    fn declarations_are_read_with_their_extents() {
        let all = functions(BINDINGS, HEADER);
        assert_eq!(all.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["blur", "par", "dot"]);
        let array = |element: &str, extents: &[u64], written| Type::Array {
            element: element.into(),
            extents: extents.to_vec(),
            written,
        };
        assert_eq!(all[0].params[0], ("x".into(), array("f32", &[3, 4, 8], false)));
        assert_eq!(all[0].params[1], ("y".into(), array("f32", &[64], true)));
        assert_eq!(all[0].params[2], ("n".into(), Type::Value("::std::os::raw::c_int".into())));
        assert_eq!(all[1].params[0].1, Type::Pointer);
        assert_eq!(all[2].returns, Some(Type::Value("f64".into())));
    }

    #[test]
    fn names_of_cpp_and_aliases_are_seen_through() {
        let bindings = "pub type real = f32 ; pub type number = real ; unsafe extern \"C\" { # [link_name = \
            \"\\u{1}_Z5scalePKf\"] pub fn scale (x : * const f32) ; # [doc = \" a\"] pub fn plain (x : * const number) ; }";
        let all = functions(bindings, "");
        assert_eq!(all.iter().map(|f| f.mangled).collect::<Vec<_>>(), [true, false]);
        assert_eq!([resolve(bindings, "number"), resolve(bindings, "i64")], ["f32", "i64"]);
        assert_eq!(resolve("pub type a = a ;", "a"), "a");
        assert_eq!((line_of(HEADER, "par"), line_of(HEADER, "nothing")), (2, 1));
    }

    #[test]
    fn constness_that_bindings_lose_is_found_in_the_header() {
        assert!(is_const_in(HEADER, "blur", 0) && !is_const_in(HEADER, "blur", 1));
        let commented =
            "// f(const int x)\n/* f(const float y[2][2]) */ void f(float x[2 / 1][2], const /**/ float y[2]);";
        let bindings = "pub fn f (x : * mut [[f32 ; 2usize] ; 2usize] , y : * const [f32 ; 2usize]) ;";
        let written = |p: &(String, Type)| matches!(p.1, Type::Array { written: true, .. });
        let all = functions(bindings, commented);
        assert_eq!(all[0].params.iter().map(written).collect::<Vec<_>>(), [true, false]);
        assert!(!is_const_in(HEADER, "nothing", 0) && !is_const_in("void f(", "f", 0));
    }
}
