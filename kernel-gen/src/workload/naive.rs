//! The naive kernel of a workload: its definition as loops, and what every schedule starts from.
//!
//! It has up to three stages, each a loop nest that writes one buffer:
//!
//! * `pad` (convolutions with padding only): `pad[..] = select(inside, x[..], 0)`, in the input's layout and type.
//! * `acc`: the sum, one [`Stmt::Reduce`](crate::ir::Stmt::Reduce) into an `f32` buffer of the output's shape. Spatial
//!   loops come in the order of the output's dimensions, then the reduce loops `ci, kh, kw` (`k` of a product).
//! * the output (`y`, `c`): the epilogue applied to `acc`, converted to the output's type. It is a stage of its own
//!   even where there is no epilogue.
//!
//! Loops of `acc` carry the operator's names: `n, co, oh, ow, ci, kh, kw`; with groups `g, co` in place of `co`, for
//! depthwise `c` and, where the multiplier is above 1, `m`. A blocked layout has `co` (`c`) for the block and
//! `co_in` (`c_in`) inside of it; with tiles, `n` and `ci` have `n_in` and `ci_in` (the last reduce loop) too. Products have `bt` (only for batches), `i, j, k`. Loops of the other stages carry
//! those names with `_pad` and `_out` behind them.

use super::operands::Operands;
use super::{Conv2d, ConvLayout, DepthwisePointwise, Epilogue, Matmul, Op, Workload};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, Scope, UnOp, VarId};

/// The naive kernel of a valid workload.
///
/// Its name is the workload's [`kernel_name`](Workload::kernel_name).
pub fn naive(workload: &Workload) -> Kernel {
    naive_with_sums(workload, DType::F32)
}

/// [`naive`] with sums in another type, such as the `f16` that tensor cores can add up in: what a user's schedule starts from
/// who accepts its error. The first half of a fused pair stays in `f32`.
pub fn naive_with_sums(workload: &Workload, sums: DType) -> Kernel {
    let mut b = KernelBuilder::new(workload.kernel_name());
    let params = Operands::declare(&mut b, workload);
    let (x, w) = (params.at(0), params.at(workload.operator_params() - 1));
    match &workload.op {
        Op::Conv2d(c) => {
            let x = if c.has_padding() { pad(&mut b, c, x, workload.dtype) } else { x };
            let acc = b.alloc("acc", sums, &c.output_shape(), Scope::Global);
            convolve(&mut b, c, x, w, acc);
            let loops = output_loops(c);
            finish(&mut b, workload, &params, acc, &loops, |v| channel(c.layout, v));
        }
        Op::Matmul(m) => {
            let acc = b.alloc("acc", sums, &m.output_shape(), Scope::Global);
            multiply(&mut b, m, x, w, acc);
            let loops: Vec<(&str, i64)> = ["bt_out", "i_out", "j_out"]
                .into_iter()
                .skip(usize::from(m.batch == 1))
                .zip(m.output_shape())
                .collect();
            finish(&mut b, workload, &params, acc, &loops, |v| v[v.len() - 1].into());
        }
        Op::DepthwisePointwise(p) => {
            let mid = depthwise_half(&mut b, p, workload, &params);
            let c = p.pointwise();
            let acc = b.alloc("acc", sums, &c.output_shape(), Scope::Global);
            convolve(&mut b, &c, mid, w, acc);
            finish(&mut b, workload, &params, acc, &output_loops(&c), |v| channel(c.layout, v));
        }
    }
    b.finish()
}

/// The stages `pad`, `dw_acc` and `mid` of a pair: what its pointwise convolution takes.
fn depthwise_half(b: &mut KernelBuilder, p: &DepthwisePointwise, workload: &Workload, params: &Operands) -> BufferId {
    let c = &p.depthwise;
    let x = params.get("x");
    let x = if c.has_padding() { pad(b, c, x, workload.dtype) } else { x };
    let shape = c.output_shape();
    let acc = b.alloc("dw_acc", DType::F32, &shape, Scope::Global);
    convolve(b, c, x, params.get("dw"), acc);
    let mid = b.alloc("mid", DType::F32, &shape, Scope::Global);
    let loops: Vec<(&str, i64)> = ["n_mid", "c_mid", "oh_mid", "ow_mid"].into_iter().zip(shape).collect();
    b.nest(&loops, |b, v| {
        let index: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        let value = between(p, Expr::load(acc, index.clone()), &v[1].into(), &|name| params.get(name));
        b.store(mid, index, value);
    });
    mid
}

