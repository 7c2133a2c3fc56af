//! CUDA C++ as a dialect of the printer, and the body of one function.

use super::arch::Arch;
use super::counters::Counter;
use super::launch::{LaunchBody, Shared};
use super::prelude::{Helper, cuda_type};
use super::ptx::Ptx;
use super::role::Role;
use super::scalars::Elements;
use super::tensor_map::NamedMap;
use crate::emit::EmitError;
use crate::emit::clike::dialect::{Dialect, Printer};
use crate::emit::clike::prelude::Common;
use crate::emit::clike::text::strength::{PRIMARY, SUM};
use crate::emit::clike::text::{Text, has_word};
use crate::ir::{Axis, Barrier, BinOp, BufferId, DType, Expr, For, LoopKind, Scope, Stmt, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// Emits the body of one function.
pub(super) type Body<'a> = Printer<'a, Cuda>;

/// What the CUDA emitter alone keeps while it emits a function.
pub(super) struct Cuda {
    pub(super) arch: Arch,
    /// The shape of the launch.
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) cluster: [u32; 3],
    /// Whether its threads may tell each other something by way of global memory.
    pub(super) exchanges: bool,
    /// Whether blocks store in each other's shared memory.
    pub(super) stores_at: bool,
    /// Buffers in the workspace.
    pub(super) workspace: BTreeMap<BufferId, i64>,
    /// What the kernel's fragments are for.
    pub(super) roles: BTreeMap<BufferId, Role>,
    /// Sums that have been declared.
    pub(super) live_sums: BTreeSet<BufferId>,
    /// The sums of a warpgroup's products that no `wait mma` of these statements has waited for: of each group that is committed, the
    /// oldest first, and of the open one.
    pub(super) groups: Vec<BTreeSet<BufferId>>,
    pub(super) open_group: BTreeSet<BufferId>,
    /// Whether the next product of a warpgroup makes its sums, and does not add to them.
    pub(super) from_zero: bool,
    /// What is read behind the last `wait mma`, before the next.
    pub(super) read_next: BTreeSet<BufferId>,
    /// Maps of the boxes that were met.
    pub(super) maps: Vec<NamedMap>,
    /// Private integers that are `int`, whatever the kernel says.
    pub(super) counters: BTreeMap<BufferId, Counter>,
    /// Private arrays whose elements are variables.
    pub(super) scalars: BTreeMap<BufferId, Elements>,
    /// Lanes that the statement at hand has loaded.
    pub(super) loads: Vec<Loaded>,
    /// The thread's warp in its warpgroup, which is declared at the top if something uses it.
    pub(super) warp: VarId,
    /// The lane of the thread in its warp, likewise.
    pub(super) lane: VarId,
}

/// A lane that has been loaded already.
pub(super) struct Loaded {
    pub(super) buffer: BufferId,
    pub(super) indices: Vec<Expr>,
    /// As an operand, and as the buffer holds it.
    pub(super) value: Text,
    pub(super) held: String,
}

impl Dialect for Cuda {
    type Helper = Helper;

