//! Lets a launch begin while the one in front of it is still running.
//!
//! ```text
//! for block grid.x { for t thread.x {               for block grid.x { for t thread.x {
//!   mbarrier init full[0] count 1                     mbarrier init full[0] count 1
//!   for ahead {                                       for ahead_1 {
//!     copy_async pixels[..] = x[..]                     copy_async weights[..] = w[..] }
//!     copy_async weights[..] = w[..]          ->      dependency wait
//!     commit copy }                                   dependency launch
//!   ..                                                for ahead {
//!   y[..] = .. }}                                       copy_async pixels[..] = x[..]
//!                                                       commit copy }
//!                                                     ..  y[..] = .. }}
//! ```
//! `w` is a *constant*: a parameter that launches in front do not write, a layer's weight say. All else in global memory is
//! touched behind the wait only. Copies of constants are asynchronous, so those that share a loop with other copies can be
//! started by a loop of their own in front of the wait; they then belong to the first group that is committed.
//!
//! Large constants are asked for in front of the wait, by a `prefetch` of a piece by each block: a network's weights leave the
//! second-level cache from one run to the next, and while the launch in front is at work on some multiprocessors, others can bring
//! what this one is about to read.
//!
//! The next launch is let go behind the wait and not before. So when it begins, everything in front of *this* launch
//! has ended, and what it reads early can only be in the way of this one: whoever starts launches has one to look at. It
//! costs nothing, because a launch is under way for much longer behind its wait than the next one takes to begin.
//!
//! This is no pass of [`PASSES`](super::PASSES): only kernels of builds and of measurements go through it, last of all, where
//! [`Template::longest_early_us`](crate::templates::Template::longest_early_us) says that it pays. Without the launch attribute the wait
//! does not wait, but costs 0.1 to 0.5 us all the same.

use super::passes::Lowered;
use crate::analysis::dependency::{is_hardware, shared_with_others};
use crate::integer::ceil_div;
use crate::ir::{BufferId, Expr, For, Gpu, Kernel, LoopKind, Stmt, Tile, VarId};
use std::collections::BTreeSet;

/// See the module's text. `constants` are positions in the kernel's parameters. A launch of more than `most_blocks` stays as it
/// is: the runtime lets none begin early that has more blocks than there are multiprocessors, and a wait that never has anything
/// to wait for costs up to half a microsecond all the same.
/// `units` is how many there are in the shortest launch, where their number varies.
pub fn overlap_launches(mut lowered: Lowered, constants: &[usize], most_blocks: i64, units: i64) -> Lowered {
    let constants = constants.iter().filter_map(|i| lowered.kernel.params.get(*i).copied()).collect();
    let body = std::mem::take(&mut lowered.kernel.body);
    let mut overlap = Overlap { kernel: &mut lowered.kernel, constants, hardware: vec![] };
    let each = |s: Stmt| {
        if depends(&s) || blocks(overlap.kernel, &s, units) > most_blocks {
            return s;
        }
        overlap.hardware.clear();
        overlap.launch(s)
    };
    let body = body.into_iter().map(each).collect();
    lowered.kernel.body = body;
    lowered
}

/// Whether a launch says itself when it waits and when the next one may begin.
fn depends(launch: &Stmt) -> bool {
    let mut found = false;
    launch.walk(&mut |s| found |= matches!(s, Stmt::Gpu(Gpu::DependencyWait | Gpu::DependencyLaunch)));
    found
}

/// The number of blocks of a launch with `units` units.
fn blocks(kernel: &Kernel, launch: &Stmt, units: i64) -> i64 {
    let mut count = 1;
    let mut s = launch;
    while let Stmt::For(l) = s {
        if matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_)) {
            count *= kernel.first_of(l.var).map_or(l.extent, |first| first.iterations(units).min(l.extent));
        }
        let Some(inner) = l.body.last().filter(|_| is_hardware(l)) else { break };
        s = inner;
    }
    count
}

struct Overlap<'a> {
    kernel: &'a mut Kernel,
    constants: BTreeSet<BufferId>,
    /// The loops over the hardware's indices around what each thread does.
    hardware: Vec<(VarId, i64, LoopKind)>,
}

