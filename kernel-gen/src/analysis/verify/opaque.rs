//! Tensor cores in `wmma` form: what holds where no thread knows which elements of a fragment it has.
//!
//! Before compute capability 7.5 a fragment is filled, loaded, multiplied and stored, each by one instruction of a warp on
//! tiles of 16 x 16. That is all: its elements have no place that a loop or an epilogue could name.

use super::access::Site;
use super::fault::{Fault, FaultKind};
use super::limits::Limits;
use crate::analysis::simplify::{Sum, simplify};
use crate::ir::{DType, Expr, For, Gpu, Kernel, LoopKind, Scope, Stmt, Tile, Unit};

/// Rows, columns and depth of the one shape, `m16n16k16`.
pub(super) const TILE: i64 = 16;

/// Bytes that a thread has of an operand, and of a tile of `f32` sums: rows in memory begin at multiples of this. *(PTX
/// ISA, "Matrix Storage" of `wmma`.)*
const FRAGMENT_BYTES: i64 = 32;

/// What to do instead of touching elements.
const BY_MEMORY: &str = "move the tile to memory and go on there, or schedule for compute capability 7.5 and later";

/// What tiles of fragments are to be.
const WHOLE: &str = "cut fragments into tiles of 16 x 16, the shape m16n16k16 of wmma";

/// Checks the rules under "Tensor cores before compute capability 7.5".
pub(super) fn check(kernel: &Kernel, limits: &Limits, sites: &[Site], faults: &mut Vec<Fault>) {
    if !limits.opaque_fragments || !kernel.buffers.iter().any(|b| matches!(b.scope, Scope::Fragment(_))) {
        return;
    }
    statements(kernel, &kernel.body, &mut vec![], faults);
    for site in sites {
        let refusal = match kernel.buffer(site.buffer).scope {
            Scope::Fragment(_) => between_tiles(kernel, site),
            _ => misplaced(kernel, site),
        };
        if let Some((cause, help)) = refusal {
            faults.push(Fault::at(kernel, &site.loops, site.stmt, FaultKind::MisalignedVector, cause, help));
        }
    }
}

fn statements<'k>(kernel: &'k Kernel, block: &'k [Stmt], loops: &mut Vec<&'k For>, faults: &mut Vec<Fault>) {
    for s in block {
        let refusal = match s {
            Stmt::For(l) if l.kind == LoopKind::FragmentRow => {
                let name = &kernel.var(l.var).name;
                Some((
                    format!("loop {name} visits the elements of a fragment, whose places no thread knows"),
                    BY_MEMORY,
                ))
            }
            Stmt::Gpu(g) => statement(kernel, g),
            _ => None,
        };
        if let Some((cause, help)) = refusal {
            faults.push(Fault::at(kernel, loops, s, FaultKind::ResourceLimit, cause, help));
            continue;
        }
        match s {
            Stmt::For(l) => {
                loops.push(l);
                statements(kernel, &l.body, loops, faults);
                loops.pop();
            }
            Stmt::If { then, otherwise, .. } => {
                statements(kernel, then, loops, faults);
                statements(kernel, otherwise, loops, faults);
            }
            _ => {}
        }
    }
}

/// Why a statement on fragments is none that `wmma` has.
fn statement(kernel: &Kernel, g: &Gpu) -> Option<(String, &'static str)> {
    let dtype = |t: &Tile| kernel.buffer(t.buffer).dtype;
    let is_fragment = |t: &Tile| matches!(kernel.buffer(t.buffer).scope, Scope::Fragment(_));
    let whole = |t: &Tile| match long(t)[..] {
        [rows, columns] => rows % TILE == 0 && columns % TILE == 0,
        _ => false,
    };
    let tiles = g.tiles();
    if let Gpu::MoveRows { .. } | Gpu::Split { .. } = g {
        return Some(("it puts elements into places of a fragment that no thread knows".to_string(), BY_MEMORY));
    }
    if let Gpu::Mma { unit: Unit::Warp, a, .. } = g
        && dtype(&a.tile) != DType::F16
    {
        let cause = format!("tensor cores multiply {} from compute capability 8.0 on", dtype(&a.tile));
        return Some((cause, "use f16"));
    }
    if let Gpu::Move { dst, src } = g
        && dtype(dst) != dtype(src)
    {
        let cause =
            format!("a move of {} into {} converts elements whose places no thread knows", dtype(src), dtype(dst));
        return Some((cause, "move them as they are, and convert them in memory"));
    }
    let cut = tiles.written.into_iter().chain(tiles.read).find(|t| {
        let named = is_fragment(t) && matches!(g, Gpu::Fill { .. } | Gpu::Move { .. } | Gpu::Mma { .. });
        named && !whole(t)
    });
    cut.map(|t| {
        let cause =
            format!("a tile of {:?} of {} is no whole number of 16 x 16", t.extents, kernel.buffer(t.buffer).name);
        (cause, WHOLE)
    })
}

