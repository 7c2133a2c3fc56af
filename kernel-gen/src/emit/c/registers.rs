//! Turns register buffers into named variables.
//!
//! The accesses of a kernel decide how a buffer is cut: `acc[i, ramp(j * 16, 1, 16)]` makes one vector variable an
//! access, named after its first element (`acc_3_16`); elements that are only touched alone become scalars; and an element
//! touched alone inside a vector is a lane of it.

use super::chunk::{Chunk, chunks};
use super::types::Vector;
use super::{Isa, tile};
use crate::emit::EmitError;
use crate::emit::clike::names::Names;
use crate::ir::{BufferId, DType, Expr, Kernel, Scope, Stmt, print};
use std::collections::BTreeMap;

/// A variable that holds elements `start .. start + len` of a register buffer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) start: i64,
    pub(super) len: i64,
    pub(super) name: String,
    /// Its type, unless it is a scalar.
    pub(super) vector: Option<Vector>,
    /// Whether anything reads it; what is not read need not be computed.
    pub(super) read: bool,
}

/// How a register buffer is held.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RegisterFile {
    /// In variables, in the order of their first elements.
    Variables(Vec<Group>),
    /// In a local array, because its accesses overlap in ways that variables cannot follow.
    Array,
}

impl RegisterFile {
    /// The variable that holds an element.
    pub(super) fn group(&self, offset: i64) -> Option<&Group> {
        match self {
            RegisterFile::Variables(groups) => groups.iter().find(|g| g.start <= offset && offset < g.start + g.len),
            RegisterFile::Array => None,
        }
    }
}

/// Where an access to a register buffer starts, and how far apart its lanes are in elements.
pub(super) struct RegisterAccess {
    pub(super) offset: i64,
    pub(super) stride: i64,
    pub(super) lanes: u16,
}

/// Evaluates the indices of a register access.
pub(super) fn register_access(kernel: &Kernel, b: BufferId, indices: &[Expr]) -> Result<RegisterAccess, EmitError> {
    let buffer = kernel.buffer(b);
    let mut access = RegisterAccess { offset: 0, stride: 0, lanes: 1 };
    for (i, s) in indices.iter().zip(&buffer.strides) {
        match i {
            Expr::Int(v) => access.offset += v * s,
            Expr::Ramp { base, stride, lanes } if base.as_int().is_some() && access.lanes == 1 => {
                access.offset += base.as_int().unwrap_or(0) * s;
                access.stride = stride * s;
                access.lanes = *lanes;
            }
            other => {
                return Err(EmitError::RegisterIndex {
                    buffer: buffer.name.clone(),
                    index: print::expr(kernel, other),
                });
            }
        }
    }
    Ok(access)
}

/// Decides how each register buffer that the block touches is held.
pub(super) fn files(
    kernel: &Kernel,
    isa: Isa,
    body: &[Stmt],
    names: &mut Names,
) -> Result<BTreeMap<BufferId, RegisterFile>, EmitError> {
    let mut files = files_beside(kernel, isa, body, &BTreeMap::new())?;
    // What only makes a value that nobody reads is no reader. Most kernels have nothing of the kind.
    let has_unread = |file: &RegisterFile| matches!(file, RegisterFile::Variables(of) if of.iter().any(|g| !g.read));
    while files.values().any(has_unread) {
        let fewer = files_beside(kernel, isa, body, &files)?;
        if fewer == files {
            break;
        }
        files = fewer;
    }
    for (b, file) in &mut files {
        if let RegisterFile::Variables(groups) = file {
            groups.iter_mut().for_each(|g| g.name = names.fresh(&element_name(kernel, *b, g.start)));
        }
    }
    Ok(files)
}

/// Whether a statement writes nothing but variables that nobody reads.
pub(super) fn is_unread(kernel: &Kernel, s: &Stmt, chunks: &[Chunk], known: &BTreeMap<BufferId, RegisterFile>) -> bool {
    let (Stmt::Store { buffer, indices, .. } | Stmt::Reduce { buffer, indices, .. }) = s else { return false };
    let (Some(file), Ok(at)) = (known.get(buffer), register_access(kernel, *buffer, indices)) else { return false };
    let unread = |offset: i64| file.group(offset).is_some_and(|g| !g.read);
    match at.lanes {
        1 => unread(at.offset),
        _ => at.stride == 1 && chunks.iter().all(|c| unread(at.offset + i64::from(c.start))),
    }
}

