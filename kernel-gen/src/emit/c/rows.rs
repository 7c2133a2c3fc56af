//! Loads once what loads of every other element share.
//!
//! With stride 2 the taps of a filter's row read the elements 0, 2, 4.., 1, 3, 5.. and 2, 4, 6.. of one run of memory:
//!
//! ```c
//! const f32x16 row = load_between_f32x16(x_p + 13, 1, 15);
//! acc_1_0 += pick_from0_f32x8(row) * w_p[0];
//! acc_1_0 += pick_from1_f32x8(row) * w_p[1];
//! acc_1_0 += pick_from2_f32x8(row) * w_p[2];
//! ```
//! A *window* is as many elements as two vectors hold: one register where a register holds twice as many, otherwise two.
//! The sums that use a window follow one another, window by window, so that few of them are alive at a time. Each sum
//! still adds its terms in their order.

use super::Isa;
use super::body::Body;
use super::chunk::chunks;
use super::prelude::Helper;
use super::shared::{Tap, Window};
use crate::emit::EmitError;
use crate::emit::clike::walk::has;
use crate::ir::{BufferId, Expr, ReduceOp, Stmt};

impl Body<'_> {
    /// Plans the windows of a run of updates, and says in which order to emit them. Windows of the run before are
    /// forgotten.
    pub(super) fn plan_rows(&mut self, run: &[Stmt]) -> Vec<usize> {
        self.own.rows.windows.clear();
        let mut order: Vec<usize> = (0..run.len()).collect();
        // Sixteen registers are few for sums and what they share, with stride 1 too.
        let few_registers = self.own.isa == Isa::X86_64V3 && adds_several_terms(run);
        if !few_registers && !run.iter().any(reads_every_other) {
            return order;
        }
        let taps: Vec<Vec<Tap>> = run.iter().map(|s| self.taps_of(s)).collect();
        let mut all: Vec<&Tap> = taps
            .iter()
            .flatten()
            .filter(|t| t.stride == 2 && run.iter().all(|s| s.written() != Some(t.buffer)))
            .collect();
        all.sort();
        all.dedup();
        let isa = self.own.isa;
        for tap in all {
            if !self.own.rows.windows.iter_mut().any(|w| w.take(tap, isa)) {
                self.own.rows.windows.push(Window { taps: vec![tap.clone()], registers: vec![] });
            }
        }
        self.own.rows.windows.retain(|w| w.taps.len() > 1);
        // Sums of products of what is only read may change places, as long as each keeps the order of its own terms.
        let windows = &self.own.rows.windows;
        let place = |i: usize| {
            let first = taps[i].iter().min()?;
            let window = windows.iter().find(|w| w.taps.contains(first));
            Some((first.base.clone(), window.map_or(first.at, Window::at)))
        };
        let sums = |i: usize| match &run[i] {
            Stmt::Reduce { buffer, op: ReduceOp::Add, .. } => self.own.registers.contains_key(buffer),
            _ => false,
        };
        let mut i = 0;
        while i < run.len() {
            let n = (i..run.len()).take_while(|i| sums(*i)).count();
            let places: Option<Vec<_>> = (i..i + n).map(place).collect();
            if let Some(places) = places
                && places.iter().all(|p| p.0 == places[0].0)
            {
                let mut sorted: Vec<usize> = (i..i + n).collect();
                sorted.sort_by_key(|s| places[s - i].1);
                if independent(&run[i..i + n]) && keeps_terms_in_order(run, &sorted) {
                    order[i..i + n].copy_from_slice(&sorted);
                }
            }
            i += n.max(1);
        }
        order
    }

    /// The taps of a statement, noted by emitting its value and throwing the text away.
    fn taps_of(&mut self, s: &Stmt) -> Vec<Tap> {
        let Stmt::Reduce { value, .. } = s else { return vec![] };
        let prelude = self.prelude.clone();
        self.own.rows.noted = Some(vec![]);
        for c in chunks(self.kernel, self.own.isa, s) {
            // What cannot be said as a vector has no taps; it is emitted otherwise, or refused, when its turn comes.
            let _ = self.vector(value, c);
        }
        *self.prelude = prelude;
        self.own.rows.noted.take().unwrap_or_default()
    }

    /// The tap as it is picked from its window, which is loaded before the statement that is being emitted if nobody
    /// did. None if it shares nothing.
    pub(super) fn shared_row(&mut self, tap: Tap) -> Result<Option<String>, EmitError> {
        if let Some(noted) = &mut self.own.rows.noted {
            noted.push(tap);
            return Ok(None);
        }
        let Some(i) = self.own.rows.windows.iter().position(|w| w.taps.contains(&tap)) else { return Ok(None) };
        if self.own.rows.windows[i].registers.is_empty() {
            self.own.rows.windows[i].registers = self.load_window(&self.own.rows.windows[i].clone());
        }
        let window = &self.own.rows.windows[i];
        let pick = self.prelude.call(Helper::PickFrom(tap.vector, (tap.at - window.at()) as usize));
        Ok(Some(format!("{pick}({})", window.registers.join(", "))))
    }

    fn load_window(&mut self, window: &Window) -> Vec<String> {
        let v = window.taps[0].vector;
        let (from, to) = Window::touched(&window.taps);
        let register = if v.picks_from_one(self.own.isa) { v.twice() } else { v };
        let width = register.width as i64;
        let mut names = vec![];
        for part in 0..2 * v.width as i64 / width {
            let start = window.at() + part * width;
            let (low, high) = ((from - start).clamp(0, width), (to - start).clamp(0, width));
            let at = match start {
                0 => window.taps[0].base.clone(),
                s if s < 0 => format!("{} - {}", window.taps[0].base, -s),
                s => format!("{} + {s}", window.taps[0].base),
            };
            let text = match (low, high) {
                (low, high) if low >= high => format!("{}(0)", self.prelude.call(Helper::Splat(register))),
                (0, high) if high == width => {
                    format!("{}({at})", self.prelude.call(Helper::Load(register, register.dtype)))
                }
                (low, high) => format!("{}({at}, {low}, {high})", self.prelude.call(Helper::LoadBetween(register))),
            };
            let text = match &window.taps[0].given {
                Some(cond) => format!("{cond} ? {text} : {}(0)", self.prelude.call(Helper::Splat(register))),
                None => text,
            };
            let name = self.names.fresh("row");
            let ty = self.prelude.call(Helper::Type(register));
            self.line(&format!("const {ty} {name} = {text};"));
            names.push(name);
        }
        names
    }
}

