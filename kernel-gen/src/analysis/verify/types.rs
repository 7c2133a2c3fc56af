//! Types of expressions and statements.

use crate::ir::{BinOp, BufferId, DType, Expr, Kernel, Stmt, Tile, Type, UnOp, VarId, print};

/// Knows the lanes of vector `let`s, which the table of variables does not hold.
pub(super) struct Types<'k> {
    kernel: &'k Kernel,
    lanes: Vec<u16>,
    /// The most that an integer variable can be, either sign.
    most: Vec<u128>,
}

/// What integer arithmetic must stay below, so that nothing wraps and analyses may add a little.
const LARGEST: u128 = 1 << 62;

impl<'k> Types<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Types<'k> {
        Types { kernel, lanes: vec![1; kernel.vars.len()], most: vec![1; kernel.vars.len()] }
    }

    /// Checks the statement's own expressions; `Err` says what does not agree. A `let` is noted with its lanes.
    pub(super) fn statement(&mut self, s: &Stmt) -> Result<(), String> {
        let mut overflow = Ok(());
        s.own_exprs(&mut |e| {
            if overflow.is_ok() {
                overflow = self.fits(e);
            }
        });
        overflow?;
        match s {
            Stmt::For(_) | Stmt::Alloc(_) | Stmt::Barrier(_) | Stmt::Gpu(_) => Ok(()),
            Stmt::Store { buffer, indices, value } => self.stores(*buffer, indices, &[value]),
            Stmt::Reduce { buffer, indices, init, value, .. } => {
                if self.kernel.buffer(*buffer).dtype == DType::Bool {
                    return Err("a truth value cannot be reduced".to_string());
                }
                if self.kernel.buffer(*buffer).dtype.is_word() {
                    return Err("a word of several integers cannot be reduced".to_string());
                }
                self.stores(*buffer, indices, &[init, value])
            }
            Stmt::If { cond, .. } => match self.of(cond)? {
                Type { dtype: DType::Bool, lanes: 1 } => Ok(()),
                t => Err(format!("the condition {} has type {t}, not bool", print::expr(self.kernel, cond))),
            },
            Stmt::Let { var, value } => {
                let (v, t) = (self.kernel.var(*var), self.of(value)?);
                self.lanes[var.0 as usize] = t.lanes;
                self.most[var.0 as usize] = self.magnitude(value);
                if v.dtype == t.dtype || v.dtype.compute() == t.dtype {
                    return Ok(());
                }
                Err(format!("{} is declared {}, but its value has type {t}", v.name, v.dtype))
            }
            Stmt::Transpose { dst, src } => {
                if [dst, src].iter().any(|t| t.extents.iter().rev().skip(2).any(|n| *n != 1)) {
                    return Err("a transposed tile has extent 1 in all but its last two dimensions".to_string());
                }
                let [(n, m), (sm, sn)] = [self.last_two(dst)?, self.last_two(src)?];
                if dst.buffer == src.buffer {
                    return Err("transpose reads and writes one buffer".to_string());
                }
                if (n, m) == (sn, sm) { Ok(()) } else { Err(format!("transpose of {sm}x{sn} gives not {n}x{m}")) }
            }
        }
    }

    /// Notes the extent of a loop.
    pub(super) fn bind_loop(&mut self, var: VarId, extent: i64) {
        self.most[var.0 as usize] = u128::from(extent.unsigned_abs()).max(1);
    }

    /// Whether integer arithmetic in the expression stays far from the ends of `i64`.
    fn fits(&self, e: &Expr) -> Result<(), String> {
        let mut largest = 0;
        e.walk(&mut |e| largest = largest.max(self.magnitude(e)));
        if largest < LARGEST { Ok(()) } else { Err(format!("{} may overflow an i64", print::expr(self.kernel, e))) }
    }

    /// A bound of an integer expression's magnitude. Constants and variables count as 1 at least, so that it bounds
    /// the coefficients of sums too. Floats and truth values count as 1.
    fn magnitude(&self, e: &Expr) -> u128 {
        match e {
            Expr::Int(v) => u128::from(v.unsigned_abs()).max(1),
            Expr::Var(v) => self.most[v.0 as usize],
            Expr::Float(..) => 1,
            Expr::Cast(dtype, _) if dtype.is_float() => 1,
            Expr::Load(b, _) if self.kernel.buffer(*b).dtype.is_byte() => 1 << 8,
            Expr::Load(b, _) if self.kernel.buffer(*b).dtype.is_int() => 1 << 40,
            Expr::Load(..) => 1,
            Expr::Unary(_, a) | Expr::Broadcast(a, _) | Expr::Cast(_, a) => self.magnitude(a),
            Expr::Ramp { base, stride, lanes } => {
                self.magnitude(base).saturating_add(u128::from(stride.unsigned_abs()) * u128::from(*lanes))
            }
            Expr::Select(_, a, b) => self.magnitude(a).max(self.magnitude(b)),
            Expr::Binary(op, a, b) => {
                let (x, y) = (self.magnitude(a), self.magnitude(b));
                match op {
                    // Comparisons subtract their sides.
                    BinOp::Add | BinOp::Sub | BinOp::Lt | BinOp::Le | BinOp::Eq | BinOp::Ne => x.saturating_add(y),
                    BinOp::Mul => x.saturating_mul(y),
                    // Two products of 16 bits; four of bytes are less.
                    BinOp::Dot => 1 << 31,
                    BinOp::Push => 1,
                    _ => x.max(y),
                }
            }
        }
    }

    fn stores(&self, buffer: BufferId, indices: &[Expr], values: &[&Expr]) -> Result<(), String> {
        let b = self.kernel.buffer(buffer);
        let lanes = self.indices(indices)?;
        for value in values {
            let t = self.of(value)?;
            let same_class = b.dtype.is_float() == t.dtype.is_float()
                && (b.dtype == DType::Bool) == (t.dtype == DType::Bool)
                && (b.dtype == t.dtype || !b.dtype.is_word() && !t.dtype.is_word());
            if !same_class {
                return Err(format!("a value of type {t} is stored to {}, which holds {}", b.name, b.dtype));
            }
            if t.lanes != 1 && t.lanes != lanes {
                return Err(format!("a value of {} lanes is stored to {lanes} elements of {}", t.lanes, b.name));
            }
        }
        Ok(())
    }

    /// Lanes of an access.
    fn indices(&self, indices: &[Expr]) -> Result<u16, String> {
        let mut lanes = 1;
        for i in indices {
            let t = self.of(i)?;
            if !t.dtype.is_int() {
                return Err(format!("the index {} has type {t}", print::expr(self.kernel, i)));
            }
            if t.lanes > 1 && lanes > 1 {
                return Err("two indices of one access are vectors".to_string());
            }
            lanes = lanes.max(t.lanes);
        }
        Ok(lanes)
    }

    fn last_two(&self, t: &Tile) -> Result<(i64, i64), String> {
        let b = self.kernel.buffer(t.buffer);
        if !b.dtype.is_float() {
            return Err(format!("a tile of {} holds {}, not floats", b.name, b.dtype));
        }
        self.part(t)?;
        match t.extents[..] {
            [.., rows, cols] => Ok((rows, cols)),
            _ => Err(format!("a tile of extents {:?} is not a matrix", t.extents)),
        }
    }

    /// A tile of floats, or of integers of 8 or 32 bits.
    pub(super) fn tile(&self, t: &Tile) -> Result<(), String> {
        let b = self.kernel.buffer(t.buffer);
        if !b.dtype.is_in_tiles() {
            return Err(format!("a tile of {} holds {}", b.name, b.dtype));
        }
        self.part(t)
    }

    /// A tile of elements of any type.
    pub(super) fn part(&self, t: &Tile) -> Result<(), String> {
        let b = self.kernel.buffer(t.buffer);
        if t.extents.iter().any(|n| *n < 1) {
            return Err(format!("a tile of {} has extents {:?}", b.name, t.extents));
        }
        if self.indices(&t.origin)? > 1 {
            return Err(format!("the origin of a tile of {} is a vector", b.name));
        }
        Ok(())
    }

    /// The type of an expression's value.
    pub(super) fn of(&self, e: &Expr) -> Result<Type, String> {
        let text = |e: &Expr| print::expr(self.kernel, e);
        match e {
            Expr::Int(_) => Ok(Type::scalar(DType::I64)),
            Expr::Float(_, d) if d.is_float() => Ok(Type::scalar(d.compute())),
            Expr::Float(_, d) => Err(format!("a floating constant has type {d}")),
            Expr::Var(v) => Ok(Type { dtype: self.kernel.var(*v).dtype.compute(), lanes: self.lanes[v.0 as usize] }),
            Expr::Unary(op, a) => {
                let t = self.of(a)?;
                let fits = match op {
                    UnOp::Not => t.dtype == DType::Bool,
                    UnOp::Neg | UnOp::Abs => t.dtype != DType::Bool && !t.dtype.is_word(),
                    UnOp::Sqrt | UnOp::Exp | UnOp::Exp2 | UnOp::Log => t.dtype.is_float(),
                    UnOp::Sin | UnOp::Cos | UnOp::Tanh | UnOp::Erf | UnOp::Atan => t.dtype.is_float(),
                    UnOp::Floor | UnOp::Ceil | UnOp::Round => t.dtype.is_float(),
                    UnOp::Tf32 | UnOp::Rounded => t.dtype == DType::F32,
                    UnOp::Flip => t.dtype.flipped().is_some(),
                    UnOp::Even | UnOp::Odd => t.dtype.word_parts() == Some(4),
                };
                let t = match op {
                    UnOp::Flip => Type { dtype: t.dtype.flipped().unwrap_or(t.dtype), ..t },
                    UnOp::Even | UnOp::Odd => Type { dtype: DType::I16x2, ..t },
                    _ => t,
                };
                if fits { Ok(t) } else { Err(format!("`{}` of {}, which has type {t}", op.name(), text(a))) }
            }
            Expr::Binary(op, a, b) => {
                let (x, y) = (self.of(a)?, self.of(b)?);
                let lanes = common_lanes(&[x, y]).ok_or_else(|| format!("{x} meets {y} in {}", text(e)))?;
                let same = x.dtype == y.dtype || matches!(op, BinOp::Dot | BinOp::Push);
                let fits = same
                    && match op {
                        BinOp::Dot => x.dtype.is_word() && x.dtype.word_parts() == y.dtype.word_parts(),
                        BinOp::Push => x.dtype.is_word() && y.dtype.is_int(),
                        BinOp::And | BinOp::Or => x.dtype == DType::Bool,
                        BinOp::Eq | BinOp::Ne => true,
                        BinOp::Mod => x.dtype.is_int(),
                        BinOp::Pow | BinOp::Fmod => x.dtype.is_float(),
                        BinOp::Add | BinOp::Sub if x.dtype == DType::I16x2 => true,
                        _ => x.dtype != DType::Bool && !x.dtype.is_word(),
                    };
                if !fits {
                    return Err(format!("{x} meets {y} in {}", text(e)));
                }
                let dtype = match op {
                    BinOp::Dot => DType::I32,
                    op if op.is_predicate() => DType::Bool,
                    _ => x.dtype,
                };
                Ok(Type { dtype, lanes })
            }
            Expr::Select(c, a, b) => {
                let (c, x, y) = (self.of(c)?, self.of(a)?, self.of(b)?);
                match common_lanes(&[c, x, y]) {
                    Some(lanes) if c.dtype == DType::Bool && x.dtype == y.dtype => Ok(Type { dtype: x.dtype, lanes }),
                    _ => Err(format!("select of {c}, {x} and {y} in {}", text(e))),
                }
            }
            Expr::Cast(d, a) => Ok(Type { dtype: d.compute(), lanes: self.of(a)?.lanes }),
            Expr::Load(b, idx) => Ok(Type { dtype: self.kernel.buffer(*b).dtype.compute(), lanes: self.indices(idx)? }),
            Expr::Ramp { base, lanes, .. } => match self.of(base)? {
                Type { dtype, lanes: 1 } if dtype.is_int() && *lanes > 0 => Ok(Type { dtype, lanes: *lanes }),
                t => Err(format!("a ramp of {lanes} lanes from a {t}")),
            },
            Expr::Broadcast(a, lanes) => match self.of(a)? {
                Type { dtype, lanes: 1 } if *lanes > 0 => Ok(Type { dtype, lanes: *lanes }),
                t => Err(format!("a broadcast of a {t} to {lanes} lanes")),
            },
        }
    }
}

/// The lanes of an operation on these, if they fit: scalars go with anything.
fn common_lanes(types: &[Type]) -> Option<u16> {
    let lanes = types.iter().map(|t| t.lanes).max()?;
    types.iter().all(|t| t.lanes == 1 || t.lanes == lanes).then_some(lanes)
}