/// Constants of fewer bytes are there in no time.
const WORTH_ASKING: i64 = 128 << 10;

impl Overlap<'_> {
    /// Goes down to where a launch's threads begin.
    fn launch(&mut self, s: Stmt) -> Stmt {
        match s {
            Stmt::For(l) if is_hardware(&l) => {
                self.hardware.push((l.var, l.extent, l.kind));
                let body = match l.body.split_last() {
                    Some((Stmt::For(inner), before))
                        if is_hardware(inner) && before.iter().all(|s| matches!(s, Stmt::Alloc(_))) =>
                    {
                        let mut body = before.to_vec();
                        body.push(self.launch(Stmt::For(inner.clone())));
                        body
                    }
                    _ => self.threads(l.body),
                };
                Stmt::For(For { body, ..l })
            }
            other => other,
        }
    }

    /// Whether a statement has to stay behind the wait.
    fn waits(&self, s: &Stmt) -> bool {
        let [read, written] = shared_with_others(self.kernel, s);
        !written.is_empty() || !read.is_subset(&self.constants)
    }

    /// Puts the wait into the list of what each thread does.
    fn threads(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let at = body.iter().position(|s| self.waits(s)).unwrap_or(body.len());
        let mut out: Vec<Stmt> = self.constants.iter().filter_map(|b| self.prefetch(*b)).collect();
        let at = at + out.len();
        out.extend(body);
        let behind = out.split_off(at);
        let mut behind = behind.into_iter();
        let first = behind.next().map(|s| self.copies_apart(s));
        let (early, rest) = first.unwrap_or_default();
        out.extend(early);
        out.push(Stmt::Gpu(Gpu::DependencyWait));
        out.push(Stmt::Gpu(Gpu::DependencyLaunch));
        out.extend(rest);
        out.extend(behind);
        out
    }

    /// Asks for a constant, a piece by the first thread of each block; nothing if it is small, or no whole number of units.
    fn prefetch(&self, constant: BufferId) -> Option<Stmt> {
        let b = self.kernel.buffer(constant);
        let (size, shape) = (b.dtype.bytes() as i64, &b.shape);
        if b.extent_bytes() < WORTH_ASKING || b.offset != 0 || !b.is_row_major() {
            return None;
        }
        let (mut block, mut blocks, mut first) = (Expr::Int(0), 1, Expr::Int(0));
        for (var, extent, kind) in &self.hardware {
            match kind {
                LoopKind::Thread(_) => first = first + Expr::from(*var),
                _ => (block, blocks) = (block * *extent + Expr::from(*var), blocks * extent),
            }
        }
        // The dimensions in front of one that has pieces for all blocks are whole numbers of pieces apart.
        let outer = |d: usize| shape[..d].iter().product::<i64>();
        let cut = (0..shape.len()).find(|d| outer(d + 1) >= blocks).unwrap_or(shape.len() - 1);
        let piece = ceil_div(shape[cut], (blocks / outer(cut)).max(1));
        let pieces = ceil_div(shape[cut], piece);
        let behind: i64 = shape[cut + 1..].iter().product();
        let is_whole = |elements: i64| elements * size % Gpu::PREFETCH_UNIT == 0;
        if !is_whole(piece * behind) || !is_whole(behind) && piece < shape[cut] {
            return None;
        }
        // The last piece ends with the dimension.
        let begin = (block.clone().floor_mod(pieces) * piece).min(shape[cut] - piece);
        let mut rest = block.clone().floor_div(pieces);
        let mut origin = vec![Expr::Int(0); shape.len()];
        origin[cut] = begin;
        for d in (0..cut).rev() {
            origin[d] = rest.clone().floor_mod(shape[d]);
            rest = rest.floor_div(shape[d]);
        }
        let mut extents = vec![1; cut];
        extents.push(piece);
        extents.extend(&shape[cut + 1..]);
        let asks = first.eq(0).and(block.lt(outer(cut) * pieces));
        Some(Stmt::if_(asks, vec![Stmt::Gpu(Gpu::Prefetch { src: Tile { buffer: constant, origin, extents } })]))
    }

    /// Takes a serial loop apart into one that starts the copies of constants and one that does the rest.
    fn copies_apart(&mut self, s: Stmt) -> (Option<Stmt>, Option<Stmt>) {
        let Stmt::For(l) = &s else { return (None, Some(s)) };
        let (early, rest): (Vec<&Stmt>, Vec<&Stmt>) = l.body.iter().partition(|s| self.copies_constant(s));
        // Nothing but the copies may touch where they go, and what the loop names stays with the rest.
        let targets: BTreeSet<BufferId> = early.iter().filter_map(|s| s.written()).collect();
        let apart = targets.iter().all(|b| rest.iter().all(|s| !s.writes(*b) && !s.reads(*b)));
        let plain = rest.iter().all(|s| matches!(s, Stmt::Gpu(Gpu::CopyAsync { .. } | Gpu::Commit(_))));
        if l.kind != LoopKind::Serial || early.is_empty() || !apart || !plain {
            return (None, Some(s));
        }
        let var = self.kernel.fresh_var(&self.kernel.var(l.var).name.clone());
        let early = early.into_iter().map(|s| s.clone().subst(l.var, &var.into())).collect();
        let rest = rest.into_iter().cloned().collect();
        let first = For { var, extent: l.extent, kind: l.kind, pragmas: l.pragmas.clone(), body: early };
        (Some(Stmt::For(first)), Some(Stmt::For(For { body: rest, ..l.clone() })))
    }

    /// Whether the statement is an asynchronous copy of a constant.
    fn copies_constant(&self, s: &Stmt) -> bool {
        matches!(s, Stmt::Gpu(Gpu::CopyAsync { src, .. }) if self.constants.contains(&src.buffer)) && !self.waits(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::dependency::{DependencyFault, read_early};
    use crate::analysis::verify::{Limits, verify};
    use crate::ir::parse::parse;
    use crate::lower::{LowerOptions, lower};

    fn lowered(text: &str) -> Lowered {
        let kernel = parse(text).expect("the text is a kernel");
        lower(verify(kernel, &Limits::cuda()).expect("it is valid"), &LowerOptions::cuda()).expect("it lowers")
    }

    /// Where the statements of a kind stand among the lines of the text.
    fn at(kernel: &Kernel, text: &str) -> Vec<usize> {
        kernel.to_string().lines().enumerate().filter(|(_, l)| l.contains(text)).map(|(i, _)| i).collect()
    }

    const RING: &str = "
        kernel ring {
          param x: f32[256] global read
          param w: f32[256] global read
          param y: f32[64] global write
          for block in 0..1 grid.x {
            alloc pixels: f32[4, 64] shared
            alloc weights: f32[4, 64] shared
            for t in 0..64 thread.x {
              for ahead in 0..4 {
                copy_async pixels[ahead: 1, t: 1] = x[ahead * 64 + t: 1]
                copy_async weights[ahead: 1, t: 1] = w[ahead * 64 + t: 1]
                commit copy
              }
              wait copy 0
              barrier block
              y[t] = pixels[0, t] * weights[0, 63 - t] + pixels[3, t] * weights[3, 63 - t]
            }
          }
        }";

    #[test]
    fn copies_of_constants_start_before_the_wait_and_all_else_behind_it() {
        let kernel = overlap_launches(lowered(RING), &[1], 1, 1).kernel;
        let [wait] = at(&kernel, "dependency wait")[..] else { panic!("{kernel}") };
        assert_eq!(at(&kernel, "dependency launch"), [wait + 1], "{kernel}");
        assert!(at(&kernel, "copy_async weights").iter().all(|l| *l < wait), "{kernel}");
        assert!(at(&kernel, "copy_async pixels").iter().all(|l| *l > wait), "{kernel}");
        assert!(at(&kernel, "y[").iter().skip(1).all(|l| *l > wait), "{kernel}");
        assert_eq!(read_early(&kernel, &kernel.body[0]), Ok(Some(vec![1])));
    }

    #[test]
    fn large_constants_are_asked_for_in_front_of_the_wait_in_pieces() {
        let text = RING.replace("w: f32[256]", "w: f32[3, 100, 128]").replace("0..1 grid.x", "0..40 grid.x");
        let text = text.replace("w[ahead * 64 + t: 1]", "w[0: 1, ahead: 1, t: 1]");
        let text = text
            .replace("y[t] =", "if block == 0 { y[t] =")
            .replace("63 - t]\n            }", "63 - t] }\n            }");
        let kernel = overlap_launches(lowered(&text), &[1], 132, 1).kernel;
        let lines = at(&kernel, "prefetch w[");
        let [wait] = at(&kernel, "dependency wait")[..] else { panic!("{kernel}") };
        assert!(lines.len() == 1 && lines[0] < wait, "{kernel}");
        // 13 pieces for each of three: 8 rows, and what is left.
        let text = kernel.to_string();
        assert!(text.contains("if t == 0 && block < 39 {"), "{text}");
        assert!(text.contains("prefetch w[block / 13 % 3: 1, min(block % 13 * 8, 92): 8, 0: 128]"), "{text}");
        assert_eq!(read_early(&kernel, &kernel.body[0]), Ok(Some(vec![1])));
        verify(kernel, &Limits::cuda()).unwrap();
    }

    #[test]
    fn what_it_makes_is_a_valid_kernel_of_the_same_text() {
        let kernel = overlap_launches(lowered(RING), &[1], 1, 1).kernel;
        assert_eq!(parse(&kernel.to_string()).unwrap().to_string(), kernel.to_string());
        verify(kernel, &Limits::cuda()).unwrap();
    }

    #[test]
    fn a_launch_of_more_blocks_than_can_run_at_once_stays_as_it_is() {
        let many = RING.replace("0..1 grid.x", "0..3 grid.x").replace("y[t]", "if block == 0 { y[t]");
        let many = many.replace("63 - t]\n            }", "63 - t] }\n            }");
        let kernel = lowered(&many);
        let blocks = blocks(&kernel.kernel, &kernel.kernel.body[0], 1);
        assert_eq!(blocks, 3);
        assert_eq!(overlap_launches(kernel.clone(), &[1], 2, 1).kernel.to_string(), kernel.kernel.to_string());
        assert_eq!(at(&overlap_launches(kernel, &[1], 3, 1).kernel, "dependency wait").len(), 1);
    }

    #[test]
    fn without_constants_the_wait_comes_before_the_first_read() {
        let kernel = overlap_launches(lowered(RING), &[], 1, 1).kernel;
        let wait = at(&kernel, "dependency wait")[0];
        assert!(at(&kernel, "copy_async").iter().all(|l| *l > wait), "{kernel}");
        assert_eq!(read_early(&kernel, &kernel.body[0]), Ok(Some(vec![])));
    }

    #[test]
    fn a_wait_that_comes_too_late_or_not_for_all_is_refused() {
        let early = |text: &str| {
            let kernel = parse(text).unwrap();
            read_early(&kernel, &kernel.body[0])
        };
        let body = |statements: &str| {
            format!(
                "kernel k {{ param x: f32[64] global read param y: f32[64] global write \
                 for b in 0..1 grid.x {{ for t in 0..64 thread.x {{ {statements} }} }} }}"
            )
        };
        assert_eq!(early(&body("y[t] = x[t]")), Ok(None));
        assert_eq!(early(&body("dependency wait y[t] = x[t]")), Ok(Some(vec![])));
        let late = DependencyFault::TooEarly { buffer: "y".into(), written: true };
        assert_eq!(early(&body("y[t] = x[t] dependency wait")), Err(late));
        assert_eq!(early(&body("if t < 32 { dependency wait } y[t] = x[t]")), Err(DependencyFault::NotByAll));
        let twice = "dependency wait y[t] = x[t] dependency wait";
        assert_eq!(early(&body(twice)), Err(DependencyFault::NotByAll));
        assert!(DependencyFault::NotByAll.to_string().contains("one `dependency wait` directly below"));
    }
}
