//! Tensor intrinsics: what [`tensorize`](super::tensorize) puts in the place of a loop nest.
//!
//! An intrinsic is declared by two small kernels over the same parameters, its operands:
//!
//! * The *meaning* is one nest of loops around one statement. Shapes of the operands are the tile sizes; their types and
//!   scopes are those that the hardware takes.
//! * What is *emitted* in place of the nest: any statements of the IR on the same operands.
//! * A sum may also have a *start*: what fills the accumulator before the first product.
//!
//! ```
//! use kernel_gen::ir::parse::parse;
//! use kernel_gen::schedule::Intrinsic;
//! let operands = "param c: f32[16, 8] fragment.warp readwrite
//!   param a: f16[16, 16] fragment.warp read
//!   param b: f16[16, 8] fragment.warp read";
//! let kernel = |body: &str| parse(&format!("kernel my_mma {{\n{operands}\n{body}\n}}\n"));
//! let meaning = kernel(
//!     "for i in 0..16 { for j in 0..8 { for k in 0..16 {
//!        c[i, j] += a[i, k] * b[k, j] init 0.0f32 over (k)
//!      } } }",
//! )?;
//! let emitted = kernel("mma.warp c[0: 16, 0: 8] += a[0: 16, 0: 16] * b[0: 16, 0: 8]")?;
//! let start = kernel("fill c[0: 16, 0: 8] = 0.0f32")?;
//! let my_mma = Intrinsic::new(meaning, emitted)?.with_start(start)?;
//! assert_eq!(my_mma.name(), "my_mma");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is emitted are statements and not text of CUDA. The verifier, the interpreter and the emitters know what they do,
//! so a kernel with a wrong intrinsic is found like any other wrong kernel: run it in the interpreter before and after.
//!
//! [`wmma`] has the four operations of tensor cores.

use super::error::{Reason, ScheduleError};
use super::nest::perfect_nest;
use crate::ir::{BufferId, Expr, For, Kernel, LoopKind, ReduceOp, Stmt, VarId};

/// A unit of computation that replaces a nest of scalar loops. See the module's text.
#[derive(Clone, PartialEq, Debug)]
pub struct Intrinsic {
    meaning: Kernel,
    emitted: Kernel,
    start: Option<Kernel>,
}

/// The nest of a meaning, taken apart.
pub(super) struct Meaning<'a> {
    /// Its loops, outermost first.
    pub(super) loops: Vec<&'a For>,
    /// The operand that it writes, and where.
    pub(super) written: (BufferId, &'a [Expr]),
    /// What is stored or added.
    pub(super) value: &'a Expr,
    /// The operator, the first value and the reduce loops of a sum.
    pub(super) sum: Option<(ReduceOp, &'a Expr, &'a [VarId])>,
}

impl Intrinsic {
    /// An intrinsic of that meaning. Its name is the meaning's.
    ///
    /// # Errors
    ///
    /// The meaning is not one nest of serial loops around a store or a sum that indexes each operand by loop variables,
    /// or the two kernels have other parameters.
    pub fn new(meaning: Kernel, emitted: Kernel) -> Result<Intrinsic, ScheduleError> {
        let made = Intrinsic { meaning, emitted, start: None };
        made.check_meaning().map_err(|why| made.refuse(why))?;
        made.same_operands(&made.emitted, "what is emitted").map_err(|why| made.refuse(why))?;
        Ok(made)
    }

    /// The same with a start: statements that fill the accumulator with the first value of the sum.
    ///
    /// # Errors
    ///
    /// The meaning is no sum, or the start has other parameters.
    pub fn with_start(self, start: Kernel) -> Result<Intrinsic, ScheduleError> {
        self.same_operands(&start, "the start").map_err(|why| self.refuse(why))?;
        if self.meaning().is_none_or(|m| m.sum.is_none()) {
            return Err(self.refuse("it has a start, but its meaning is not a sum".to_string()));
        }
        Ok(Intrinsic { start: Some(start), ..self })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.meaning.name
    }

    /// What it computes, as loops.
    pub fn meaning_kernel(&self) -> &Kernel {
        &self.meaning
    }

    /// The statements that compute it.
    pub fn emitted(&self) -> &Kernel {
        &self.emitted
    }

    /// The statements that begin its sum.
    pub fn start(&self) -> Option<&Kernel> {
        self.start.as_ref()
    }

    fn refuse(&self, why: String) -> ScheduleError {
        let subject = format!("`{}`", self.name());
        ScheduleError { primitive: "intrinsic", subject, reason: Reason::BadIntrinsic(why) }
    }

