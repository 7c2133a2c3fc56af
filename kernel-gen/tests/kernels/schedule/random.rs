//! Random kernels, and the comparison that every primitive must pass.

use kernel_gen::interp::{self, Mode};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::{Access, DType, Expr, Kernel, ReduceOp, Scope, Stmt};

/// A small generator of pseudo-random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// A number in `lo..=hi`.
    pub(crate) fn range(&mut self, lo: i64, hi: i64) -> i64 {
        lo + self.below((hi - lo + 1) as u64) as i64
    }

    /// One of a slice.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A kernel of a random family and random small size.
pub(crate) fn kernel(r: &mut Random) -> Kernel {
    match r.below(5) {
        0 => matmul(r.range(1, 9), r.range(1, 9), r.range(1, 9)),
        1 => convolution(r),
        2 => chain(r.range(1, 7), r.range(1, 9)),
        3 => stencil(r.range(1, 8), r.range(1, 8)),
        _ => pool(r.range(1, 5), r.range(1, 9), r.range(1, 4)),
    }
}

/// `acc = a b`, then `c = max(acc + bias, 0)`.
pub(crate) fn matmul(m: i64, n: i64, k: i64) -> Kernel {
    let mut b = KernelBuilder::new("matmul");
    let x = b.param("a", DType::F32, &[m, k], Access::Read);
    let w = b.param("b", DType::F32, &[k, n], Access::Read);
    let bias = b.param("bias", DType::F32, &[n], Access::Read);
    let c = b.param("c", DType::F32, &[m, n], Access::Write);
    let acc = b.alloc("acc", DType::F32, &[m, n], Scope::Global);
    b.nest(&[("i", m), ("j", n), ("k", k)], |b, v| {
        let [i, j, k] = [v[0], v[1], v[2]];
        let product = Expr::load(x, vec![i.into(), k.into()]) * Expr::load(w, vec![k.into(), j.into()]);
        b.sum(acc, [i.into(), j.into()], product, &[k]);
    });
    b.nest(&[("i_out", m), ("j_out", n)], |b, v| {
        let at = vec![v[0].into(), v[1].into()];
        let value = Expr::load(acc, at.clone()) + Expr::load(bias, vec![v[1].into()]);
        b.store(c, at, value.max(Expr::f32(0.0)));
    });
    b.finish()
}

/// A padded convolution with groups, a stride and a dilation.
pub(crate) fn convolution(r: &mut Random) -> Kernel {
    let (groups, co, ci) = (r.range(1, 2), r.range(1, 4), r.range(1, 3));
    let (kernel, stride, dilation, pad) = (r.range(1, 3), r.range(1, 2), r.range(1, 2), r.range(0, 2));
    let reach = (kernel - 1) * dilation + 1;
    let h = r.range(1, 6).max(reach - 2 * pad);
    let padded = h + 2 * pad;
    let oh = (padded - reach) / stride + 1;
    let mut b = KernelBuilder::new("conv");
    let x = b.param("x", DType::F32, &[groups * ci, h, h], Access::Read);
    let w = b.param("w", DType::F32, &[groups * co, ci, kernel, kernel], Access::Read);
    let y = b.param("y", DType::F32, &[groups * co, oh, oh], Access::Write);
    let p = b.alloc("pad", DType::F32, &[groups * ci, padded, padded], Scope::Global);
    b.nest(&[("ci_pad", groups * ci), ("h_pad", padded), ("w_pad", padded)], |b, v| {
        let inside =
            KernelBuilder::between(&v[1].into(), pad, pad + h).and(KernelBuilder::between(&v[2].into(), pad, pad + h));
        let value = Expr::load(x, vec![v[0].into(), v[1] - pad, v[2] - pad]);
        b.store(p, [v[0].into(), v[1].into(), v[2].into()], inside.select(value, Expr::f32(0.0)));
    });
    let acc = b.alloc("acc", DType::F32, &[groups * co, oh, oh], Scope::Global);
    let loops = [("g", groups), ("co", co), ("oh", oh), ("ow", oh), ("ci", ci), ("kh", kernel), ("kw", kernel)];
    b.nest(&loops, |b, v| {
        let [g, o, oh, ow, c, kh, kw] = [v[0], v[1], v[2], v[3], v[4], v[5], v[6]];
        let channel = g * co + o;
        let source = vec![g * ci + c, oh * stride + kh * dilation, ow * stride + kw * dilation];
        let weight = vec![channel.clone(), c.into(), kh.into(), kw.into()];
        b.sum(acc, [channel, oh.into(), ow.into()], Expr::load(p, source) * Expr::load(w, weight), &v[4..]);
    });
    b.nest(&[("co_out", groups * co), ("oh_out", oh), ("ow_out", oh)], |b, v| {
        let at: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        b.store(y, at.clone(), Expr::load(acc, at).max(Expr::f32(0.0)));
    });
    b.finish()
}

