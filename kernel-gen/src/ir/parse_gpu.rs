//! Reads the instructions of a GPU by their [parts](super::instruction).

use super::instruction::{Part, PartMut};
use super::lex::Token;
use super::parse::{Parsed, Parser};
use super::{Gpu, Group, Slot, Stmt};

/// A word of an instruction's form by its position, if there stands one.
fn word_at(form: &Gpu, position: usize) -> Option<&'static str> {
    match form.parts().get(position) {
        Some(Part::Word(word)) => Some(word),
        _ => None,
    }
}

impl Parser<'_> {
    /// An instruction of a GPU, if the word begins one.
    pub(super) fn gpu(&mut self, word: &str) -> Parsed<Option<Stmt>> {
        let mut forms = Gpu::forms();
        forms.retain(|form| word_at(form, 0) == Some(word));
        if forms.is_empty() {
            return Ok(None);
        }
        self.lexer.next();
        let mut read = 1;
        if let [_, _, ..] = forms[..] {
            let words: Vec<&str> = forms.iter().filter_map(|form| word_at(form, 1)).collect();
            let words = words.join(", ");
            let second = self.lexer.name(&format!("one of {words}"))?;
            forms.retain(|form| word_at(form, 1) == Some(second));
            if forms.is_empty() {
                return Err(self.lexer.error_before(format!("`{second}` is none of {words}")));
            }
            read = 2;
        }
        let mut g = forms.swap_remove(0);
        for part in g.parts_mut().into_iter().skip(read) {
            match part {
                PartMut::Word(sign @ ("=" | "+=" | "*")) => self.sign(sign)?,
                PartMut::Word(word) => self.word(word)?,
                PartMut::Write(tile) | PartMut::Update(tile) | PartMut::Read(tile) => *tile = self.tile()?,
                PartMut::Matrix(operand) => {
                    operand.tile = self.tile()?;
                    operand.transposed = self.accept_word("transposed");
                }
                PartMut::Expr(e) => *e = self.expr()?,
                PartMut::Exprs(all) => {
                    all.push(self.expr()?);
                    while self.accept(",") {
                        all.push(self.expr()?);
                    }
                }
                PartMut::Optional(word, e) => *e = if self.accept_word(word) { Some(self.expr()?) } else { None },
                PartMut::List(word, list) => *list = if self.accept_word(word) { self.ints()? } else { vec![] },
                PartMut::Slot(slot) => *slot = self.slot()?,
                PartMut::Group(group) => *group = self.group()?,
                PartMut::Count(n) => *n = self.count()?,
                PartMut::Int(n) => *n = self.int()?,
            }
        }
        if let Gpu::TensorLoad { src, steps, .. } = &g
            && !steps.is_empty()
            && steps.len() != src.extents.len()
        {
            let (n, rank) = (steps.len(), src.extents.len());
            return Err(self.lexer.error_before(format!("{n} steps for {rank} dimensions")));
        }
        Ok(Some(Stmt::Gpu(g)))
    }

    fn slot(&mut self) -> Parsed<Slot> {
        let buffer = self.buffer()?;
        let (mut indices, _) = self.indices(buffer)?;
        match (indices.pop(), indices.is_empty()) {
            (Some(index), true) => Ok(Slot { buffer, index }),
            _ => Err(self.lexer.error_before("a buffer of mbarriers has one dimension")),
        }
    }

    fn group(&mut self) -> Parsed<Group> {
        let word = self.lexer.name("copy, mma or store")?;
        let group = Group::ALL.into_iter().find(|g| g.name() == word);
        group.ok_or_else(|| self.lexer.error_before(format!("`{word}` is none of copy, mma, store")))
    }

    fn count(&mut self) -> Parsed<u32> {
        let v = self.int()?;
        u32::try_from(v).map_err(|_| self.lexer.error_before(format!("{v} is no count of 32 bits")))
    }

    fn accept_word(&mut self, word: &'static str) -> bool {
        let hit = self.lexer.peek() == Token::Word(word);
        if hit {
            self.lexer.next();
        }
        hit
    }
}
