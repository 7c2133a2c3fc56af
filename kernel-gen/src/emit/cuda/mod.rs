//! CUDA C++ from lowered kernels.
//!
//! Each loop nest over hardware indices at the top of a kernel is a *launch* and becomes one function:
//!
//! ```cuda
//! extern "C" __global__ void __launch_bounds__(<threads>) <symbol>(<const T *__restrict__ param>, ...)
//! ```
//! Its parameters are the buffers that it touches: the kernel's parameters in their order, then pieces of the workspace,
//! then tensor maps by value ([`Param`] says which). Read-only ones are `const`, 16-bit floats are `unsigned short`. The caller starts the launches
//! in order on one stream.
//!
//! The sources include nothing: nvcc and bare NVRTC compile them. A loop over a hardware index is that index, with a
//! guard where the launch has more; vectors become wide loads and stores around scalar arithmetic, because that is what
//! the hardware has; the elements of private arrays are variables where all indices are constants; shared memory is declared statically up to 48 KiB and is one dynamic array beyond. What a plain
//! function cannot say is inline PTX.

pub(super) mod arch;
mod body;
mod counters;
mod fragment;
mod gpu;
mod launch;
mod multiple;
mod names;
mod operand;
mod prelude;
mod ptx;
mod role;
mod scalars;
mod stmt;
mod tensor;
mod tensor_map;
mod vector;
mod wgmma;
mod wmma;

pub use crate::emit::EmitError;
pub use arch::Arch;
pub use tensor_map::{TensorBase, TensorMap};

use super::clike::names::Names;
use super::clike::prelude::Prelude;
use super::clike::text::has_word;
use super::clike::walk::any;
use super::escape;
use crate::analysis::dependency::read_early;
use crate::analysis::range::Ranges;
use crate::ir::{Access, BufferId, First, Gpu, Kernel, Scope, Stmt};
use crate::lower::Lowered;
use crate::stored::{Stored, stored};
use body::{Body, Cuda};
use launch::{LaunchBody, Layout};
use prelude::cuda_type;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The widest vector access, and what TMA asks of a tensor's address.
const VECTOR_BYTES: u32 = 16;

/// What to emit.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaOptions {
    /// The architecture.
    pub arch: Arch,
    /// Name of the function; those of a kernel with several launches get a number behind it.
    pub symbol: String,
    /// Text of the comment at the top: workload, config, origin, how to regenerate.
    pub comment: String,
    /// Blocks that should fit on a multiprocessor at the same time, which bounds the registers of a thread.
    pub min_blocks: Option<u32>,
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub enum Param {
    /// The address of a parameter of the kernel.
    Buffer {
        /// Which one: an index into the kernel's list of parameters.
        index: usize,
        /// Its name in the kernel.
        name: String,
        /// Whether the launch writes it.
        written: bool,
    },
    /// The address of a piece of the workspace.
    Workspace {
        /// Where it starts.
        offset: i64,
        /// How long it is.
        bytes: i64,
        /// The name of the buffer that it holds.
        name: String,
    },
    /// A tensor map, by value (128 bytes, aligned to 64).
    TensorMap(TensorMap),
    /// How many units there are, an `int`; 0 until it is known ([`Launch::of_units`]).
    Units(i64),
}

/// One function and how it is started: what emitters, wrappers and tuners know of a launch. The runtime has the same in a form for
/// statics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub struct Launch {
    /// Name of the function.
    pub symbol: String,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; all 1 without clusters.
    pub cluster: [u32; 3],
    /// What the launch has to ask for; 0 if all shared memory is static.
    pub dynamic_shared_bytes: u32,
    /// Present if it waits by itself for the launches before it, and so may start while they run: the parameters of the
    /// kernel that it reads before it has waited.
    pub overlap: Option<Vec<usize>>,
    /// The most units with which it starts so.
    pub early_units: i64,
    /// Which axis of the grid has fewer blocks (or clusters) where there are fewer units, and how many.
    pub first: Option<(usize, First)>,
    /// Its arguments, in order.
    pub params: Vec<Param>,
}

stored! {
    Launch { symbol, grid, block, cluster, dynamic_shared_bytes, overlap, early_units, first, params }
    First { per, of, times, by }
}

impl Stored for Param {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Param::Buffer { index, name, written } => (0u8, (*index, (name.clone(), *written))).put(out),
            Param::Workspace { offset, bytes, name } => (1u8, (*offset, (*bytes, name.clone()))).put(out),
            Param::TensorMap(map) => {
                2u8.put(out);
                map.put(out);
            }
            Param::Units(n) => (3u8, *n).put(out),
        }
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::get(from)? {
            0 => Param::Buffer { index: Stored::get(from)?, name: Stored::get(from)?, written: Stored::get(from)? },
            1 => Param::Workspace { offset: Stored::get(from)?, bytes: Stored::get(from)?, name: Stored::get(from)? },
            2 => Param::TensorMap(Stored::get(from)?),
            3 => Param::Units(Stored::get(from)?),
            _ => return None,
        })
    }
}

