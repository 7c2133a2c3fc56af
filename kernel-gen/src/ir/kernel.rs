//! Kernels: tables of variables and buffers, and what runs.

use super::{BinOp, Buffer, BufferId, DType, Expr, For, Stmt, Type, UnOp, VarId};
use crate::integer::ceil_div;
use std::collections::BTreeSet;

/// What a variable is called and holds. Names are unique within a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Var {
    /// Name, as printed and as emitted.
    pub name: String,
    /// Its type; loop variables are `i64`.
    pub dtype: DType,
}

/// A function over buffers. See [`crate::ir`] for what it means.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Name of the function.
    pub name: String,
    /// All variables; indexed by [`VarId`].
    pub vars: Vec<Var>,
    /// All buffers; indexed by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// The buffers that the caller passes, in order.
    pub params: Vec<BufferId>,
    /// Present if the caller says how many units its tensors have.
    pub size: Option<Size>,
    /// What runs.
    pub body: Vec<Stmt>,
}

/// A number that the caller passes: of how many units (images, rows) the tensors are that vary in size.
#[derive(Clone, PartialEq, Debug)]
pub struct Size {
    /// The number, 1 at least.
    pub var: VarId,
    /// Its largest value; the shapes of the parameters are for that many units.
    pub most: i64,
    /// The parameters that vary: their first dimension holds the units, of as many rows each.
    pub varying: Vec<BufferId>,
    /// Loops over blocks, over rounds of blocks that stay, or parallel ones, of which only the first iterations run: a later one would
    /// have nothing to do.
    pub first: Vec<(VarId, First)>,
}

/// So many iterations for `n` units: `ceil(ceil(n * per / of) * times / by)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub struct First {
    /// Rows of a unit.
    pub per: i64,
    /// Rows of a tile.
    pub of: i64,
    /// Tasks of a tile of rows.
    pub times: i64,
    /// Tasks of an iteration: 1, except for rounds, where it is the number of blocks, each of which has one task.
    pub by: i64,
}

impl First {
    /// The number of iterations for `units` units.
    pub fn iterations(self, units: i64) -> i64 {
        ceil_div(ceil_div(units * self.per, self.of) * self.times, self.by)
    }

    /// The same as an expression.
    pub fn expr(self, units: Expr) -> Expr {
        let ceil_div = |e: Expr, by: i64| if by == 1 { e } else { (e + (by - 1)).floor_div(by) };
        let tiles = ceil_div(units * self.per, self.of);
        ceil_div(if self.times == 1 { tiles } else { tiles * self.times }, self.by)
    }
}

impl Kernel {
    /// An empty kernel.
    pub fn new(name: impl Into<String>) -> Self {
        Kernel { name: name.into(), vars: vec![], buffers: vec![], params: vec![], size: None, body: vec![] }
    }

    /// Rows of a unit of a tensor that varies in size: of the dimension that holds units, those that each unit takes.
    pub fn rows_a_unit(&self, b: BufferId) -> Option<i64> {
        let size = self.size.as_ref().filter(|size| size.varying.contains(&b))?;
        Some(self.buffer(b).shape[self.units_dim(b)] / size.most)
    }

    /// The dimension of a tensor that varies which holds its units: the first, behind those of one element.
    pub fn units_dim(&self, b: BufferId) -> usize {
        self.buffer(b).shape.iter().position(|extent| *extent != 1).unwrap_or(0)
    }

    /// Of a loop, how many iterations run, if that depends on the number of units.
    pub fn first_of(&self, var: VarId) -> Option<First> {
        self.size.iter().flat_map(|size| &size.first).find(|(of, _)| *of == var).map(|(_, first)| *first)
    }

    /// The same for one number of units, which nothing varies in any more; as it is if nothing does.
    ///
    /// # Panics
    /// If `units` is not between 1 and the kernel's largest number.
    #[must_use]
    pub fn of_units(mut self, units: i64) -> Kernel {
        let Some(Size { var, most, varying, .. }) = self.size.clone() else { return self };
        assert!((1..=most).contains(&units), "a kernel of 1 to {most} units has {units}");
        for b in varying {
            let dim = self.units_dim(b);
            let extent = &mut self.buffer_mut(b).shape[dim];
            *extent = *extent / most * units;
        }
        let body = std::mem::take(&mut self.body).into_iter().map(|s| s.subst(var, &Expr::Int(units))).collect();
        self.body = super::visit::rewrite(body, &mut |s| match s {
            Stmt::For(l) => {
                let extent = self.first_of(l.var).map_or(l.extent, |first| first.iterations(units).min(l.extent));
                vec![Stmt::For(For { extent, ..l })]
            }
            other => vec![other],
        });
        self.size = None;
        self
    }