    /// The meaning, taken apart; always there once [`Intrinsic::new`] has passed it.
    pub(super) fn meaning(&self) -> Option<Meaning<'_>> {
        let [nest] = &self.meaning.body[..] else { return None };
        let (loops, conditions, leaf) = perfect_nest(nest)?;
        if !conditions.is_empty() {
            return None;
        }
        match leaf {
            Stmt::Store { buffer, indices, value } => {
                Some(Meaning { loops, written: (*buffer, indices), value, sum: None })
            }
            Stmt::Reduce { buffer, indices, op, init, value, over } => {
                Some(Meaning { loops, written: (*buffer, indices), value, sum: Some((*op, init, over)) })
            }
            _ => None,
        }
    }

    fn check_meaning(&self) -> Result<(), String> {
        let k = &self.meaning;
        let m = self.meaning().ok_or("its meaning is not one nest of loops around one store or sum")?;
        if let Some(l) = m.loops.iter().find(|l| l.kind != LoopKind::Serial) {
            return Err(format!(
                "loop `{}` of its meaning is {}; serial loops say what it is",
                k.var(l.var).name,
                l.kind.name()
            ));
        }
        if let Some((_, _, over)) = m.sum
            && let Some(v) = over.iter().find(|v| !m.loops.iter().any(|l| l.var == **v))
        {
            return Err(format!("its meaning is summed over `{}`, which is no loop of it", k.var(*v).name));
        }
        let mut accesses = vec![m.written];
        m.value.walk(&mut |e| {
            if let Expr::Load(b, indices) = e {
                accesses.push((*b, indices));
            }
        });
        for p in &k.params {
            let name = &k.buffer(*p).name;
            let mut of = accesses.iter().filter(|(b, _)| b == p);
            let (Some((_, indices)), None) = (of.next(), of.next()) else {
                return Err(format!("its meaning does not use operand `{name}` exactly once"));
            };
            for (d, (index, extent)) in indices.iter().zip(&k.buffer(*p).shape).enumerate() {
                let walked = match index {
                    Expr::Var(v) => m.loops.iter().find(|l| l.var == *v).is_some_and(|l| l.extent == *extent),
                    other => *extent == 1 && other.as_int() == Some(0),
                };
                if !walked {
                    return Err(format!(
                        "dimension {d} of operand `{name}` is not walked by a loop of {extent} iterations from end to end"
                    ));
                }
            }
        }
        if accesses.len() != k.params.len() {
            return Err("its meaning uses other memory than its operands".to_string());
        }
        match m.loops.iter().find(|l| !accesses.iter().any(|(_, i)| i.contains(&Expr::Var(l.var)))) {
            Some(l) => Err(format!("loop `{}` of its meaning walks no operand", k.var(l.var).name)),
            None => Ok(()),
        }
    }

    fn same_operands(&self, other: &Kernel, what: &str) -> Result<(), String> {
        let operands = |k: &Kernel| -> Vec<String> {
            let text = |b: &BufferId| {
                let b = k.buffer(*b);
                format!("{}: {}{:?} {}", b.name, b.dtype, b.shape, b.scope)
            };
            k.params.iter().map(text).collect()
        };
        let (own, others) = (operands(&self.meaning), operands(other));
        if own == others {
            return Ok(());
        }
        Err(format!("its operands are ({}), and {what} has ({})", own.join(", "), others.join(", ")))
    }
}

pub mod wmma {
    //! The four operations of tensor cores on tiles of a warp: fill, load, multiply and store.
    //!
    //! A tile is `m x n x k`: [`M16N16K16`], the shape of `wmma`, or any other whose rows and depth are multiples of 16 and
    //! whose columns are one of 8, such as `[16, 8, 16]`, the shape of one `mma.sync`. Operands are `f16` or `bf16`, sums
    //! `f32` or (of `f16`) `f16`. Sums in `f16` are rounded after each tile and not after each product.
    //!
    //! The statements do not depend on the architecture. From compute capability 7.5 on they are emitted as `ldmatrix` and
    //! `mma.sync`, and epilogues may visit the sums in their registers. On 7.0 they are `wmma.load`, `wmma.mma` and
    //! `wmma.store`: tiles are whole numbers of [`M16N16K16`], operands `f16`, and what becomes of a sum is computed from memory.

    use super::Intrinsic;
    use crate::ir::parse::parse;
    use crate::ir::{DType, Kernel, Scope};
    use crate::schedule::{Reason, ScheduleError};

    /// Rows, columns and depth of a tile.
    pub type Shape = [i64; 3];

    /// The shape of `wmma::mma_sync` in the CUDA C++ API, and in the tutorials.
    pub const M16N16K16: Shape = [16, 16, 16];

    fn kernel(name: &str, operands: &[String], body: &str) -> Result<Kernel, ScheduleError> {
        let params: String = operands.iter().map(|o| format!("  param {o}\n")).collect();
        parse(&format!("kernel {name} {{\n{params}{body}\n}}\n")).map_err(|e| ScheduleError {
            primitive: "intrinsic",
            subject: format!("`{name}`"),
            reason: Reason::BadIntrinsic(e.to_string()),
        })
    }

    /// Sums start from this, in the type that `f16` and `f32` are computed in.
    const ZERO: &str = "0.0f32";