impl Launch {
    /// The launch with the number of units fixed to `units`.
    #[must_use]
    pub fn of_units(mut self, units: i64) -> Launch {
        self.overlap = self.overlap.filter(|_| units <= self.early_units);
        if let Some((axis, first)) = self.first.take() {
            let blocks = first.iterations(units).saturating_mul(i64::from(self.cluster[axis]));
            self.grid[axis] = self.grid[axis].min(u32::try_from(blocks).unwrap_or(u32::MAX));
        }
        for param in &mut self.params {
            match param {
                Param::Units(n) => *n = units,
                Param::TensorMap(TensorMap { dims, rows, .. }) if *rows > 0 => {
                    let last = dims.last_mut().expect("a tensor has a dimension");
                    *last = std::mem::take(rows) * units.unsigned_abs();
                }
                _ => {}
            }
        }
        self
    }
}

/// The tensor maps that launches take, each once, in the order in which they come up: a parameter is passed by its place here.
pub fn tensor_maps(launches: &[Launch]) -> Vec<&TensorMap> {
    let mut maps = vec![];
    for param in launches.iter().flat_map(|launch| &launch.params) {
        if let Param::TensorMap(map) = param
            && !maps.contains(&map)
        {
            maps.push(map);
        }
    }
    maps
}

/// The CUDA C++ of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaSource {
    /// The architecture that it was written for; later ones run it too unless it is a specific one.
    pub arch: Arch,
    /// Stem of the functions' names.
    pub symbol: String,
    /// Text of the `.cu` file.
    pub source: String,
    /// The functions, in the order in which they run.
    pub launches: Vec<Launch>,
    /// Bytes of device memory that the launches share, aligned to 256.
    pub workspace_bytes: i64,
    /// Bytes that addresses of parameters are multiples of: the widest vector access, and what TMA and `wmma` ask for.
    pub alignment: u32,
}

/// Emits a lowered kernel.
pub fn emit(lowered: &Lowered, options: &CudaOptions) -> Result<CudaSource, EmitError> {
    let (mut kernel, counters) = counters::extract(lowered.kernel().clone());
    let lane = kernel.fresh_var("lane");
    let warp = kernel.fresh_var("own_warp");
    let kernel = &kernel;
    let layout = launch::layout(kernel)?;
    let roles = role::roles(kernel)?;
    let mut names = Names::of(kernel, &names::RESERVED);
    let mut prelude = Prelude::new(options.arch);
    let (mut functions, mut launches) = (vec![], vec![]);
    for (i, nest) in layout.launches.iter().enumerate() {
        let symbol = match layout.launches.len() {
            1 => options.symbol.clone(),
            _ => format!("{}_{i}", options.symbol),
        };
        let shared = launch::shared(kernel, nest.nest, &symbol, options.arch)?;
        let mut ranges = Ranges::of_kernel(kernel);
        counters::name(&counters, &mut names, &mut ranges);
        ranges.insert(lane, 0, 31);
        ranges.insert(warp, 0, 3);
        let scalars = scalars::of(kernel, nest.nest, &counters, &mut names);
        let own = Cuda {
            arch: options.arch,
            grid: nest.grid,
            block: nest.block,
            cluster: nest.cluster,
            exchanges: launch::exchanges(kernel, nest.nest),
            stores_at: launch::stores_at(nest.nest),
            workspace: layout.workspace.clone(),
            roles: roles.clone(),
            live_sums: BTreeSet::new(),
            groups: vec![],
            open_group: BTreeSet::new(),
            from_zero: false,
            read_next: BTreeSet::new(),
            maps: vec![],
            counters: counters.clone(),
            scalars,
            loads: vec![],
            lane,
            warp,
        };
        let mut body = Body {
            kernel,
            names: &mut names,
            prelude: &mut prelude,
            ranges,
            wide: BTreeSet::new(),
            out: String::new(),
            depth: 1,
            own,
        };
        body.function(nest, &shared)?;
        let (text, maps) = (body.out, body.own.maps);
        let (arguments, mut params) = params(kernel, &layout, nest.nest);
        let overlap = read_early(kernel, nest.nest)?;
        let mut declared = declarations(kernel, &names, nest.nest, &arguments, overlap.as_deref());
        if let Some(size) = kernel.size.as_ref().filter(|size| has_word(&text, names.var(size.var))) {
            declared.push(format!("int {}", names.var(size.var)));
            params.push(Param::Units(0));
        }
        for m in maps {
            declared.push(format!("const __grid_constant__ tensor_map {}", m.name));
            params.push(Param::TensorMap(m.map));
        }
        let head = head(options, nest, &symbol, &declared.join(", "));
        functions.push(format!("{head} {{\n{text}}}\n"));
        launches.push(Launch {
            symbol,
            grid: nest.grid,
            block: nest.block,
            cluster: nest.cluster,
            dynamic_shared_bytes: if shared.dynamic { u32::try_from(shared.bytes).unwrap_or(u32::MAX) } else { 0 },
            overlap,
            early_units: 1,
            first: launch::first(kernel, nest.nest),
            params,
        });
    }
    let mut prelude = prelude::text(&prelude, options.arch);
    if !prelude.is_empty() {
        prelude.push('\n');
    }
    let source = format!("{}{prelude}{}", comment(options, &launches, &layout), functions.join("\n"));
    Ok(CudaSource {
        arch: options.arch,
        symbol: options.symbol.clone(),
        source,
        launches,
        workspace_bytes: layout.workspace_bytes,
        alignment: alignment(kernel, options.arch),
    })
}

