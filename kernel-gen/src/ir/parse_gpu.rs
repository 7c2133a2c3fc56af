//! Reads the text form of [`super::gpu`].

use super::lex::Token;
use super::parse::{Parsed, Parser};
use super::{Gpu, Group, MbarrierOp, Operand, Slot, Stmt, Unit};

impl Parser<'_> {
    /// A statement that begins with one of the words of a GPU.
    pub(super) fn gpu(&mut self, word: &str) -> Parsed<Stmt> {
        self.lexer.next();
        let g = match word {
            "fill" => {
                let dst = self.tile()?;
                self.sign("=")?;
                Gpu::Fill { dst, value: self.expr()? }
            }
            "move" => {
                let dst = self.tile()?;
                self.sign("=")?;
                Gpu::Move { dst, src: self.tile()? }
            }
            "move_rows" => {
                let dst = self.tile()?;
                self.sign("=")?;
                Gpu::MoveRows { dst, src: self.tile()? }
            }
            "split" => {
                let dst = self.tile()?;
                self.sign("=")?;
                Gpu::Split { dst, src: self.operand()? }
            }
            "mma.warp" => self.unit_mma(Unit::Warp)?,
            "mma.warpgroup" => self.unit_mma(Unit::Warpgroup)?,
            "copy_async" => {
                let dst = self.tile()?;
                self.sign("=")?;
                let src = self.tile()?;
                let guard = if self.accept_word("if") { Some(self.expr()?) } else { None };
                Gpu::CopyAsync { dst, src, guard }
            }
            "commit" => Gpu::Commit(self.group()?),
            "wait" => {
                let group = self.group()?;
                Gpu::Wait(group, self.small("a number of groups")?)
            }
            "tensor_load" => self.tensor_load()?,
            "tensor_store" => {
                let dst = self.tile()?;
                self.sign("=")?;
                Gpu::TensorStore { dst, src: self.tile()? }
            }
            "store_at" => {
                let dst = self.tile()?;
                self.sign("=")?;
                let mut values = vec![self.expr()?];
                while self.accept(",") {
                    values.push(self.expr()?);
                }
                self.word("rank")?;
                let rank = self.expr()?;
                self.word("on")?;
                Gpu::StoreAt { dst, values, rank, on: self.slot()? }
            }
            "mbarrier" => self.mbarrier()?,
            "fence" => {
                self.word("async")?;
                Gpu::FenceAsync
            }
            "set_max_registers" => Gpu::SetMaxRegisters(self.small("a number of registers")?),
            _ => {
                if self.accept_word("wait") {
                    Gpu::DependencyWait
                } else {
                    self.word("launch")?;
                    Gpu::DependencyLaunch
                }
            }
        };
        Ok(Stmt::Gpu(g))
    }

    /// `named id threads n`; the word `barrier` was read.
    pub(super) fn named_barrier(&mut self) -> Parsed<Stmt> {
        self.word("named")?;
        let id = self.small("a barrier's number")?;
        self.word("threads")?;
        Ok(Stmt::Gpu(Gpu::NamedBarrier { id, threads: self.int()? }))
    }

    fn unit_mma(&mut self, unit: Unit) -> Parsed<Gpu> {
        let acc = self.tile()?;
        self.sign("+=")?;
        let a = self.operand()?;
        self.sign("*")?;
        Ok(Gpu::Mma { unit, acc, a, b: self.operand()? })
    }

    fn operand(&mut self) -> Parsed<Operand> {
        let tile = self.tile()?;
        Ok(Operand { tile, transposed: self.accept_word("transposed") })
    }

    fn tensor_load(&mut self) -> Parsed<Gpu> {
        let dst = self.tile()?;
        self.sign("=")?;
        let src = self.tile()?;
        let steps = if self.accept_word("step") { self.ints()? } else { vec![] };
        if !steps.is_empty() && steps.len() != src.extents.len() {
            let (n, rank) = (steps.len(), src.extents.len());
            return Err(self.lexer.error_before(format!("{n} steps for {rank} dimensions")));
        }
        self.word("on")?;
        let on = self.slot()?;
        let multicast = if self.accept_word("multicast") { Some(self.expr()?) } else { None };
        Ok(Gpu::TensorLoad { dst, src, steps, on, multicast })
    }

    fn mbarrier(&mut self) -> Parsed<Gpu> {
        let word = self.lexer.name("init, arrive, expect or wait")?;
        if !["init", "arrive", "expect", "wait"].contains(&word) {
            return Err(self.lexer.error_before(format!("`{word}` is none of init, arrive, expect, wait")));
        }
        let on = self.slot()?;
        let op = match word {
            "init" => {
                self.word("count")?;
                MbarrierOp::Init(self.int()?)
            }
            "arrive" => MbarrierOp::Arrive(if self.accept_word("rank") { Some(self.expr()?) } else { None }),
            "expect" => {
                self.word("bytes")?;
                MbarrierOp::Expect(self.int()?)
            }
            _ => {
                self.word("parity")?;
                MbarrierOp::Wait(self.expr()?)
            }
        };
        Ok(Gpu::Mbarrier(on, op))
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

    fn small(&mut self, what: &str) -> Parsed<u32> {
        let v = self.int()?;
        u32::try_from(v).map_err(|_| self.lexer.error_before(format!("{v} is not {what}")))
    }

    fn accept_word(&mut self, word: &'static str) -> bool {
        let hit = self.lexer.peek() == Token::Word(word);
        if hit {
            self.lexer.next();
        }
        hit
    }
}
