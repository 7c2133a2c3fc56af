//! Expressions as text of the C family: C and CUDA C++ share operators, brackets and literals.

use crate::ir::{BinOp, DType};

/// Binding strengths of C operators, weakest first.
pub(crate) mod strength {
    pub(crate) const TERNARY: u8 = 1;
    pub(crate) const OR: u8 = 2;
    pub(crate) const AND: u8 = 3;
    pub(crate) const EQUAL: u8 = 4;
    pub(crate) const LESS: u8 = 5;
    pub(crate) const SUM: u8 = 6;
    pub(crate) const PRODUCT: u8 = 7;
    pub(crate) const UNARY: u8 = 8;
    pub(crate) const PRIMARY: u8 = 9;
}
use strength::*;

/// C text and how strongly its outermost operator binds.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) strength: u8,
}

impl Text {
    pub(crate) fn new(text: impl Into<String>, strength: u8) -> Text {
        Text { text: text.into(), strength }
    }

    /// In brackets unless it binds at least as strongly as asked.
    pub(crate) fn at(&self, strength: u8) -> String {
        if self.strength >= strength { self.text.clone() } else { format!("({})", self.text) }
    }
}

/// The C operator and its strength.
fn operator(op: BinOp) -> Option<(&'static str, u8)> {
    Some(match op {
        BinOp::Add => ("+", SUM),
        BinOp::Sub => ("-", SUM),
        BinOp::Mul => ("*", PRODUCT),
        BinOp::Div => ("/", PRODUCT),
        BinOp::Mod => ("%", PRODUCT),
        BinOp::Lt => ("<", LESS),
        BinOp::Le => ("<=", LESS),
        BinOp::Eq => ("==", EQUAL),
        BinOp::Ne => ("!=", EQUAL),
        BinOp::And => ("&&", AND),
        BinOp::Or => ("||", OR),
        BinOp::Min | BinOp::Max | BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push => return None,
    })
}

/// A floating literal.
pub(crate) fn float(v: f64, dtype: DType) -> Text {
    let suffix = if dtype == DType::F64 { "" } else { "f" };
    let digits = if v.is_nan() {
        return Text::new("NAN", PRIMARY);
    } else if v.is_infinite() {
        return if v > 0.0 { Text::new("INFINITY", PRIMARY) } else { Text::new("-INFINITY", UNARY) };
    } else if dtype == DType::F64 {
        format!("{v:?}")
    } else {
        format!("{:?}", v as f32)
    };
    Text::new(format!("{digits}{suffix}"), if v.is_sign_negative() { UNARY } else { PRIMARY })
}

/// `a op b`, bracketed where the operators ask for it or compilers would warn; `None` for minimum and maximum, which are
/// no operators.
pub(crate) fn infix(op: BinOp, a: &Text, b: &Text) -> Option<Text> {
    let (sign, s) = operator(op)?;
    // Compilers warn about `a && b || c` and `a < b == c` without brackets.
    let inner = if matches!(op, BinOp::Or) || s == EQUAL || s == LESS { SUM } else { s };
    let (left, right) = match op {
        BinOp::And => (a.at(AND), b.at(AND + 1)),
        BinOp::Or if a.strength == OR => (a.text.clone(), b.at(EQUAL)),
        BinOp::Or => (a.at(EQUAL), b.at(EQUAL)),
        _ => (a.at(inner), b.at(inner.max(s + 1))),
    };
    Some(Text::new(format!("{left} {sign} {right}"), s))
}

/// [`BinOp::Push`] of a word of a type, or of a vector of them.
pub(crate) fn pushed(dtype: DType, word: &Text, integer: &Text) -> Text {
    let (bits, mask) = if dtype == DType::I16x2 { (16, 65535) } else { (8, 255) };
    let text = format!("({} << {bits} | ({} & {mask}))", word.at(PRIMARY), integer.at(PRIMARY));
    Text::new(text, PRIMARY)
}

/// The sums or the differences of both integers of two words: no carry of the lower ones reaches the upper ones.
pub(crate) fn of_pairs(op: BinOp, a: &Text, b: &Text) -> Text {
    // A lane of a vector has a sign.
    let [a, b] = [a, b].map(|word| format!("(unsigned){}", word.at(PRIMARY)));
    let sign = if op == BinOp::Sub { "-" } else { "+" };
    let text = format!("((({a} {sign} ({b} & 0xffff0000u)) & 0xffff0000u) | (({a} {sign} {b}) & 0xffff))");
    Text::new(text, PRIMARY)
}

/// The even or the odd bytes of a word of a type, or of a vector of them, as a word of two integers.
pub(crate) fn halves(dtype: DType, odd: bool, word: &Text) -> Text {
    let word = word.at(PRIMARY);
    let bytes = if odd { format!("({word} >> 8 & 0x00ff00ff)") } else { format!("({word} & 0x00ff00ff)") };
    match dtype {
        // The sign of each in the eight bits above it.
        DType::I8x4 => {
            Text::new(format!("({bytes} | ({word} >> {} & 0x00010001) * 0xff00u)", if odd { 15 } else { 7 }), PRIMARY)
        }
        _ => Text::new(bytes, PRIMARY),
    }
}

/// Whether the text has the identifier.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(word)
        .any(|(i, _)| !inside(text[..i].chars().next_back()) && !inside(text[i + word.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_stand_where_operators_or_compilers_ask_for_them() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Text::new(name, PRIMARY));
        let left = |inner, outer| infix(outer, &infix(inner, &a, &b).unwrap(), &c).unwrap().text;
        let right = |inner, outer| infix(outer, &a, &infix(inner, &b, &c).unwrap()).unwrap().text;
        assert_eq!(left(BinOp::Add, BinOp::Mul), "(a + b) * c");
        assert_eq!(left(BinOp::Sub, BinOp::Add), "a - b + c");
        assert_eq!(right(BinOp::Sub, BinOp::Sub), "a - (b - c)");
        assert_eq!(right(BinOp::Mod, BinOp::Mul), "a * (b % c)");
        assert_eq!(left(BinOp::Lt, BinOp::Eq), "(a < b) == c");
        assert_eq!(left(BinOp::And, BinOp::Or), "(a && b) || c");
        assert_eq!(left(BinOp::Or, BinOp::Or), "a || b || c");
        assert!(infix(BinOp::Min, &a, &b).is_none());
    }

    #[test]
    fn a_negative_literal_is_bracketed_as_an_operand() {
        let minus = float(-0.0, DType::F32);
        assert_eq!((minus.text.as_str(), minus.at(PRIMARY).as_str()), ("-0.0f", "(-0.0f)"));
        assert_eq!(float(1e-7, DType::F64).text, "1e-7");
        assert_eq!(float(f64::NEG_INFINITY, DType::F32).at(PRIMARY), "(-INFINITY)");
    }
}
