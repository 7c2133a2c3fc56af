//! Memory is allocated and used where its scope has a meaning.

use super::access::{Site, is_hardware};
use super::fault::{Fault, FaultKind};
use crate::ir::{BinOp, BufferId, DType, Expr, For, Kernel, LoopKind, Scope, Stmt, VarId, print};
use std::collections::BTreeMap;

/// Checks the rules under "Scopes".
pub(super) fn check(kernel: &Kernel, sites: &[Site], faults: &mut Vec<Fault>) {
    let mut c = Checker { kernel, loops: vec![], allocs: BTreeMap::new(), faults: vec![] };
    c.block(&kernel.body);
    let mut reported = vec![];
    for site in sites {
        let b = kernel.buffer(site.buffer);
        // Which element of a fragment a thread touches may follow from its number; which tile a unit touches may not.
        let named = match b.scope {
            Scope::Register => true,
            Scope::Fragment(_) => matches!(site.stmt, Stmt::Gpu(_)),
            _ => false,
        };
        if named && let Some(fault) = register_index(kernel, site) {
            c.faults.push(fault);
        }
        if let Some(fault) = whole_fragment(kernel, site).filter(|_| !reported.contains(&site.buffer)) {
            reported.push(site.buffer);
            c.faults.push(fault);
        }
        if b.scope == Scope::Mbarrier && !reported.contains(&site.buffer) {
            reported.push(site.buffer);
            let cause = format!("{} holds mbarriers, which are neither read nor written", b.name);
            let help = "use mbarrier init, arrive, expect and wait";
            c.faults.push(Fault::at(kernel, &site.loops, site.stmt, FaultKind::WrongScope, cause, help));
        }
        if !reported.contains(&site.buffer)
            && let Some(fault) = c.carried(site)
        {
            reported.push(site.buffer);
            c.faults.push(fault);
        }
    }
    faults.append(&mut c.faults);
}

struct Checker<'k> {
    kernel: &'k Kernel,
    loops: Vec<&'k For>,
    /// The loops around each allocation.
    allocs: BTreeMap<BufferId, Vec<&'k For>>,
    faults: Vec<Fault>,
}

impl<'k> Checker<'k> {
    fn block(&mut self, stmts: &'k [Stmt]) {
        for s in stmts {
            match s {
                Stmt::For(l) => {
                    self.loops.push(l);
                    self.block(&l.body);
                    self.loops.pop();
                }
                Stmt::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Stmt::Alloc(b) => self.alloc(s, *b),
                _ => {}
            }
        }
    }

    fn alloc(&mut self, s: &Stmt, id: BufferId) {
        let b = self.kernel.buffer(id);
        let concurrent = self.loops.iter().find(|l| l.kind.is_concurrent());
        let in_launch = self.loops.iter().any(|l| is_hardware(l.kind));
        let fault = match b.scope {
            Scope::Global => concurrent.map(|l| {
                let (name, kind) = (&self.kernel.var(l.var).name, l.kind.name());
                (
                    format!(
                        "{} is global, but allocated inside the {kind} loop {name}, whose iterations would share it",
                        b.name
                    ),
                    "allocate it outside, or give it scope local or shared",
                )
            }),
            Scope::Shared | Scope::Fragment(_) | Scope::Mbarrier if !in_launch => Some((
                format!("{} is {}, but allocated where there is no block of threads", b.name, b.scope),
                "allocate it below a grid loop, or give it scope global",
            )),
            Scope::Fragment(_) if b.shape.len() < 2 || !b.dtype.is_in_tiles() => Some((
                format!("the fragment {} has type {} and shape {:?}", b.name, b.dtype, b.shape),
                "a fragment holds matrices of floats, or of integers of 8 or 32 bits",
            )),
            Scope::Mbarrier if b.shape.len() != 1 || b.dtype != DType::I64 => Some((
                format!("{} has type {} and shape {:?}", b.name, b.dtype, b.shape),
                "allocate mbarriers as i64[n]",
            )),
            _ => None,
        };
        if let Some((cause, help)) = fault {
            self.faults.push(Fault::at(self.kernel, &self.loops, s, FaultKind::WrongScope, cause, help));
        }
        self.allocs.insert(id, self.loops.clone());
    }

