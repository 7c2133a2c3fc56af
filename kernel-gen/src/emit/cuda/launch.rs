//! Cuts a kernel into launches and places its memory.

use super::arch::Arch;
use super::role::WMMA_ALIGNMENT;
use super::tensor_map;
use crate::emit::EmitError;
use crate::emit::clike::walk::{Let, any, used};
use crate::integer::round_up;
use crate::ir::{BufferId, First, For, Gpu, Kernel, LoopKind, Scope, Stmt};
use std::collections::{BTreeMap, BTreeSet};

/// A loop nest over hardware indices at the top of the kernel.
pub(super) struct LaunchBody<'k> {
    /// `let`s of the kernel's top that it uses.
    pub(super) lets: Vec<Let<'k>>,
    /// The nest.
    pub(super) nest: &'k Stmt,
    /// Blocks, those of all clusters counted.
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) cluster: [u32; 3],
}

/// Launches and workspace of a kernel.
pub(super) struct Layout<'k> {
    pub(super) launches: Vec<LaunchBody<'k>>,
    /// Buffers allocated at the top, and their offsets.
    pub(super) workspace: BTreeMap<BufferId, i64>,
    pub(super) workspace_bytes: i64,
}

/// Buffers in the workspace start at multiples of this, as device allocations do.
const WORKSPACE_ALIGNMENT: i64 = 256;

/// Static shared memory is limited to this on every architecture.
const STATIC_SHARED_BYTES: i64 = 48 * 1024;

pub(super) fn layout(kernel: &Kernel) -> Result<Layout<'_>, EmitError> {
    let mut out = Layout { launches: vec![], workspace: BTreeMap::new(), workspace_bytes: 0 };
    let mut lets: Vec<Let> = vec![];
    for s in &kernel.body {
        match s {
            Stmt::Alloc(b) if kernel.buffer(*b).scope == Scope::Global => {
                out.workspace.insert(*b, out.workspace_bytes);
                out.workspace_bytes += round_up(kernel.buffer(*b).extent_bytes(), WORKSPACE_ALIGNMENT);
            }
            // Private memory at the top belongs to nobody: the verifier has seen that no launch uses it.
            Stmt::Alloc(_) => {}
            Stmt::Let { var, value } => {
                if value.reads_memory() {
                    return Err(EmitError::LetAcrossLaunches { var: kernel.var(*var).name.clone() });
                }
                lets.push((*var, value));
            }
            Stmt::For(l) if is_hardware(l.kind) => {
                let [grid, block, cluster] = shape(s)?;
                out.launches.push(LaunchBody {
                    lets: used(&lets, std::slice::from_ref(s)),
                    nest: s,
                    grid,
                    block,
                    cluster,
                });
            }
            Stmt::For(l) => {
                let var = kernel.var(l.var).name.clone();
                return Err(match l.kind {
                    LoopKind::Parallel => EmitError::CpuLoop { var },
                    _ => EmitError::OutsideLaunch { what: format!("loop `{var}`") },
                });
            }
            other => {
                let what = match other.written() {
                    Some(b) => format!("the statement that writes `{}`", kernel.buffer(b).name),
                    None => "a statement".to_string(),
                };
                return Err(EmitError::OutsideLaunch { what });
            }
        }
    }
    if out.launches.is_empty() { Err(EmitError::NoLaunch) } else { Ok(out) }
}

/// Whether the loop is an index of the hardware.
pub(super) fn is_hardware(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_))
}

/// Blocks of the grid, threads of a block and blocks of a cluster: the longest loop of each axis.
fn shape(nest: &Stmt) -> Result<[[u32; 3]; 3], EmitError> {
    let (mut grid, mut block, mut cluster) = ([1i64; 3], [1i64; 3], [1i64; 3]);
    nest.walk(&mut |s| {
        if let Stmt::For(l) = s {
            let longest = match l.kind {
                LoopKind::Grid(a) => &mut grid[a as usize],
                LoopKind::Thread(a) => &mut block[a as usize],
                LoopKind::Cluster(a) => &mut cluster[a as usize],
                _ => return,
            };
            *longest = l.extent.max(*longest);
        }
    });
    for (blocks, n) in grid.iter_mut().zip(cluster) {
        *blocks = blocks.saturating_mul(n);
    }
    let shapes = [grid, block, cluster];
    match shapes.iter().flatten().find(|n| **n > i64::from(i32::MAX)) {
        Some(n) => Err(EmitError::in_cuda(format!("a launch of {n} blocks or threads"))),
        None => Ok(shapes.map(|shape| shape.map(|n| n.unsigned_abs() as u32))),
    }
}