/// Whether the statement adds up what it reads with a stride of two.
fn reads_every_other(s: &Stmt) -> bool {
    let every_other =
        |e: &Expr| matches!(e, Expr::Load(_, indices) if matches!(indices.last(), Some(Expr::Ramp { stride: 2, .. })));
    matches!(s, Stmt::Reduce { value, .. } if has(value, every_other))
}

/// Whether most sums get three terms or more.
fn adds_several_terms(run: &[Stmt]) -> bool {
    let mut sums: Vec<(BufferId, &[Expr])> = vec![];
    let mut terms = 0;
    for s in run {
        if let Stmt::Reduce { buffer, indices, .. } = s {
            terms += 1;
            if !sums.contains(&(*buffer, indices)) {
                sums.push((*buffer, indices));
            }
        }
    }
    terms > 0 && terms >= 3 * sums.len()
}

/// Whether no statement reads what another one writes.
fn independent(run: &[Stmt]) -> bool {
    run.iter().all(|s| match s {
        Stmt::Reduce { value, .. } => run.iter().filter_map(Stmt::written).all(|b| !value.reads(b)),
        _ => false,
    })
}

/// Whether every element gets its terms in the order in which they stand in `run`.
fn keeps_terms_in_order(run: &[Stmt], order: &[usize]) -> bool {
    let mut last: Vec<(BufferId, &[Expr], usize)> = vec![];
    order.iter().all(|&i| {
        let Stmt::Reduce { buffer, indices, .. } = &run[i] else { return false };
        match last.iter_mut().find(|(b, at, _)| b == buffer && *at == indices) {
            Some(l) => std::mem::replace(&mut l.2, i) < i,
            None => {
                last.push((*buffer, indices, i));
                true
            }
        }
    })
}