/// A depthwise sum of a pair with the steps that follow it: `buffer` gives the buffer of a parameter's name.
pub(crate) fn between(p: &DepthwisePointwise, sum: Expr, channel: &Expr, buffer: &dyn Fn(&str) -> BufferId) -> Expr {
    let steps = Workload::f32(p.depthwise).with_epilogue(&p.between());
    epilogue(&steps, sum, channel, &[], &|_| buffer("dw_bias"))
}

/// Index of an activation tensor: `c` counts channels of the whole tensor.
pub(crate) fn activation_index(layout: ConvLayout, n: Expr, c: Expr, h: Expr, w: Expr) -> Vec<Expr> {
    match layout {
        ConvLayout::Nchw => vec![n, c, h, w],
        ConvLayout::Nhwc => vec![n, h, w, c],
        ConvLayout::Hwcn => vec![h, w, c, n],
        ConvLayout::NchwC(block) => vec![n, c.clone().floor_div(block), h, w, c.floor_mod(block)],
        ConvLayout::NhwcNc(block) => {
            vec![n.clone().floor_div(block), h, w, c.clone().floor_div(block), n.floor_mod(block), c.floor_mod(block)]
        }
    }
}

/// The channel that the loop variables of an activation's dimensions stand for.
fn channel(layout: ConvLayout, v: &[VarId]) -> Expr {
    match layout {
        ConvLayout::Nchw => v[1].into(),
        ConvLayout::Nhwc => v[3].into(),
        ConvLayout::Hwcn => v[2].into(),
        ConvLayout::NchwC(block) => v[1] * block + v[4],
        ConvLayout::NhwcNc(block) => v[3] * block + v[5],
    }
}

/// The `pad` stage; returns its buffer.
pub(crate) fn pad(b: &mut KernelBuilder, c: &Conv2d, x: BufferId, dtype: DType) -> BufferId {
    let shape = c.padded_shape();
    let pad = b.alloc("pad", dtype, &shape, Scope::Global);
    let names: &[&str] = match c.layout {
        ConvLayout::Nchw => &["n_pad", "ci_pad", "h_pad", "w_pad"],
        ConvLayout::Nhwc => &["n_pad", "h_pad", "w_pad", "ci_pad"],
        ConvLayout::Hwcn => &["h_pad", "w_pad", "ci_pad", "n_pad"],
        ConvLayout::NchwC(_) => &["n_pad", "ci_pad", "h_pad", "w_pad", "ci_in_pad"],
        ConvLayout::NhwcNc(_) => &["n_pad", "h_pad", "w_pad", "ci_pad", "n_in_pad", "ci_in_pad"],
    };
    let (h_dim, w_dim) = match c.layout {
        ConvLayout::Nchw | ConvLayout::NchwC(_) => (2, 3),
        ConvLayout::Nhwc | ConvLayout::NhwcNc(_) => (1, 2),
        ConvLayout::Hwcn => (0, 1),
    };
    let loops: Vec<(&str, i64)> = names.iter().copied().zip(shape).collect();
    b.nest(&loops, |b, v| {
        let [top, left, bottom, right] = c.padding;
        let mut conditions = vec![];
        for (dim, before, after, extent) in [(h_dim, top, bottom, c.h), (w_dim, left, right, c.w)] {
            if before > 0 {
                conditions.push(Expr::Int(before).le(v[dim]));
            }
            if after > 0 {
                conditions.push(Expr::from(v[dim]).lt(before + extent));
            }
        }
        let mut source: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        source[h_dim] = v[h_dim] - top;
        source[w_dim] = v[w_dim] - left;
        let value = Expr::load(x, source);
        let value = match Expr::all(conditions) {
            Some(inside) => inside.select(value, Expr::Float(0.0, dtype.compute())),
            None => value,
        };
        b.store(pad, v.iter().map(|v| (*v).into()).collect::<Vec<Expr>>(), value);
    });
    pad
}