/// What addresses of parameters are multiples of, in bytes.
fn alignment(kernel: &Kernel, arch: Arch) -> u32 {
    let global = |b: BufferId| kernel.buffer(b).scope == Scope::Global;
    let tiles = any(
        &kernel.body,
        |s| matches!(s, Stmt::Gpu(Gpu::Move { dst, src }) if global(dst.buffer) || global(src.buffer)),
    );
    if tiles && arch.has_opaque_fragments() { role::WMMA_ALIGNMENT as u32 } else { VECTOR_BYTES }
}

fn comment(options: &CudaOptions, launches: &[Launch], layout: &Layout<'_>) -> String {
    let mut out = escape::comments(&options.comment);
    let _ = writeln!(out, "// {}; workspace {} bytes", options.arch, layout.workspace_bytes);
    let shape = |s: [u32; 3]| s.map(|n| n.to_string()).join(" x ");
    for l in launches {
        let shared = match l.dynamic_shared_bytes {
            0 => String::new(),
            n => format!(", {n} bytes of dynamic shared memory"),
        };
        let _ = writeln!(out, "// {}: {} blocks of {} threads{shared}", l.symbol, shape(l.grid), shape(l.block));
    }
    out
}

/// The buffers that a launch is given, and what the caller passes for each.
fn params(kernel: &Kernel, layout: &Layout<'_>, nest: &Stmt) -> (Vec<BufferId>, Vec<Param>) {
    // What only the copy engine touches it knows by maps.
    let touched = |b: BufferId| {
        let mut found = false;
        nest.walk(&mut |s| {
            s.own_exprs(&mut |e| found |= e.reads(b));
            found |= match s {
                Stmt::For(_) | Stmt::If { .. } => false,
                Stmt::Gpu(Gpu::TensorLoad { dst, .. }) => dst.buffer == b,
                Stmt::Gpu(Gpu::TensorStore { src, .. }) => src.buffer == b,
                other => other.writes(b) || other.reads(b),
            };
        });
        found
    };
    let params = kernel.params.iter().enumerate().filter(|(_, b)| touched(**b)).map(|(index, b)| {
        let written = nest.writes(*b) && kernel.buffer(*b).access != Access::Read;
        (*b, Param::Buffer { index, name: kernel.buffer(*b).name.clone(), written })
    });
    let workspace = layout.workspace.iter().filter(|(b, _)| touched(**b)).map(|(b, offset)| {
        let buffer = kernel.buffer(*b);
        (*b, Param::Workspace { offset: *offset, bytes: buffer.extent_bytes(), name: buffer.name.clone() })
    });
    params.chain(workspace).unzip()
}

/// The parameters of the function as text.
///
/// `const *__restrict__` says that nobody writes the memory while the kernel runs, so that the compiler may load it by way of
/// the cache for constants, and earlier than it is written to. Of a launch that begins while the one in front of it
/// still runs that holds only for what it reads before its wait (`early`, positions in the kernel's parameters).
fn declarations(
    kernel: &Kernel,
    names: &Names,
    nest: &Stmt,
    arguments: &[BufferId],
    early: Option<&[usize]>,
) -> Vec<String> {
    let settled = |b: BufferId| early.is_none_or(|early| early.iter().any(|at| kernel.params[*at] == b));
    arguments
        .iter()
        .map(|b| {
            let qualifiers = match (nest.writes(*b), settled(*b)) {
                (true, _) => ["", "__restrict__ "],
                (false, true) => ["const ", "__restrict__ "],
                (false, false) => ["const ", ""],
            };
            let [constant, restrict] = qualifiers;
            format!("{constant}{} *{restrict}{}", cuda_type(kernel.buffer(*b).dtype), names.buffer(*b))
        })
        .collect()
}

fn head(options: &CudaOptions, nest: &LaunchBody<'_>, symbol: &str, declarations: &str) -> String {
    let threads: u32 = nest.block.iter().product();
    // Registers can change hands only in a kernel that is compiled for a known number of them.
    let trades = any(std::slice::from_ref(nest.nest), |s| matches!(s, Stmt::Gpu(Gpu::SetMaxRegisters(_))));
    let bounds = match options.min_blocks.or(trades.then_some(1)) {
        Some(n) => format!("{threads}, {n}"),
        None => threads.to_string(),
    };
    let cluster = match nest.cluster {
        [1, 1, 1] => String::new(),
        [x, y, z] => format!("__cluster_dims__({x}, {y}, {z}) "),
    };
    format!("extern \"C\" __global__ void {cluster}__launch_bounds__({bounds}) {symbol}({declarations})")
}