    /// The variable behind an id.
    pub fn var(&self, v: VarId) -> &Var {
        &self.vars[v.0 as usize]
    }

    /// The buffer behind an id.
    pub fn buffer(&self, b: BufferId) -> &Buffer {
        &self.buffers[b.0 as usize]
    }

    /// The buffer behind an id, to change it.
    pub fn buffer_mut(&mut self, b: BufferId) -> &mut Buffer {
        &mut self.buffers[b.0 as usize]
    }

    /// The buffer called `name`.
    pub fn find_buffer(&self, name: &str) -> Option<BufferId> {
        self.buffers.iter().position(|b| b.name == name).map(|i| BufferId(i as u32))
    }

    /// The variable called `name`.
    pub fn find_var(&self, name: &str) -> Option<VarId> {
        self.vars.iter().position(|v| v.name == name).map(|i| VarId(i as u32))
    }

    /// A new `i64` variable whose name starts with `hint` and is unique.
    pub fn fresh_var(&mut self, hint: &str) -> VarId {
        self.fresh_typed_var(hint, DType::I64)
    }

    /// A new variable of a given type.
    pub fn fresh_typed_var(&mut self, hint: &str, dtype: DType) -> VarId {
        let name = self.unique(hint);
        self.vars.push(Var { name, dtype });
        VarId(self.vars.len() as u32 - 1)
    }

    /// Adds a buffer, making its name unique.
    pub fn add_buffer(&mut self, mut buffer: Buffer) -> BufferId {
        buffer.name = self.unique(&buffer.name);
        self.buffers.push(buffer);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// `hint`, or `hint_1`, `hint_2`, ... : the first that is not taken.
    fn unique(&self, hint: &str) -> String {
        let names = || self.vars.iter().map(|v| &v.name).chain(self.buffers.iter().map(|b| &b.name));
        if !names().any(|n| n == hint) {
            return hint.to_string();
        }
        // Unrolled loops make thousands of one name: all are looked at once.
        let number = |name: &String| {
            let digits = name.strip_prefix(hint)?.strip_prefix('_')?;
            // `_01` and `_+1` are other names than `_1`.
            if digits.starts_with(['0', '+']) { None } else { digits.parse::<u64>().ok() }
        };
        let taken: BTreeSet<u64> = names().filter_map(number).collect();
        let free = (1..).zip(&taken).find(|(i, n)| i != *n).map_or(taken.len() as u64 + 1, |(i, _)| i);
        format!("{hint}_{free}")
    }

    /// Whether the buffer is a parameter.
    pub fn is_param(&self, b: BufferId) -> bool {
        self.params.contains(&b)
    }
}

impl Expr {
    /// Its type in `kernel`. A vector operand makes the whole expression a vector.
    pub fn ty(&self, kernel: &Kernel) -> Type {
        let widest = |a: Type, b: Type| Type { dtype: a.dtype, lanes: a.lanes.max(b.lanes) };
        match self {
            Expr::Int(_) => Type::scalar(DType::I64),
            Expr::Float(_, d) => Type::scalar(*d),
            Expr::Var(v) => Type::scalar(kernel.var(*v).dtype),
            Expr::Binary(op, a, b) => {
                let t = widest(a.ty(kernel), b.ty(kernel));
                match op {
                    BinOp::Dot => Type { dtype: DType::I32, lanes: t.lanes },
                    op if op.is_predicate() => Type { dtype: DType::Bool, lanes: t.lanes },
                    _ => t,
                }
            }
            Expr::Unary(UnOp::Flip, a) => {
                let t = a.ty(kernel);
                Type { dtype: t.dtype.flipped().unwrap_or(t.dtype), ..t }
            }
            Expr::Unary(UnOp::Even | UnOp::Odd, a) => Type { dtype: DType::I16x2, ..a.ty(kernel) },
            Expr::Unary(_, a) => a.ty(kernel),
            Expr::Select(c, a, b) => {
                let t = widest(a.ty(kernel), b.ty(kernel));
                Type { dtype: t.dtype, lanes: t.lanes.max(c.ty(kernel).lanes) }
            }
            Expr::Cast(d, a) => Type { dtype: *d, lanes: a.ty(kernel).lanes },
            Expr::Load(b, idx) => Type {
                dtype: kernel.buffer(*b).dtype.compute(),
                lanes: idx.iter().map(|i| i.ty(kernel).lanes).max().unwrap_or(1),
            },
            Expr::Ramp { lanes, .. } => Type { dtype: DType::I64, lanes: *lanes },
            Expr::Broadcast(a, lanes) => Type { dtype: a.ty(kernel).dtype, lanes: *lanes },
        }
    }
}