/// The `acc` stage of a convolution. `x` is padded already.
fn convolve(b: &mut KernelBuilder, c: &Conv2d, x: BufferId, w: BufferId, acc: BufferId) {
    if let ConvLayout::NhwcNc(block) = c.layout {
        return convolve_tiles(b, c, block, [x, w, acc]);
    }
    // Loops over channels, outermost first, and how many of them stand before space; what follows is inside.
    let block = if let ConvLayout::NchwC(block) = c.layout { block } else { 1 };
    let split_group = c.co_per_group() % block == 0;
    let channels: Vec<(&str, i64)> = match c.multiplier() {
        Some(m) if block > 1 => {
            debug_assert!(m >= 1, "a depthwise convolution has at least one output channel per input channel");
            vec![("c", c.co / block)]
        }
        Some(1) => vec![("c", c.ci)],
        Some(m) => vec![("c", c.ci), ("m", m)],
        None if c.groups > 1 && split_group => vec![("g", c.groups), ("co", c.co_per_group() / block)],
        None => vec![("co", c.co / block)],
    };
    let space = [("oh", c.oh()), ("ow", c.ow())];
    let inner = if c.is_depthwise() { "c_in" } else { "co_in" };
    let mut loops: Vec<(&str, i64)> = match c.layout {
        ConvLayout::Nchw | ConvLayout::NchwC(_) => [&[("n", c.n)], &channels[..], &space].concat(),
        ConvLayout::Nhwc | ConvLayout::NhwcNc(_) => [&[("n", c.n)], &space[..], &channels].concat(),
        ConvLayout::Hwcn => [&space[..], &channels, &[("n", c.n)]].concat(),
    };
    if block > 1 {
        loops.push((inner, block));
    }
    let spatial = loops.len();
    if !c.is_depthwise() {
        loops.push(("ci", c.ci_per_group()));
    }
    loops.extend([("kh", c.kh), ("kw", c.kw)]);
    let names: Vec<&str> = loops.iter().map(|l| l.0).collect();
    b.nest(&loops, |b, v| {
        let find = |name: &str| names.iter().position(|n| *n == name).map(|i| Expr::from(v[i]));
        let var = |name: &str| find(name).unwrap_or(Expr::Int(0));
        // Output channel within its group, and in the whole tensor; input channel likewise.
        let in_block = |e: Expr| e * block + var(inner);
        let (out_channel, in_channel, reduced) = match c.multiplier() {
            Some(m) if block > 1 => {
                let o = in_block(var("c"));
                (o.clone(), o.floor_div(m), Expr::Int(0))
            }
            Some(m) => (var("c") * m + var("m"), var("c"), Expr::Int(0)),
            None if c.groups > 1 && split_group => {
                (var("g") * c.co_per_group() + in_block(var("co")), var("g") * c.ci_per_group() + var("ci"), var("ci"))
            }
            None => {
                // A block may span groups: the group follows from the channel.
                let o = in_block(var("co"));
                let group = if c.groups > 1 { o.clone().floor_div(c.co_per_group()) } else { Expr::Int(0) };
                (o, group * c.ci_per_group() + var("ci"), var("ci"))
            }
        };
        let ih = var("oh") * c.stride[0] + var("kh") * c.dilation[0];
        let iw = var("ow") * c.stride[1] + var("kw") * c.dilation[1];
        let out_index = match c.layout {
            // The block index is affine as it stands; dividing the channel again would only hide that.
            ConvLayout::NchwC(_) => {
                let outer = match find("g") {
                    Some(g) => g * (c.co_per_group() / block) + var("co"),
                    None if c.is_depthwise() => var("c"),
                    None => var("co"),
                };
                vec![var("n"), outer, var("oh"), var("ow"), var(inner)]
            }
            layout => activation_index(layout, var("n"), out_channel.clone(), var("oh"), var("ow")),
        };
        // One output channel per input channel and the same blocks: no division is needed either.
        let in_index = match (c.layout, c.multiplier()) {
            (ConvLayout::NchwC(_), Some(1)) => vec![var("n"), var("c"), ih, iw, var(inner)],
            (layout, _) => activation_index(layout, var("n"), in_channel, ih, iw),
        };
        let w_index = match c.layout {
            ConvLayout::Nchw | ConvLayout::NchwC(_) => vec![out_channel, reduced, var("kh"), var("kw")],
            ConvLayout::Nhwc | ConvLayout::Hwcn | ConvLayout::NhwcNc(_) => {
                vec![var("kh"), var("kw"), reduced, out_channel]
            }
        };
        b.sum(acc, out_index, Expr::load(x, in_index) * Expr::load(w, w_index), &v[spatial..]);
    });
}

