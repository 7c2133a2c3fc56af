//! `transform_layout`: the dimensions of a buffer are blocked and reordered.
//!
//! ```text
//! transform_layout(w, [outer(0, 32), whole(1), inner(0, 32)])
//! w: f32[40, 8],  w[co, ci]   ->   w: f32[2, 8, 32],  w[co / 32, ci, co % 32]
//! ```
//! Where a block does not divide a dimension, the last block is filled up. Indices are simplified, so with a loop split by
//! the same factor `w[(co_o * 32 + co_i) / 32, ci, (co_o * 32 + co_i) % 32]` reads `w[co_o, ci, co_i]`.
//!
//! For a parameter the caller has to bring the data in the new layout: a separate kernel that does it is returned. It reads
//! the original and writes the packed array, zeros in what was filled up, in parallel over the first dimension. For an
//! output it goes the other way: it reads the packed array and writes the original.
//!
//! Refuses layouts that lose or repeat a part of a dimension, buffers that a tile intrinsic uses, and parameters that are
//! both read and written.

use super::error::{Reason, ScheduleError, refuse_stage};
use super::nest::{axis_name, nest, tidy, tile_uses};
use super::place::axis_hints;
use crate::ir::visit::{map_exprs, rewrite};
use crate::ir::{Access, Buffer, BufferId, Expr, Kernel, LoopKind, Scope, Stmt, VarId, row_major};

/// One dimension of the new layout: a digit `index / weight % extent` of the index of an old one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LayoutDim {
    /// The old dimension.
    pub dim: usize,
    /// How many old indices one step of the new one spans.
    pub weight: i64,
    /// How many steps there are; `None` for as many as the old dimension has left.
    pub extent: Option<i64>,
}

impl LayoutDim {
    /// An old dimension as it is.
    pub fn whole(dim: usize) -> LayoutDim {
        LayoutDim { dim, weight: 1, extent: None }
    }

    /// The number of a block: `index / block`.
    pub fn outer(dim: usize, block: i64) -> LayoutDim {
        LayoutDim { dim, weight: block, extent: None }
    }

    /// The place within a block: `index % block`.
    pub fn inner(dim: usize, block: i64) -> LayoutDim {
        LayoutDim { dim, weight: 1, extent: Some(block) }
    }

    /// A digit between the two, for layouts of several levels: `index / weight % extent`.
    pub fn middle(dim: usize, weight: i64, extent: i64) -> LayoutDim {
        LayoutDim { dim, weight, extent: Some(extent) }
    }
}

/// Gives `buffer` the layout. For a parameter also returns the kernel that packs it (or unpacks an output).
pub fn transform_layout(
    k: &Kernel,
    buffer: BufferId,
    layout: &[LayoutDim],
) -> Result<(Kernel, Option<Kernel>), ScheduleError> {
    const NAME: &str = "transform_layout";
    let refuse = |reason| refuse_stage(k, NAME, buffer, reason);
    let Some(old) = k.buffers.get(buffer.0 as usize) else { return Err(refuse(Reason::NotAStage)) };
    check(layout, &old.shape).map_err(|allowed| {
        refuse(Reason::BadArgument { given: format!("a layout of {} dimensions", layout.len()), allowed })
    })?;
    if tile_uses(&k.body, buffer) {
        return Err(refuse(Reason::NotPlain("a tile intrinsic uses it".to_string())));
    }
    let pack = match (k.is_param(buffer), old.access) {
        (false, _) => None,
        (true, Access::Read) => Some(packing(k, buffer, layout)),
        (true, Access::Write) => Some(unpacking(k, buffer, layout)),
        (true, Access::ReadWrite) => return Err(refuse(Reason::Parameter)),
    };

    let mut out = k.clone();
    let changed = out.buffer_mut(buffer);
    changed.shape = new_shape(layout, &old.shape);
    changed.strides = row_major(&changed.shape);
    let body = map_exprs(std::mem::take(&mut out.body), &mut |e| {
        e.map(&mut |e| match e {
            Expr::Load(b, idx) if b == buffer => Expr::Load(b, new_index(layout, &idx)),
            other => other,
        })
    });
    out.body = rewrite(body, &mut |s| {
        vec![match s {
            Stmt::Store { buffer: b, indices, value } if b == buffer => {
                Stmt::Store { buffer: b, indices: new_index(layout, &indices), value }
            }
            Stmt::Reduce { buffer: b, indices, op, init, value, over } if b == buffer => {
                Stmt::Reduce { buffer: b, indices: new_index(layout, &indices), op, init, value, over }
            }
            other => other,
        }]
    });
    tidy(&mut out);
    Ok((out, pack))
}

/// Whether the digits of each old dimension put its index together again; `Err` says what is missing.
fn check(layout: &[LayoutDim], shape: &[i64]) -> Result<(), String> {
    for (dim, size) in shape.iter().enumerate() {
        let mut digits: Vec<&LayoutDim> = layout.iter().filter(|d| d.dim == dim).collect();
        digits.sort_by_key(|d| d.weight);
        let mut weight = 1;
        for (i, d) in digits.iter().enumerate() {
            let last = i + 1 == digits.len();
            match d.extent {
                _ if d.weight != weight => {
                    return Err(format!("digits of dimension {dim} whose weights are 1 and then products of extents"));
                }
                None if last => {}
                Some(n) if n > 0 && (!last || weight * n >= *size) => weight *= n,
                _ => return Err(format!("an extent for each digit of dimension {dim} but the leading one")),
            }
        }
        if digits.is_empty() {
            return Err(format!("each old dimension at least once; dimension {dim} is missing"));
        }
    }
    match layout.iter().find(|d| d.dim >= shape.len()) {
        Some(d) => Err(format!("dimensions 0 to {}; there is no dimension {}", shape.len() - 1, d.dim)),
        None => Ok(()),
    }
}