    const LANGUAGE: &'static str = "CUDA";
    const NARROW: bool = true;
    const BOOLEAN: &'static str = "bool";
    const TRUTHS: [&'static str; 2] = ["false", "true"];
    const PLAIN_ZEROS: bool = true;
    const INCREMENT: [&'static str; 2] = ["++", ""];

    fn element_type(dtype: DType) -> &'static str {
        cuda_type(dtype)
    }

    fn helper(common: Common) -> Helper {
        match common {
            Common::FloorDiv { wide } => Helper::FloorDiv { wide },
            Common::FloorMod { wide } => Helper::FloorMod { wide },
            Common::Min(d) if d.is_int() => Helper::Min { wide: d == DType::I64 },
            Common::Max(d) if d.is_int() => Helper::Max { wide: d == DType::I64 },
            Common::Min(d) => Helper::FloatMin(d),
            Common::Max(d) => Helper::FloatMax(d),
            Common::Widen(d) => Helper::Widen(d),
            Common::Narrow(d) => Helper::Narrow(d),
            Common::Dot4(signed) => Helper::Dot4(signed),
            Common::Dot2 => Helper::Dot2,
        }
    }

    fn rounded(p: &mut Body<'_>, value: &Expr) -> Result<Text, EmitError> {
        let text = match value {
            Expr::Binary(BinOp::Mul, a, b) => format!("__fmul_rn({}, {})", p.scalar(a)?.text, p.scalar(b)?.text),
            // Adding a negative zero changes nothing.
            value => format!("__fadd_rn({}, -0.0f)", p.scalar(value)?.text),
        };
        Ok(Text::new(text, PRIMARY))
    }

    /// Without headers there are no words for what is not finite.
    fn not_finite(value: f64, dtype: DType) -> Text {
        let text = match dtype {
            DType::F64 => format!("__longlong_as_double({:#x}ULL)", value.to_bits()),
            _ => format!("__int_as_float({:#x})", (value as f32).to_bits()),
        };
        Text::new(text, PRIMARY)
    }

    fn round_tf32(p: &mut Body<'_>) -> Result<String, EmitError> {
        Ok(p.ptx(Ptx::RoundTf32))
    }

    fn exp2(p: &mut Body<'_>) -> Option<String> {
        Some(p.ptx(Ptx::Exp2))
    }

    /// The bits of 2^23 and those of a smaller natural number are the `f32` that is their sum, so a logical operation and a difference,
    /// which is exact, stand for a conversion. That takes twice as long as either.
    fn small_less(natural: &Text, less: f64) -> Option<Text> {
        let sum = format!("__int_as_float(0x4b000000 | {})", natural.at(PRIMARY));
        Some(Text::new(format!("{sum} - {}.0f", 8_388_608.0 + less), SUM))
    }

    fn element(p: &mut Body<'_>, b: BufferId, indices: &[Expr]) -> Result<String, EmitError> {
        p.element(b, indices)
    }

    fn loaded(p: &Body<'_>, b: BufferId, indices: &[Expr]) -> Option<Text> {
        p.loaded(b, indices).map(|l| l.value.clone())
    }

    fn is_unread(p: &Body<'_>, b: BufferId, indices: &[Expr]) -> Result<bool, EmitError> {
        p.is_unread(b, indices)
    }

    fn stored(p: &mut Body<'_>, b: BufferId, value: &Expr) -> Result<String, EmitError> {
        if let Some(text) = p.verbatim(b, value)? {
            return Ok(text);
        }
        let text = p.scalar(value)?;
        Ok(p.narrowed(b, text))
    }

    fn vector_update(p: &mut Body<'_>, s: &Stmt) -> Result<(), EmitError> {
        p.vector_update(s)
    }

    fn statements(p: &mut Body<'_>, stmts: &[Stmt]) -> Result<(), EmitError> {
        p.statements(stmts)
    }

    fn special(p: &mut Body<'_>, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::Alloc(b) => p.alloc(*b)?,
            Stmt::Barrier(Barrier::Block) => p.line("__syncthreads();"),
            Stmt::Barrier(Barrier::Warp) => p.line("__syncwarp();"),
            Stmt::Gpu(g) => p.gpu(g)?,
            Stmt::Transpose { .. } => {
                return Err(EmitError::NotLowered { what: "a transpose statement".into(), pass: "expand_transposes" });
            }
            _ => {}
        }
        Ok(())
    }

    /// Each thread runs the iteration that is its own.
    fn hardware_loop(p: &mut Body<'_>, l: &For) -> Result<(), EmitError> {
        let (source, launched) = match l.kind {
            LoopKind::Grid(a) => match p.own.cluster[a as usize] {
                1 => (format!("(int)blockIdx.{}", letter(a)), p.own.grid[a as usize]),
                // Blocks of a cluster are neighbours in the grid.
                n => (format!("(int)blockIdx.{} / {n}", letter(a)), p.own.grid[a as usize] / n),
            },
            LoopKind::Cluster(a) => {
                let n = p.own.cluster[a as usize];
                (format!("(int)blockIdx.{} % {n}", letter(a)), n)
            }
            LoopKind::Thread(a) => (format!("(int)threadIdx.{}", letter(a)), p.own.block[a as usize]),
            _ => return Ok(()),
        };
        if l.extent < i64::from(launched) {
            p.braces(&format!("if ({source} < {}) {{", l.extent), |p| p.own_iteration(l, &source))
        } else {
            p.own_iteration(l, &source)
        }
    }

    fn advice(p: &mut Body<'_>, l: &For) -> Result<Option<String>, EmitError> {
        let var = p.names.var(l.var);
        match l.kind {
            LoopKind::Parallel => Err(EmitError::CpuLoop { var: var.to_string() }),
            LoopKind::FragmentRow | LoopKind::FragmentCol => Err(EmitError::in_cuda(format!("fragment loop `{var}`"))),
            LoopKind::Unrolled => Ok(Some("#pragma unroll".into())),
            _ => Ok(p.indexes_private(l).then(|| "#pragma unroll".into())),
        }
    }