    /// Refuses types that tensor cores do not have in these roles.
    fn fits(name: &str, what: &str, dtype: DType, known: &[DType]) -> Result<(), ScheduleError> {
        if known.contains(&dtype) {
            return Ok(());
        }
        let known: Vec<&str> = known.iter().map(|d| d.name()).collect();
        Err(ScheduleError {
            primitive: "intrinsic",
            subject: format!("`{name}`"),
            reason: Reason::BadIntrinsic(format!("tensor cores have no {what} in {dtype}; use {}", known.join(" or "))),
        })
    }

    const OPERANDS: [DType; 2] = [DType::F16, DType::Bf16];
    const SUMS: [DType; 2] = [DType::F32, DType::F16];

    /// `c += a * b` on fragments; the sum begins with `fill`.
    ///
    /// # Errors
    ///
    /// Tensor cores do not multiply `dtype` into `sums`.
    pub fn mma([m, n, k]: Shape, dtype: DType, sums: DType) -> Result<Intrinsic, ScheduleError> {
        let operands = [
            format!("c: {sums}[{m}, {n}] fragment.warp readwrite"),
            format!("a: {dtype}[{m}, {k}] fragment.warp read"),
            format!("b: {dtype}[{k}, {n}] fragment.warp read"),
        ];
        let name = format!("mma_sync_m{m}n{n}k{k}_{dtype}_{sums}");
        fits(&name, "operands", dtype, &OPERANDS)?;
        // Those of bf16 would hold no more than it, and are not there.
        fits(&name, &format!("sums of {dtype}"), sums, if dtype == DType::F16 { &SUMS } else { &SUMS[..1] })?;
        let meaning = format!(
            "for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
               c[i, j] += a[i, k] * b[k, j] init {ZERO} over (k)
             }} }} }}"
        );
        let emitted = format!("mma.warp c[0: {m}, 0: {n}] += a[0: {m}, 0: {k}] * b[0: {k}, 0: {n}]");
        let start = format!("fill c[0: {m}, 0: {n}] = {ZERO}");
        Intrinsic::new(kernel(&name, &operands, &meaning)?, kernel(&name, &operands, &emitted)?)?
            .with_start(kernel(&name, &operands, &start)?)
    }

    /// A tile of memory in `from` becomes a fragment: the left operand of a product with rows `m x k`, the right one
    /// with `k x n`, sums with `m x n`.
    ///
    /// # Errors
    ///
    /// Tensor cores have no fragments of `dtype`.
    pub fn load(tile: [i64; 2], dtype: DType, from: Scope) -> Result<Intrinsic, ScheduleError> {
        fits("load_matrix_sync", "fragments", dtype, &[DType::F16, DType::Bf16, DType::F32])?;
        let [of, to] = [format!("{dtype}"), format!("{dtype}")];
        copy("load_matrix_sync", tile, (&of, from), (&to, WARP))
    }

    /// A fragment of sums becomes a tile of memory in `to`, converted to `dtype`. Compute capability 7.0 does not convert.
    ///
    /// # Errors
    ///
    /// Tensor cores do not add up in `sums`.
    pub fn store(tile: [i64; 2], sums: DType, dtype: DType, to: Scope) -> Result<Intrinsic, ScheduleError> {
        fits("store_matrix_sync", "sums", sums, &SUMS)?;
        let [of, into] = [format!("{sums}"), format!("{dtype}")];
        copy("store_matrix_sync", tile, (&of, WARP), (&into, to))
    }

    /// Every element of a fragment of sums is zero: the start of a sum that stands by itself.
    ///
    /// # Errors
    ///
    /// Tensor cores do not add up in `sums`.
    pub fn fill([m, n]: [i64; 2], sums: DType) -> Result<Intrinsic, ScheduleError> {
        let operands = [format!("c: {sums}[{m}, {n}] fragment.warp write")];
        let name = format!("fill_fragment_m{m}n{n}_{sums}");
        fits(&name, "sums", sums, &SUMS)?;
        let meaning = format!("for i in 0..{m} {{ for j in 0..{n} {{ c[i, j] = {ZERO} }} }}");
        let emitted = format!("fill c[0: {m}, 0: {n}] = {ZERO}");
        Intrinsic::new(kernel(&name, &operands, &meaning)?, kernel(&name, &operands, &emitted)?)
    }

    const WARP: Scope = Scope::Fragment(crate::ir::Unit::Warp);

    fn copy(
        what: &str,
        [m, n]: [i64; 2],
        (from, of): (&str, Scope),
        (into, to): (&str, Scope),
    ) -> Result<Intrinsic, ScheduleError> {
        let operands = [format!("dst: {into}[{m}, {n}] {to} write"), format!("src: {from}[{m}, {n}] {of} read")];
        let name = format!("{what}_m{m}n{n}_{from}");
        let meaning = format!("for i in 0..{m} {{ for j in 0..{n} {{ dst[i, j] = src[i, j] }} }}");
        let emitted = format!("move dst[0: {m}, 0: {n}] = src[0: {m}, 0: {n}]");
        Intrinsic::new(kernel(&name, &operands, &meaning)?, kernel(&name, &operands, &emitted)?)
    }
}