/// The `acc` stage of a convolution on tiles.
fn convolve_tiles(b: &mut KernelBuilder, c: &Conv2d, block: i64, [x, w, acc]: [BufferId; 3]) {
    let loops = [
        ("n", c.n / block),
        ("oh", c.oh()),
        ("ow", c.ow()),
        ("co", c.co / block),
        ("n_in", block),
        ("co_in", block),
        ("ci", c.ci / block),
        ("kh", c.kh),
        ("kw", c.kw),
        ("ci_in", block),
    ];
    b.nest(&loops, |b, v| {
        let [n, oh, ow, co, n_in, co_in, ci, kh, kw, ci_in] =
            [v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]];
        let ih = oh * c.stride[0] + kh * c.dilation[0];
        let iw = ow * c.stride[1] + kw * c.dilation[1];
        let input = Expr::load(x, vec![n.into(), ih, iw, ci.into(), n_in.into(), ci_in.into()]);
        let weight = Expr::load(w, [kh, kw, ci, co, ci_in, co_in].map(Expr::from).to_vec());
        b.sum(acc, [n, oh, ow, co, n_in, co_in].map(Expr::from), input * weight, &[ci, kh, kw, ci_in]);
    });
}

/// The loops of the output stage of a convolution.
fn output_loops(c: &Conv2d) -> Vec<(&'static str, i64)> {
    let names: &[&str] = match c.layout {
        ConvLayout::Nchw => &["n_out", "co_out", "oh_out", "ow_out"],
        ConvLayout::Nhwc => &["n_out", "oh_out", "ow_out", "co_out"],
        ConvLayout::Hwcn => &["oh_out", "ow_out", "co_out", "n_out"],
        ConvLayout::NchwC(_) => &["n_out", "co_out", "oh_out", "ow_out", "co_in_out"],
        ConvLayout::NhwcNc(_) => &["n_out", "oh_out", "ow_out", "co_out", "n_in_out", "co_in_out"],
    };
    names.iter().copied().zip(c.output_shape()).collect()
}

/// The `acc` stage of a product.
fn multiply(b: &mut KernelBuilder, m: &Matmul, x: BufferId, w: BufferId, acc: BufferId) {
    let batch = usize::from(m.batch > 1);
    let loops = [("bt", m.batch), ("i", m.m), ("j", m.n), ("k", m.k)];
    b.nest(&loops[1 - batch..], |b, v| {
        let (i, j, k) = (v[batch], v[batch + 1], v[batch + 2]);
        let index = |rows: VarId, columns: VarId| -> Vec<Expr> {
            v[..batch].iter().copied().chain([rows, columns]).map(Expr::from).collect()
        };
        let a = if m.trans_a { index(k, i) } else { index(i, k) };
        let right = if m.trans_b { index(j, k) } else { index(k, j) };
        b.sum(acc, index(i, j), Expr::load(x, a) * Expr::load(w, right), &[k]);
    });
}

/// The output stage: the epilogue of each element.
fn finish(
    b: &mut KernelBuilder,
    workload: &Workload,
    params: &Operands,
    acc: BufferId,
    loops: &[(&str, i64)],
    channel: impl FnOnce(&[VarId]) -> Expr,
) {
    b.nest(loops, |b, v| {
        let index: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        let value = epilogue(workload, Expr::load(acc, index.clone()), &channel(v), &index, &|name| params.get(name));
        b.store(params.output(), index, value);
    });
}

/// A sum with the epilogue's steps applied: `channel` is its output channel, `index` its place in the output, and
/// `operand` gives the buffer of a parameter's name.
pub(crate) fn epilogue(
    workload: &Workload,
    sum: Expr,
    channel: &Expr,
    index: &[Expr],
    operand: &dyn Fn(&str) -> BufferId,
) -> Expr {
    let per_channel = |name: &str| Expr::load(operand(name), vec![channel.clone()]);
    workload.epilogue.iter().fold(sum, |value, step| match step {
        Epilogue::Bias => value + per_channel("bias"),
        Epilogue::Relu => value.max(Expr::f32(0.0)),
        Epilogue::Relu6 => value.max(Expr::f32(0.0)).min(Expr::f32(6.0)),
        Epilogue::Gelu => {
            let erf = Expr::un(UnOp::Erf, value.clone() * Expr::f32(std::f64::consts::FRAC_1_SQRT_2));
            Expr::f32(0.5) * value * (Expr::f32(1.0) + erf)
        }
        Epilogue::ResidualAdd => value + Expr::load(operand("residual"), index.to_vec()),
        Epilogue::Scale => value * per_channel("scale") + per_channel("shift"),
    })
}
