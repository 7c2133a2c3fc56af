//! Blocks, loops over hardware indices, and declarations.

use super::body::Body;
use super::launch::is_hardware;
use super::prelude::cuda_type;
use crate::emit::EmitError;
use crate::emit::clike::text::has_word;
use crate::emit::clike::walk::any;
use crate::ir::{BufferId, DType, Expr, For, Gpu, Group, Scope, Stmt, Unit};
use std::collections::BTreeSet;

/// A serial loop over elements of a private array is advised to be copied out as long as it runs at most this many
/// statements: an array that is indexed at run time cannot live in registers.
const MAX_PRIVATE_STEPS: i64 = 2048;

impl Body<'_> {
    /// The statements of a block, without the values that nothing uses.
    pub(super) fn statements(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        let sums = self.own.live_sums.clone();
        let mut lets: Vec<(String, usize, usize)> = vec![];
        for (i, s) in stmts.iter().enumerate() {
            if is_product(s) && !(i > 0 && is_product(&stmts[i - 1])) {
                self.begin_products(&stmts[i..])?;
            }
            if is_wait(s) {
                self.own.read_next = read_before_a_wait(&stmts[i + 1..]);
            }
            let start = self.out.len();
            if self.is_made_by(s, stmts.get(i + 1)) {
                self.own.from_zero = true;
                continue;
            }
            self.stmt(s)?;
            if let Stmt::Let { var, .. } = s {
                lets.push((self.names.var(*var).to_string(), start, self.out.len()));
            }
        }
        // Values that ranges have removed from all expressions would only be warnings.
        for (name, start, end) in lets.into_iter().rev() {
            self.drop_unused(&name, start, end);
        }
        self.own.live_sums = sums;
        Ok(())
    }

    /// Whether a statement sets sums to zero to which the next adds products, of floats of eight bits: an instruction can do both.
    fn is_made_by(&self, zero: &Stmt, next: Option<&Stmt>) -> bool {
        match (zero, next) {
            (
                Stmt::Gpu(Gpu::Fill { dst, value: Expr::Float(v, _) }),
                Some(Stmt::Gpu(Gpu::Mma { unit: Unit::Warpgroup, acc, b, .. })),
            ) => v.to_bits() == 0 && dst == acc && self.kernel.buffer(b.tile.buffer).dtype.is_f8(),
            _ => false,
        }
    }

    /// The iteration of a loop that is this thread's own, which is number `source`.
    pub(super) fn own_iteration(&mut self, l: &For, source: &str) -> Result<(), EmitError> {
        let name = self.names.var(l.var).to_string();
        let start = self.out.len();
        self.line(&format!("const int {name} = {source};"));
        let end = self.out.len();
        self.ranges.insert_loop(l);
        self.block(&l.body)?;
        self.drop_unused(&name, start, end);
        Ok(())
    }

    /// Takes a declaration back that nothing behind it mentions.
    fn drop_unused(&mut self, name: &str, start: usize, end: usize) {
        if !has_word(&self.out[end..], name) {
            self.out.replace_range(start..end, "");
        }
    }

    /// Whether the loop runs over elements of a private array, and is short enough to be copied out.
    pub(super) fn indexes_private(&self, l: &For) -> bool {
        let private = |b: BufferId| {
            let scope = self.kernel.buffer(b).scope;
            scope.is_private() || matches!(scope, Scope::Fragment(_))
        };
        let found = any(&l.body, |s| {
            let mut found = false;
            s.accesses(&mut |a| found |= private(a.buffer) && a.index.iter().any(|i| i.mentions(l.var)));
            found
        });
        found && l.extent.saturating_mul(steps(&l.body)) <= MAX_PRIVATE_STEPS
    }

    /// Declares a buffer; shared ones stand at the top of the function.
    pub(super) fn alloc(&mut self, b: BufferId) -> Result<(), EmitError> {
        let buffer = self.kernel.buffer(b);
        if matches!(buffer.scope, Scope::Fragment(_)) {
            return self.fragment_alloc(b);
        }
        if let Some(elements) = self.own.scalars.get(&b) {
            let names: Vec<&str> = elements.iter().flatten().map(String::as_str).collect();
            let ty = cuda_type(buffer.dtype);
            let lines: Vec<String> = names.chunks(12).map(|row| format!("{ty} {};", row.join(", "))).collect();
            lines.iter().for_each(|line| self.line(line));
            return Ok(());
        }
        if buffer.scope.is_private() {
            let n = buffer.extent_elements().max(1);
            let ty = if self.own.counters.contains_key(&b) { "int" } else { cuda_type(buffer.dtype) };
            self.line(&format!("{ty} {}[{n}];", self.names.buffer(b)));
        }
        Ok(())
    }

    /// The element that a store copies as it is: 16-bit floats need not become `float`s on their way, and compilers cannot
    /// know that the two conversions cancel out.
    pub(super) fn verbatim(&mut self, to: BufferId, value: &Expr) -> Result<Option<String>, EmitError> {
        let dtype = |b: BufferId| self.kernel.buffer(b).dtype;
        match value {
            Expr::Load(from, at) if matches!(dtype(to), DType::F16 | DType::Bf16) && dtype(*from) == dtype(to) => {
                let held = self.loaded(*from, at).map(|l| l.held.clone());
                held.map_or_else(|| self.element(*from, at), Ok).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Whether the statement is an asynchronous product.
fn is_product(s: &Stmt) -> bool {
    matches!(s, Stmt::Gpu(Gpu::Mma { unit: Unit::Warpgroup, .. }))
}

fn is_wait(s: &Stmt) -> bool {
    matches!(s, Stmt::Gpu(Gpu::Wait(Group::Mma, _)))
}

/// What statements read, products apart, before they wait for products again.
fn read_before_a_wait(stmts: &[Stmt]) -> BTreeSet<BufferId> {
    let mut read = BTreeSet::new();
    for s in stmts.iter().take_while(|s| !is_wait(s)) {
        s.walk(&mut |s| {
            if !is_product(s) {
                s.accesses(&mut |a| {
                    read.insert(a.buffer);
                });
            }
        });
    }
    read
}

/// Statements that one execution of the block runs.
fn steps(block: &[Stmt]) -> i64 {
    block.iter().fold(0i64, |n, s| {
        n.saturating_add(match s {
            Stmt::For(l) if is_hardware(l.kind) => steps(&l.body),
            Stmt::For(l) => l.extent.saturating_mul(steps(&l.body)),
            Stmt::If { then, otherwise, .. } => steps(then).saturating_add(steps(otherwise)),
            Stmt::Alloc(_) => 0,
            _ => 1,
        })
    })
}
