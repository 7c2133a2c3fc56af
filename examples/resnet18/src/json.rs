//! A reader for the JSON in the header of a safetensors file. Small because the header is: objects, arrays, strings
//! and whole numbers are all that it holds.

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// A number that is whole and not negative.
    Whole(u64),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object, in the order of the text.
    Object(Vec<(String, Json)>),
    /// `null`, a truth value, or any other number: valid, and of no use here.
    Other,
}

impl Json {
    /// The member of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members.iter().find(|m| m.0 == key).map(|m| &m.1)
    }

    /// An array of whole numbers.
    pub fn as_sizes(&self) -> Option<Vec<usize>> {
        let Json::Array(items) = self else { return None };
        let size = |v: &Json| if let Json::Whole(n) = v { usize::try_from(*n).ok() } else { None };
        items.iter().map(size).collect()
    }

    /// A string.
    pub fn as_text(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }

    /// Parses a whole text. The error is the byte at which it stops to be JSON.
    pub fn parse(text: &str) -> Result<Json, usize> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let value = parser.value().ok_or(parser.at)?;
        parser.space();
        if parser.at == text.len() { Ok(value) } else { Err(parser.at) }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Takes `token` if it comes next.
    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Takes `token` or fails.
    fn need(&mut self, token: &str) -> Option<()> {
        self.take(token).then_some(())
    }

    fn value(&mut self) -> Option<Json> {
        self.depth += 1;
        // No header nests deeply; a hostile one must not exhaust the stack.
        if self.depth > 64 {
            return None;
        }
        let value = if self.take("{") {
            Json::Object(self.list("}", |p| {
                let key = p.string()?;
                p.need(":")?;
                Some((key, p.value()?))
            })?)
        } else if self.take("[") {
            Json::Array(self.list("]", Parser::value)?)
        } else if self.take("null") || self.take("true") || self.take("false") {
            Json::Other
        } else if self.rest().starts_with('"') {
            Json::Text(self.string()?)
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = vec![];
        if self.take(close) {
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            if self.take(close) {
                return Some(items);
            }
            self.need(",")?;
        }
    }

    fn number(&mut self) -> Option<Json> {
        let digits = |c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
        let length = self.rest().find(digits).unwrap_or(self.rest().len());
        let token = &self.rest()[..length];
        let value = token.parse().map(Json::Whole).or_else(|_| token.parse::<f64>().map(|_| Json::Other)).ok()?;
        self.at += length;
        Some(value)
    }

    fn string(&mut self) -> Option<String> {
        self.need("\"")?;
        let mut out = String::new();
        loop {
            let c = self.rest().chars().next()?;
            self.at += c.len_utf8();
            match c {
                '"' => return Some(out),
                '\\' => out.push(self.escape()?),
                c if c < ' ' => return None,
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let high = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&high) {
                    // The other half of a pair must follow at once.
                    let low = if self.rest().starts_with("\\u") { self.low_half()? } else { return None };
                    0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    high
                };
                char::from_u32(code)?
            }
            _ => return None,
        })
    }

    fn low_half(&mut self) -> Option<u32> {
        self.at += 2;
        self.hex4().filter(|low| (0xdc00..0xe000).contains(low))
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let value = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_parse() {
        let text =
            r#" {"w.\u00e9\ud83d\ude00" : {"dtype":"F32", "shape":[2, 3], "x":[-1.5e3, null]}, "e": {}, "a": []} "#;
        let json = Json::parse(text).unwrap();
        let w = json.get("w.é😀").unwrap();
        assert_eq!(w.get("dtype").and_then(Json::as_text), Some("F32"));
        assert_eq!(w.get("shape").and_then(Json::as_sizes), Some(vec![2, 3]));
        assert_eq!(w.get("x"), Some(&Json::Array(vec![Json::Other, Json::Other])));
        assert_eq!(w.get("x").and_then(Json::as_sizes), None);
        assert_eq!(json.get("e"), Some(&Json::Object(vec![])));
    }

    #[test]
    fn what_is_not_json_is_refused_at_its_byte() {
        let deep = "[".repeat(1000);
        for (text, at) in [
            ("", 0),
            ("{", 1),
            ("{\"a\" 1}", 5),
            ("[1,]", 3),
            ("[1] 2", 4),
            ("\"\\q\"", 3),
            ("\"\\ud800x\"", 7),
            ("--1", 0),
            (&deep, 64),
        ] {
            assert_eq!(Json::parse(text), Err(at), "{text}");
        }
    }
}