fn new_shape(layout: &[LayoutDim], shape: &[i64]) -> Vec<i64> {
    layout.iter().map(|d| d.extent.unwrap_or((shape[d.dim] + d.weight - 1) / d.weight)).collect()
}

fn new_index(layout: &[LayoutDim], index: &[Expr]) -> Vec<Expr> {
    layout
        .iter()
        .map(|d| {
            let quotient = index[d.dim].clone().floor_div(d.weight);
            match d.extent {
                Some(n) => quotient.floor_mod(n),
                None => quotient,
            }
        })
        .collect()
}

/// Names of the loops over the new dimensions: `co_o, ci, co_i`.
fn loop_names(k: &Kernel, buffer: BufferId, layout: &[LayoutDim]) -> Vec<String> {
    let axes: Vec<String> = axis_hints(k, &k.body, buffer).iter().map(|h| axis_name(h).to_string()).collect();
    layout
        .iter()
        .map(|d| match (d.weight, d.extent) {
            (1, None) => axes[d.dim].clone(),
            (_, None) => format!("{}_o", axes[d.dim]),
            (1, Some(_)) => format!("{}_i", axes[d.dim]),
            (_, Some(_)) => format!("{}_m", axes[d.dim]),
        })
        .collect()
}

/// The two parameters of a packing kernel: the first is read, the second written.
fn two_params(
    k: &Kernel,
    name: String,
    buffer: BufferId,
    read: (&str, &[i64]),
    write: (&str, &[i64]),
) -> (Kernel, BufferId, BufferId) {
    let dtype = k.buffer(buffer).dtype;
    let mut out = Kernel::new(name);
    let from = out.add_buffer(Buffer { access: Access::Read, ..Buffer::new(read.0, dtype, read.1, Scope::Global) });
    let to = out.add_buffer(Buffer { access: Access::Write, ..Buffer::new(write.0, dtype, write.1, Scope::Global) });
    out.params = vec![from, to];
    (out, from, to)
}

fn parallel_nest(loops: &[(VarId, i64)], body: Vec<Stmt>) -> Vec<Stmt> {
    let mut block = nest(loops, body);
    if let Some(Stmt::For(l)) = block.first_mut() {
        l.kind = LoopKind::Parallel;
    }
    block
}

fn packing(k: &Kernel, buffer: BufferId, layout: &[LayoutDim]) -> Kernel {
    let old = k.buffer(buffer);
    let shape = new_shape(layout, &old.shape);
    let packed_name = format!("{}_packed", old.name);
    let name = format!("{}_pack_{}", k.name, old.name);
    let (mut out, from, to) = two_params(k, name, buffer, (&old.name, &old.shape), (&packed_name, &shape));
    let vars: Vec<VarId> = loop_names(k, buffer, layout).iter().map(|n| out.fresh_var(n)).collect();
    let source: Vec<Expr> = (0..old.shape.len())
        .map(|dim| {
            let digits = layout.iter().zip(&vars).filter(|(d, _)| d.dim == dim);
            digits.fold(Expr::Int(0), |sum, (d, v)| sum + *v * d.weight)
        })
        .collect();
    let inside = Expr::all(source.iter().zip(&old.shape).map(|(i, n)| i.clone().lt(*n)));
    let value = Expr::load(from, source);
    let value = match inside {
        Some(c) => c.select(value, Expr::zero_like_load(old.dtype)),
        None => value,
    };
    let element = vars.iter().map(|v| (*v).into()).collect();
    let loops: Vec<(VarId, i64)> = vars.iter().copied().zip(shape).collect();
    out.body = parallel_nest(&loops, vec![Stmt::store(to, element, value)]);
    tidy(&mut out);
    out
}

fn unpacking(k: &Kernel, buffer: BufferId, layout: &[LayoutDim]) -> Kernel {
    let old = k.buffer(buffer);
    let shape = new_shape(layout, &old.shape);
    let packed_name = format!("{}_packed", old.name);
    let name = format!("{}_unpack_{}", k.name, old.name);
    let (mut out, from, to) = two_params(k, name, buffer, (&packed_name, &shape), (&old.name, &old.shape));
    let whole: Vec<LayoutDim> = (0..old.shape.len()).map(LayoutDim::whole).collect();
    let vars: Vec<VarId> = loop_names(k, buffer, &whole).iter().map(|n| out.fresh_var(n)).collect();
    let element: Vec<Expr> = vars.iter().map(|v| (*v).into()).collect();
    let value = Expr::load(from, new_index(layout, &element));
    let loops: Vec<(VarId, i64)> = vars.into_iter().zip(old.shape.clone()).collect();
    out.body = parallel_nest(&loops, vec![Stmt::store(to, element, value)]);
    tidy(&mut out);
    out
}