/// Elementwise stages, one after the other.
pub(crate) fn chain(m: i64, n: i64) -> Kernel {
    let mut b = KernelBuilder::new("chain");
    let x = b.param("x", DType::F32, &[m, n], Access::Read);
    let y = b.param("y", DType::F32, &[n, m], Access::Write);
    let t = b.alloc("t", DType::F32, &[m, n], Scope::Global);
    let u = b.alloc("u", DType::F32, &[m, n], Scope::Global);
    b.nest(&[("i", m), ("j", n)], |b, v| {
        let at: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        b.store(t, at.clone(), Expr::load(x, at) * Expr::f32(2.0));
    });
    b.nest(&[("i_u", m), ("j_u", n)], |b, v| {
        let at: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        b.store(u, at.clone(), Expr::load(t, at.clone()) + Expr::load(x, at));
    });
    b.nest(&[("p", n), ("q", m)], |b, v| {
        let [p, q] = [v[0], v[1]];
        b.store(y, [p.into(), q.into()], Expr::load(u, vec![q.into(), p.into()]) - Expr::f32(1.0));
    });
    b.finish()
}

/// Neighbours of an intermediate stage.
pub(crate) fn stencil(m: i64, n: i64) -> Kernel {
    let mut b = KernelBuilder::new("stencil");
    let x = b.param("x", DType::F32, &[m + 2, n + 1], Access::Read);
    let y = b.param("y", DType::F32, &[m, n], Access::Write);
    let t = b.alloc("t", DType::F32, &[m + 2, n + 1], Scope::Global);
    b.nest(&[("r", m + 2), ("s", n + 1)], |b, v| {
        let at: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        b.store(t, at.clone(), Expr::load(x, at) + Expr::f32(1.0));
    });
    b.nest(&[("i", m), ("j", n)], |b, v| {
        let [i, j] = [v[0], v[1]];
        let read = |di: i64, dj: i64| Expr::load(t, vec![i + di, j + dj]);
        b.store(y, [i.into(), j.into()], read(0, 0) + read(1, 1) - read(2, 0));
    });
    b.finish()
}

/// A maximum over windows.
pub(crate) fn pool(c: i64, n: i64, window: i64) -> Kernel {
    let mut b = KernelBuilder::new("pool");
    let x = b.param("x", DType::F32, &[c, n * 2 + window], Access::Read);
    let y = b.param("y", DType::F32, &[c, n], Access::Write);
    b.nest(&[("c", c), ("i", n), ("k", window)], |b, v| {
        let [c, i, k] = [v[0], v[1], v[2]];
        b.push(Stmt::Reduce {
            buffer: y,
            indices: vec![c.into(), i.into()],
            op: ReduceOp::Max,
            init: Expr::f32(-100.0),
            value: Expr::load(x, vec![c.into(), i * 2 + k]),
            over: vec![k],
        });
    });
    b.finish()
}

/// Whether two kernels compute the same, in `f64` with a different order of sums; `Err` shows the kernels.
pub(crate) fn same(before: &Kernel, after: &Kernel) -> Result<(), String> {
    let inputs = interp::seeded_inputs(before, 7);
    let expected = interp::run(before, &inputs, Mode::F64).map_err(|e| format!("before: {e}\n{before}"))?;
    let got = interp::run(after, &inputs, Mode::F64).map_err(|e| format!("{e}\n{before}\n{after}"))?;
    match interp::max_difference(&expected, &got) {
        Some(d) if d < 1e-9 => Ok(()),
        other => Err(format!("differs by {other:?}\n{before}\n{after}")),
    }
}