/// The same without names, if what is known to be unread is not made.
fn files_beside(
    kernel: &Kernel,
    isa: Isa,
    body: &[Stmt],
    known: &BTreeMap<BufferId, RegisterFile>,
) -> Result<BTreeMap<BufferId, RegisterFile>, EmitError> {
    let mut accesses: BTreeMap<BufferId, Option<Vec<Run>>> = BTreeMap::new();
    let mut error = None;
    for s in body {
        s.walk(&mut |s| {
            let chunks = chunks(kernel, isa, s);
            let mut note = |b: BufferId, indices: &[Expr], chunks: &[Chunk], read: bool| {
                if kernel.buffer(b).scope == Scope::Register {
                    match register_access(kernel, b, indices) {
                        Ok(a) => record(accesses.entry(b).or_insert_with(|| Some(vec![])), &a, chunks, read),
                        Err(e) => error = Some(e),
                    }
                }
            };
            // Transpositions read rows as vectors, and address everything else element by element.
            if let Stmt::Transpose { dst, src } = s {
                let (m, n) = tile::extents(src);
                let native = (isa.vector_bytes() / 4) as u16;
                let pieces = |n: i64| -> Vec<Chunk> {
                    let n = u16::try_from(n).unwrap_or(0);
                    (0..n).step_by(usize::from(native)).map(|s| Chunk { start: s, len: native.min(n - s) }).collect()
                };
                (0..m).for_each(|i| note(src.buffer, &tile::row(src, i, n), &pieces(n), true));
                for j in 0..n {
                    (0..m).for_each(|i| note(dst.buffer, &tile::at(dst, j, Expr::Int(i)), &[], false));
                }
                return;
            }
            if let Stmt::Store { buffer, indices, .. } | Stmt::Reduce { buffer, indices, .. } = s {
                note(*buffer, indices, &chunks, false);
            }
            let is_read = !is_unread(kernel, s, &chunks, known);
            s.own_exprs(&mut |e| {
                e.walk(&mut |e| {
                    if let Expr::Load(b, idx) = e {
                        note(*b, idx, &chunks, is_read);
                    }
                })
            });
        });
    }
    if let Some(e) = error {
        return Err(e);
    }
    Ok(accesses.into_iter().map(|(b, a)| (b, cut(kernel, b, a))).collect())
}

/// Neighbouring elements that an access touches at once, as one register; one lane of a vector statement is a register too.
#[derive(Clone, Copy, PartialEq)]
struct Run {
    start: i64,
    len: i64,
    vector: bool,
    read: bool,
}

fn record(runs: &mut Option<Vec<Run>>, a: &RegisterAccess, chunks: &[Chunk], read: bool) {
    let Some(list) = runs else { return };
    match (a.lanes, a.stride) {
        (1, _) => list.push(Run { start: a.offset, len: 1, vector: false, read }),
        (_, 1) => list.extend(chunks.iter().map(|c| Run {
            start: a.offset + i64::from(c.start),
            len: i64::from(c.len),
            vector: true,
            read,
        })),
        // Lanes that are not neighbours: no variable holds them.
        _ => *runs = None,
    }
}

/// Cuts a buffer into variables; without `runs` it cannot be cut.
fn cut(kernel: &Kernel, b: BufferId, runs: Option<Vec<Run>>) -> RegisterFile {
    let dtype = kernel.buffer(b).dtype;
    let mut runs = match (runs, dtype) {
        (Some(runs), DType::F32 | DType::F64 | DType::I64 | DType::I32) => runs,
        (Some(runs), word) if word.is_word() => runs,
        // 16-bit floats round at each store, which memory does by itself.
        _ => return RegisterFile::Array,
    };
    // The longest first where several start at the same element, and vectors before scalars.
    runs.sort_unstable_by_key(|r| (r.start, -r.len, !r.vector, r.read));
    runs.dedup();
    let mut groups: Vec<Group> = vec![];
    for Run { start, len, vector, read } in runs {
        match groups.last_mut() {
            Some(g) if start + len <= g.start + g.len => {
                g.read |= read;
                continue;
            }
            Some(g) if start < g.start + g.len => return RegisterFile::Array,
            _ => {}
        }
        // Words lie in vectors of integers of their size.
        let lane = if dtype.is_word() { DType::I32 } else { dtype };
        let vector = vector.then(|| Vector::holding(lane, len as usize));
        groups.push(Group { start, len, name: String::new(), vector, read });
    }
    RegisterFile::Variables(groups)
}

/// `acc_3_16` for `acc[3, 16]`; dimensions of one element are not said.
fn element_name(kernel: &Kernel, b: BufferId, mut offset: i64) -> String {
    let buffer = kernel.buffer(b);
    let mut name = buffer.name.clone();
    for (n, s) in buffer.shape.iter().zip(&buffer.strides) {
        if *n > 1 {
            name.push_str(&format!("_{}", offset / s));
            offset %= s;
        }
    }
    name
}