    fn enter_branch(p: &mut Body<'_>) {
        // What a counter was when the condition was tested it is not for long.
        p.own.counters.values().for_each(|c| p.ranges.insert(c.var, 0, c.most));
    }
}

/// The axis as a member of `threadIdx`.
fn letter(axis: Axis) -> char {
    ['x', 'y', 'z'][axis as usize]
}

impl Body<'_> {
    pub(super) fn function(&mut self, nest: &LaunchBody<'_>, shared: &Shared) -> Result<(), EmitError> {
        if shared.dynamic {
            let alignment = shared.arrays.iter().map(|(.., a)| *a).max().unwrap_or(16);
            self.line(&format!("extern __shared__ __align__({alignment}) unsigned char shared_memory[];"));
        }
        for (b, offset, alignment) in &shared.arrays {
            let buffer = self.kernel.buffer(*b);
            let ty = if buffer.scope == Scope::Mbarrier { "unsigned long long" } else { cuda_type(buffer.dtype) };
            let name = self.names.buffer(*b);
            let line = if shared.dynamic {
                format!("{ty} *const {name} = ({ty} *)(shared_memory + {offset});")
            } else {
                format!("__shared__ __align__({alignment}) {ty} {name}[{}];", buffer.extent_elements().max(1))
            };
            self.line(&line);
        }
        for (var, value) in &nest.lets {
            self.let_(*var, value)?;
        }
        let top = self.out.len();
        self.block(std::slice::from_ref(nest.nest))?;
        if has_word(&self.out[top..], self.names.var(self.own.lane)) {
            self.out.insert_str(top, &self.lane_declaration(self.own.lane));
        }
        if has_word(&self.out[top..], self.names.var(self.own.warp)) {
            self.out.insert_str(top, &self.warp_declaration(self.own.warp));
        }
        Ok(())
    }

    /// The lvalue of one element.
    pub(super) fn element(&mut self, b: BufferId, idx: &[Expr]) -> Result<String, EmitError> {
        if self.own.scalars.contains_key(&b) {
            return self.scalar_element(b, idx)?.ok_or_else(|| {
                let what = format!("a read of an element of `{}` that nothing reads", self.kernel.buffer(b).name);
                EmitError::in_cuda(what)
            });
        }
        if matches!(self.kernel.buffer(b).scope, Scope::Fragment(_)) {
            return self.sums_element(b, idx);
        }
        let offset = self.offset(b, idx);
        self.single(b, &offset)
    }

    /// The variable that is an element of a private array; none where nothing reads it, so that nobody needs to store it.
    pub(super) fn scalar_element(&self, b: BufferId, idx: &[Expr]) -> Result<Option<String>, EmitError> {
        let elements = self.own.scalars.get(&b).map_or(&[][..], |e| e);
        let at = self.offset(b, idx).as_int().and_then(|at| elements.get(usize::try_from(at).ok()?));
        let constant =
            || EmitError::in_cuda(format!("an index of `{}` that is not a constant here", self.kernel.buffer(b).name));
        Ok(at.ok_or_else(constant)?.clone())
    }

    /// Whether an element is one that nothing reads.
    pub(super) fn is_unread(&self, b: BufferId, idx: &[Expr]) -> Result<bool, EmitError> {
        Ok(self.own.scalars.contains_key(&b) && self.scalar_element(b, idx)?.is_none())
    }

    /// The place of an element under the address map of its buffer.
    pub(super) fn swizzled(&mut self, b: BufferId, offset: String) -> String {
        let buffer = self.kernel.buffer(b);
        match buffer.swizzle {
            0 => offset,
            row => {
                let helper = Helper::Swizzle { row, element: buffer.dtype.bytes() as u32 };
                format!("{}({offset})", self.prelude.call(helper))
            }
        }
    }

    /// Notes an instruction and gives its name.
    pub(super) fn ptx(&mut self, p: Ptx) -> String {
        self.prelude.call(Helper::Ptx(p))
    }

    /// Whether the buffer is memory that one access can move several elements of.
    pub(super) fn is_memory(&self, b: BufferId) -> bool {
        matches!(self.kernel.buffer(b).scope, Scope::Global | Scope::Shared)
    }
}