/// Which axis of the grid has fewer blocks where there are fewer units.
pub(super) fn first(kernel: &Kernel, nest: &Stmt) -> Option<(usize, First)> {
    let mut found = None;
    nest.walk(&mut |s| {
        if let Stmt::For(For { var, kind: LoopKind::Grid(axis), .. }) = s {
            found = found.or(kernel.first_of(*var).map(|first| (*axis as usize, first)));
        }
    });
    found
}

/// Whether threads of the nest may read what others wrote to global memory. Where they do not, blocks that wait for each
/// other tell of their shared memory only, which no other block's threads read.
pub(super) fn exchanges(kernel: &Kernel, nest: &Stmt) -> bool {
    let mut read: BTreeSet<BufferId> = BTreeSet::new();
    let mut written: BTreeSet<BufferId> = BTreeSet::new();
    nest.walk(&mut |s| {
        s.accesses(&mut |a| if a.writes { &mut written } else { &mut read }.extend([a.buffer]));
    });
    read.intersection(&written).any(|b| kernel.buffer(*b).scope == Scope::Global)
}

/// Whether blocks of the nest store in each other's shared memory.
pub(super) fn stores_at(nest: &Stmt) -> bool {
    any(std::slice::from_ref(nest), |s| matches!(s, Stmt::Gpu(Gpu::StoreAt { .. })))
}

/// The shared memory of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Buffers, their offsets, and what they are aligned to.
    pub(super) arrays: Vec<(BufferId, i64, i64)>,
    pub(super) bytes: i64,
    /// Whether it is one array whose size the launch says.
    pub(super) dynamic: bool,
}

/// Places the shared buffers of a launch one behind the other.
pub(super) fn shared(kernel: &Kernel, nest: &Stmt, symbol: &str, arch: Arch) -> Result<Shared, EmitError> {
    // What the copy engine moves is aligned for it, and what `wmma` moves.
    let (mut boxes, mut tiles): (BTreeSet<BufferId>, BTreeSet<BufferId>) = Default::default();
    nest.walk(&mut |s| match s {
        Stmt::Gpu(Gpu::TensorLoad { dst: t, .. } | Gpu::TensorStore { src: t, .. }) => boxes.extend([t.buffer]),
        Stmt::Gpu(Gpu::Move { dst, src }) if arch.has_opaque_fragments() => tiles.extend([dst.buffer, src.buffer]),
        _ => {}
    });
    let mut buffers: Vec<(BufferId, i64)> = vec![];
    nest.walk(&mut |s| {
        if let Stmt::Alloc(b) = s
            && matches!(kernel.buffer(*b).scope, Scope::Shared | Scope::Mbarrier)
        {
            let swizzle = kernel.buffer(*b).swizzle;
            let alignment = match (swizzle > 0 || boxes.contains(b), tiles.contains(b)) {
                (true, _) => tensor_map::alignment(swizzle),
                (false, true) => WMMA_ALIGNMENT,
                (false, false) => 16,
            };
            buffers.push((*b, alignment));
        }
    });
    // The most demanding first, so that no gaps are needed.
    buffers.sort_by_key(|(_, alignment)| std::cmp::Reverse(*alignment));
    let mut out = Shared::default();
    for (b, alignment) in buffers {
        out.bytes = round_up(out.bytes, alignment);
        out.arrays.push((b, out.bytes, alignment));
        out.bytes += kernel.buffer(b).extent_bytes().max(1);
    }
    out.bytes = round_up(out.bytes, 16);
    out.dynamic = out.bytes > STATIC_SHARED_BYTES;
    let available = arch.shared_bytes();
    if out.bytes > available {
        return Err(EmitError::SharedMemory { symbol: symbol.to_string(), bytes: out.bytes, available, arch });
    }
    Ok(out)
}