    /// A private buffer from outside a parallel loop or a launch is another buffer inside.
    fn carried(&self, site: &Site) -> Option<Fault> {
        let b = self.kernel.buffer(site.buffer);
        let around = self.allocs.get(&site.buffer)?;
        if !b.scope.is_private() {
            return None;
        }
        let in_launch = around.iter().any(|l| is_hardware(l.kind));
        let crossing = site
            .loops
            .iter()
            .skip(around.len())
            .find(|l| l.kind == LoopKind::Parallel || (is_hardware(l.kind) && !in_launch))?;
        let cause = format!(
            "{} is private to a thread, but allocated outside the {} loop {} that uses it",
            b.name,
            crossing.kind.name(),
            self.kernel.var(crossing.var).name
        );
        let help = "allocate it inside the loop, or give it scope global";
        Some(Fault::at(self.kernel, &site.loops, site.stmt, FaultKind::WrongScope, cause, help))
    }
}

/// An element of a fragment that is the same for all threads: only one of them holds it.
fn whole_fragment(kernel: &Kernel, site: &Site) -> Option<Fault> {
    let b = kernel.buffer(site.buffer);
    if !matches!(b.scope, Scope::Fragment(_)) || matches!(site.stmt, Stmt::Gpu(_)) {
        return None;
    }
    // What a `let` names may be a thread's number.
    let serial = |v: VarId| {
        v.0 as usize >= kernel.vars.len()
            || site.loops.iter().any(|l| {
                let apart = matches!(l.kind, LoopKind::Thread(_) | LoopKind::FragmentRow | LoopKind::FragmentCol);
                l.var == v && !apart
            })
    };
    let mut same = true;
    // A condition on a thread's number leaves the others out.
    let exprs = site.index.iter().chain(site.facts.guards.iter().map(|(guard, _)| guard));
    exprs.for_each(|e| e.walk(&mut |e| same &= !matches!(e, Expr::Var(v) if !serial(*v))));
    same.then(|| {
        let cause = format!("every thread touches the same elements of {}, which is {}", b.name, b.scope);
        let help = "tensorize the loops, or visit each element in the thread that holds it: fragment.row, fragment.col";
        Fault::at(kernel, &site.loops, site.stmt, FaultKind::WrongScope, cause, help)
    })
}

/// Whether an expression is a number in each thread once loops are unrolled: which half of sixteen rows of a fragment a row is in, or
/// which of two neighbouring columns a column is. See [`crate::ir::gpu`] for the elements that a thread holds.
fn is_place_in_thread(site: &Site, e: &Expr) -> bool {
    let loop_of = |e: &Expr, kind: LoopKind| match e {
        Expr::Var(v) => site.loops.iter().find(|l| l.var == *v && l.kind == kind).map(|l| l.extent),
        _ => None,
    };
    match e {
        Expr::Binary(BinOp::Div, row, eight) if **eight == Expr::Int(8) => match &**row {
            Expr::Binary(BinOp::Mod, row, rows) if **rows == Expr::Int(16) => {
                loop_of(row, LoopKind::FragmentRow).is_some()
            }
            row => loop_of(row, LoopKind::FragmentRow) == Some(16),
        },
        Expr::Binary(BinOp::Mod, column, two) if **two == Expr::Int(2) => {
            loop_of(column, LoopKind::FragmentCol).is_some()
        }
        _ => false,
    }
}

/// Register arrays have no addresses: their indices must be numbers once loops are unrolled and vectors formed.
fn register_index(kernel: &Kernel, site: &Site) -> Option<Fault> {
    let unrolled = |v: VarId| {
        v.0 as usize >= kernel.vars.len()
            || site
                .loops
                .iter()
                .any(|l| l.var == v && (l.extent == 1 || matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized)))
    };
    let mut culprit = None;
    for index in site.index.iter().filter(|index| !is_place_in_thread(site, index)) {
        index.walk(&mut |e| {
            let bad = match e {
                Expr::Var(v) => !unrolled(*v),
                Expr::Load(..) => true,
                _ => false,
            };
            if bad && culprit.is_none() {
                culprit = Some(print::expr(kernel, e));
            }
        });
    }
    let culprit = culprit?;
    let name = &kernel.buffer(site.buffer).name;
    Some(Fault::at(
        kernel,
        &site.loops,
        site.stmt,
        FaultKind::RegisterIndexedAtRunTime,
        format!("an index of the register array {name} depends on {culprit}, which is not known at compile time"),
        format!("unroll the loop {culprit}, or give {name} scope local"),
    ))
}
