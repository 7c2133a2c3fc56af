//! Prints the instructions of a GPU by their [parts](super::instruction).

use super::instruction::Part;
use super::print::{expr, tile};
use super::{Gpu, Kernel};

/// One line, without its end.
pub(super) fn statement(k: &Kernel, g: &Gpu) -> String {
    let words = g.parts().into_iter().filter_map(|part| {
        Some(match part {
            Part::Word(word) => word.to_string(),
            Part::Write(t) | Part::Update(t) | Part::Read(t) => tile(k, t),
            Part::Matrix(o) => format!("{}{}", tile(k, &o.tile), if o.transposed { " transposed" } else { "" }),
            Part::Expr(e) => expr(k, e),
            Part::Exprs(all) => all.iter().map(|e| expr(k, e)).collect::<Vec<_>>().join(", "),
            Part::Optional(word, e) => format!("{word} {}", expr(k, e.as_ref()?)),
            Part::List(_, list) if list.is_empty() => return None,
            Part::List(word, list) => format!("{word} {list:?}"),
            Part::Slot(s) => format!("{}[{}]", k.buffer(s.buffer).name, expr(k, &s.index)),
            Part::Group(group) => group.name().to_string(),
            Part::Count(n) => n.to_string(),
            Part::Int(n) => n.to_string(),
        })
    });
    words.collect::<Vec<_>>().join(" ")
}