fn long(t: &Tile) -> Vec<i64> {
    t.extents.iter().copied().filter(|n| *n != 1).collect()
}

/// Whether a place moves by multiples of `unit` only, in what `bytes` counts; otherwise by how much it does.
fn moves_by(kernel: &Kernel, site: &Site, place: &Expr, [bytes, unit]: [i64; 2]) -> Result<(), i64> {
    let sum = Sum::of(simplify(place, &site.facts.ranges));
    let within = |atom: &Expr| matches!(atom, Expr::Var(v) if v.0 as usize >= kernel.vars.len());
    match sum.terms.iter().find(|(atom, c)| !within(atom) && c * bytes % unit != 0) {
        Some((_, by)) => Err(*by),
        None if sum.constant * bytes % unit == 0 => Ok(()),
        None => Err(sum.constant),
    }
}

/// Why a tile of a fragment is none that a thread has whole.
fn between_tiles(kernel: &Kernel, site: &Site) -> Option<(String, String)> {
    let Stmt::Gpu(g) = site.stmt else { return None };
    let tiles = g.tiles();
    let tile = tiles.written.into_iter().chain(tiles.read).find(|t| t.buffer == site.buffer)?;
    let places = site.index.iter().zip(&tile.extents).filter(|(_, n)| **n != 1);
    let by = places.filter_map(|(place, _)| moves_by(kernel, site, place, [1, TILE]).err()).next()?;
    let name = &kernel.buffer(site.buffer).name;
    Some((format!("a tile of {name} moves by {by} elements, no multiple of {TILE}"), WHOLE.to_string()))
}

/// Why the memory side of a `move` is no matrix that `wmma` loads or stores.
fn misplaced(kernel: &Kernel, site: &Site) -> Option<(String, String)> {
    let Stmt::Gpu(Gpu::Move { dst, src }) = site.stmt else { return None };
    let b = kernel.buffer(site.buffer);
    let stored = site.buffer == dst.buffer;
    let tile = if stored { dst } else { src };
    let bytes = b.dtype.bytes() as i64;
    // Half as many where sums are f16; an operand's are f16, too.
    let want = if stored && b.dtype == DType::F16 { FRAGMENT_BYTES / 2 } else { FRAGMENT_BYTES };
    if b.swizzle != 0 {
        let cause = format!("{} is swizzled, and wmma reads rows as they lie", b.name);
        return Some((cause, "pad its rows instead (storage_align)".to_string()));
    }
    let strides: Vec<i64> =
        tile.extents.iter().zip(&b.strides).filter(|(n, _)| **n != 1).map(|(_, stride)| *stride).collect();
    if strides.last() != Some(&1) {
        let cause = format!("columns of the tile of {} do not lie side by side", b.name);
        return Some((cause, "let the last dimension of the tile be the fast one (transform_layout)".to_string()));
    }
    let help = || format!("pad rows of {} to a multiple of {} elements (storage_align)", b.name, want / bytes);
    if let Some(stride) = strides.iter().rev().skip(1).find(|s| *s * bytes % want != 0) {
        return Some((
            format!("rows of the tile of {} are {} bytes apart, no multiple of {want}", b.name, stride * bytes),
            help(),
        ));
    }
    let by = moves_by(kernel, site, &b.address(&site.index), [bytes, want]).err()?;
    Some((format!("the tile of {} moves by {by} elements, so it is not aligned to {want} bytes", b.name), help()))
}
