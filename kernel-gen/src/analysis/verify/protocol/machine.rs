//! The threads of a cluster, and what they have between them.

use super::launch::Launch;
use super::pieces::{Piece, Units};
use super::plan::{Block, KEYS, Place};
use crate::analysis::mbarrier::Mbarrier;
use crate::analysis::order::{Groups, Order};
use crate::analysis::remote::Remote;
use crate::analysis::verify::enumerate::eval_by;
use crate::analysis::verify::fault::Fault;
use crate::ir::{BufferId, Expr, For, Kernel, Stmt, Unit};
use std::collections::BTreeMap;

/// Where a thread stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Ready,
    Block,
    Warp,
    Collective(Unit),
    Mbarrier,
    Named,
    Cluster,
    Ended,
}

/// A block of statements that a thread is in.
#[derive(Clone, Debug)]
pub(super) struct Frame<'r, 'k> {
    pub(super) block: &'r Block<'k>,
    pub(super) next: usize,
    /// The loop whose body it is, warps of its fragments, and the iteration.
    pub(super) repeat: Option<(&'k For, i64, i64)>,
}

/// A thread.
#[derive(Clone, Debug)]
pub(super) struct Thread<'r, 'k> {
    pub(super) frames: Vec<Frame<'r, 'k>>,
    pub(super) vars: Vec<Option<i64>>,
    /// What is known of its private integers, such as counters.
    pub(super) cells: BTreeMap<(BufferId, i64), i64>,
    /// Its number in its block, and the rank of the block.
    pub(super) index: usize,
    pub(super) rank: usize,
    /// Its warp among those of the cluster.
    pub(super) warp: usize,
    pub(super) copies: Groups,
    pub(super) stores: Groups,
    pub(super) stop: Stop,
    /// The statement that it stands at.
    pub(super) at: Option<&'k Stmt>,
}

impl<'k> Thread<'_, 'k> {
    /// The statement that it stands at.
    pub(super) fn at(&self) -> Option<&'k Stmt> {
        self.at
    }

    /// The value of an expression for one lane of a vector.
    pub(super) fn value(&self, kernel: &Kernel, e: &Expr, lane: i64) -> Option<i64> {
        match e {
            Expr::Int(v) => Some(*v),
            Expr::Var(v) => self.vars[v.0 as usize],
            _ => eval_by(e, lane, &|e| match e {
                Expr::Var(v) => self.vars[v.0 as usize],
                Expr::Load(b, indices) => self.cells.get(&(*b, self.cell(kernel, *b, indices, lane)?)).copied(),
                _ => None,
            }),
        }
    }

    /// The value of an index that is a sum, for one lane of a vector.
    pub(super) fn place(&self, kernel: &Kernel, p: &Place, lane: i64) -> Option<i64> {
        let mut sum = p.constant;
        for (v, factor) in &p.vars {
            sum = sum.checked_add(factor.checked_mul(self.vars[*v]?)?)?;
        }
        for (e, factor) in &p.others {
            sum = sum.checked_add(factor.checked_mul(self.value(kernel, e, lane)?)?)?;
        }
        Some(sum)
    }

    /// The number of an element of private memory.
    pub(super) fn cell(&self, kernel: &Kernel, b: BufferId, indices: &[Expr], lane: i64) -> Option<i64> {
        let shape = &kernel.buffer(b).shape;
        let along = |at: i64, (e, n): (&Expr, &i64)| at.checked_mul(*n)?.checked_add(self.value(kernel, e, lane)?);
        indices.iter().zip(shape).try_fold(0i64, along)
    }
}

/// What the threads of a warp have read in a quiet statement since something was last written.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo {
    /// How often anything had been written, and the warp's step.
    pub(super) when: (u64, u32),
    /// What tells the executions apart, and how many statements they were.
    pub(super) seen: Vec<([i64; KEYS], u64)>,
}

/// Executions of a quiet statement that are remembered.
pub(super) const MOST_SEEN: usize = 64;

/// Why a cluster is not run to its end.
pub(super) enum Halt {
    Fault(Box<Fault>),
    /// It took too many steps.
    Budget,
}

/// A cluster that runs.
pub(super) struct Run<'r, 'k> {
    pub(super) kernel: &'r Kernel,
    pub(super) launch: &'r Launch<'k>,
    pub(super) grid: [i64; 3],
    pub(super) threads: Vec<Thread<'r, 'k>>,
    pub(super) order: Order,
    pub(super) mbarriers: Vec<Mbarrier>,
    pub(super) remote: Remote,
    pub(super) units: Units,
    pub(super) steps: u64,
    /// How often anything was written.
    pub(super) writes: u64,
    /// For each statement that something is remembered of, one a warp.
    pub(super) memos: Vec<Memo>,
    /// Memory for the pieces of an access, and for its indices.
    pub(super) pieces: Vec<Piece>,
    pub(super) origin: Vec<i64>,
}

/// How a cluster ended.
pub(super) enum End {
    /// All of its threads did.
    All,
    /// After [`STEPS`](super::run::STEPS) statements.
    Stopped,
    Fault(Box<Fault>),
}
