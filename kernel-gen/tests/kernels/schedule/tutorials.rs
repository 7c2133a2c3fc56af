//! The schedules of two well-known tutorials read here as they read there, call by call, and compute a convolution.

use super::random::{Random, same};
use kernel_gen::analysis::verify::{Limits, verify};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::{Access, Axis, DType, Expr, Kernel, LoopKind, Pragma, Scope};
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::schedule::{Schedule, ScheduleError, Tail};

const BLOCK: fn(Axis) -> LoopKind = LoopKind::Grid;
const THREAD: fn(Axis) -> LoopKind = LoopKind::Thread;

/// `conv` of `data` and `kernel` in NCHW with a padded copy in between, as the tutorial declares it.
pub(crate) fn conv2d_nchw(ci: i64, co: i64, size: i64, kernel: i64, pad: i64) -> Kernel {
    let out = size + 2 * pad - kernel + 1;
    let mut b = KernelBuilder::new("conv2d_no_batching");
    let data = b.param("data", DType::F32, &[1, ci, size, size], Access::Read);
    let weight = b.param("kernel", DType::F32, &[co, ci, kernel, kernel], Access::Read);
    let conv = b.param("conv", DType::F32, &[1, co, out, out], Access::Write);
    let padded = size + 2 * pad;
    let pad_data = b.alloc("pad_data", DType::F32, &[1, ci, padded, padded], Scope::Global);
    b.nest(&[("i0", 1), ("i1", ci), ("i2", padded), ("i3", padded)], |b, v| {
        let inside = KernelBuilder::between(&v[2].into(), pad, pad + size).and(KernelBuilder::between(
            &v[3].into(),
            pad,
            pad + size,
        ));
        let value = Expr::load(data, vec![v[0].into(), v[1].into(), v[2] - pad, v[3] - pad]);
        let at: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        b.store(pad_data, at, inside.select(value, Expr::f32(0.0)));
    });
    let loops = [("n", 1), ("f", co), ("y", out), ("x", out), ("rc", ci), ("ry", kernel), ("rx", kernel)];
    b.nest(&loops, |b, v| {
        let [n, f, y, x, rc, ry, rx] = [v[0], v[1], v[2], v[3], v[4], v[5], v[6]];
        let value = Expr::load(pad_data, vec![n.into(), rc.into(), y + ry, x + rx])
            * Expr::load(weight, vec![f.into(), rc.into(), ry.into(), rx.into()]);
        b.sum(conv, [n.into(), f.into(), y.into(), x.into()], value, &[rc, ry, rx]);
    });
    b.finish()
}

/// `B` of `A` and `W` in HWCN.
pub(crate) fn conv2d_hwcn(batch: i64, in_channel: i64, out_channel: i64, size: i64, kernel: i64, pad: i64) -> Kernel {
    let out = size + 2 * pad - kernel + 1;
    let padded = size + 2 * pad;
    let mut b = KernelBuilder::new("opt_conv_cuda");
    let a = b.param("A", DType::F32, &[size, size, in_channel, batch], Access::Read);
    let w = b.param("W", DType::F32, &[kernel, kernel, in_channel, out_channel], Access::Read);
    let y = b.param("B", DType::F32, &[out, out, out_channel, batch], Access::Write);
    let apad = b.alloc("Apad", DType::F32, &[padded, padded, in_channel, batch], Scope::Global);
    b.nest(&[("yy", padded), ("xx", padded), ("cc", in_channel), ("nn", batch)], |b, v| {
        let inside = KernelBuilder::between(&v[0].into(), pad, pad + size).and(KernelBuilder::between(
            &v[1].into(),
            pad,
            pad + size,
        ));
        let value = Expr::load(a, vec![v[0] - pad, v[1] - pad, v[2].into(), v[3].into()]);
        let at: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        b.store(apad, at, inside.select(value, Expr::f32(0.0)));
    });
    let loops = [
        ("hi", out),
        ("wi", out),
        ("fi", out_channel),
        ("ni", batch),
        ("ry", kernel),
        ("rx", kernel),
        ("rc", in_channel),
    ];
    b.nest(&loops, |b, v| {
        let [yy, xx, ff, nn, ry, rx, rc] = [v[0], v[1], v[2], v[3], v[4], v[5], v[6]];
        let value = Expr::load(apad, vec![yy + ry, xx + rx, rc.into(), nn.into()])
            * Expr::load(w, vec![ry.into(), rx.into(), rc.into(), ff.into()]);
        b.sum(y, [yy.into(), xx.into(), ff.into(), nn.into()], value, &[ry, rx, rc]);
    });
    b.finish()
}

/// What `autotvm`'s config gives for a split knob.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) tile_f: [i64; 4],
    pub(crate) tile_y: [i64; 4],
    pub(crate) tile_x: [i64; 4],
    pub(crate) tile_rc: [i64; 3],
    pub(crate) tile_ry: [i64; 3],
    pub(crate) tile_rx: [i64; 3],
}

#[allow(non_snake_case)]
pub(crate) fn conv2d_no_batching(kernel: Kernel, cfg: Config) -> Result<Schedule, ScheduleError> {
    let mut s = Schedule::new(kernel);
    let [data, kernel, conv] = [s.stage("pad_data")?, s.stage("kernel")?, s.stage("conv")?];

    // inline padding
    s.compute_inline(data)?;
    let output = conv;
    let OL = s.cache_write(conv, Scope::Local)?;

    // create cache stage
    let AA = s.cache_read(data, Scope::Shared, &[OL])?;
    let WW = s.cache_read(kernel, Scope::Shared, &[OL])?;
    let AL = s.cache_read(AA, Scope::Local, &[OL])?;
    let WL = s.cache_read(WW, Scope::Local, &[OL])?;

    // tile and bind spatial axes
    let [n, f, y, x] = s.axes(output)?;
    let [bf, vf, tf, fi] = s.split_sizes(f, cfg.tile_f)?;
    let [by, vy, ty, yi] = s.split_sizes(y, cfg.tile_y)?;
    let [bx, vx, tx, xi] = s.split_sizes(x, cfg.tile_x)?;
    let kernel_scope = n;

    s.bind(bf, BLOCK(Axis::Z))?;
    s.bind(by, BLOCK(Axis::Y))?;
    s.bind(bx, BLOCK(Axis::X))?;
    s.vthread(vf)?;
    s.vthread(vy)?;
    s.vthread(vx)?;
    s.bind(tf, THREAD(Axis::Z))?;
    s.bind(ty, THREAD(Axis::Y))?;
    s.bind(tx, THREAD(Axis::X))?;
    s.reorder(&[n, bf, by, bx, vf, vy, vx, tf, ty, tx, fi, yi, xi])?;
    s.compute_at(OL, tx)?;

    // tile reduction axes
    let [n, f, y, x, rc, ry, rx] = s.axes(OL)?;
    let [rco, rcm, rci] = s.split_sizes(rc, cfg.tile_rc)?;
    let [ryo, rym, ryi] = s.split_sizes(ry, cfg.tile_ry)?;
    let [rxo, rxm, rxi] = s.split_sizes(rx, cfg.tile_rx)?;
    s.reorder(&[rco, ryo, rxo, rcm, rym, rxm, rci, ryi, rxi, n, f, y, x])?;
    s.compute_at(AA, rxo)?;
    s.compute_at(WW, rxo)?;
    s.compute_at(AL, rxm)?;
    s.compute_at(WL, rxm)?;

    // cooperative fetching
    for load in [AA, WW] {
        let [n, f, y, x] = s.axes(load)?;
        let fused = s.fuse_all(&[n, f, y, x])?;
        let [tz, fused] = s.split_nparts(fused, cfg.tile_f[2])?;
        let [ty, fused] = s.split_nparts(fused, cfg.tile_y[2])?;
        let [tx, _] = s.split_nparts(fused, cfg.tile_x[2])?;
        s.bind(tz, THREAD(Axis::Z))?;
        s.bind(ty, THREAD(Axis::Y))?;
        s.bind(tx, THREAD(Axis::X))?;
    }

    // tune unroll
    s.pragma(kernel_scope, Pragma::AutoUnrollMaxStep(512))?;
    s.pragma(kernel_scope, Pragma::UnrollExplicit(true))?;
    Ok(s)
}

#[allow(non_snake_case)]
pub(crate) fn opt_conv_cuda(kernel: Kernel) -> Result<Schedule, ScheduleError> {
    let mut s = Schedule::new(kernel);
    let [Apad, W, B] = [s.stage("Apad")?, s.stage("W")?, s.stage("B")?];

    // Designate the memory hierarchy
    s.compute_inline(Apad)?;
    let AA = s.cache_read(Apad, Scope::Shared, &[B])?;
    let WW = s.cache_read(W, Scope::Shared, &[B])?;
    let AL = s.cache_read(AA, Scope::Local, &[B])?;
    let WL = s.cache_read(WW, Scope::Local, &[B])?;
    let BL = s.cache_write(B, Scope::Local)?;

    // tile consts
    let (tile, num_thread, step, vthread) = (4, 2, 2, 2);
    let block_factor = tile * num_thread;

    // Split the workloads
    let [hi, wi, fi, ni] = s.axes(B)?;
    let bz = s.fuse(hi, wi)?;
    let [by, fi] = s.split(fi, block_factor, Tail::Perfect)?;
    let [bx, ni] = s.split(ni, block_factor, Tail::Perfect)?;

    // Bind the iteration variables to GPU thread indices
    s.bind(bz, BLOCK(Axis::Z))?;
    s.bind(by, BLOCK(Axis::Y))?;
    s.bind(bx, BLOCK(Axis::X))?;
    let [tyz, fi] = s.split_nparts(fi, vthread)?;
    let [txz, ni] = s.split_nparts(ni, vthread)?;
    let [ty, fi] = s.split_nparts(fi, num_thread)?;
    let [tx, ni] = s.split_nparts(ni, num_thread)?;
    s.reorder(&[bz, by, bx, tyz, txz, ty, tx, fi, ni])?;
    s.vthread(tyz)?;
    s.vthread(txz)?;
    s.bind(ty, THREAD(Axis::Y))?;
    s.bind(tx, THREAD(Axis::X))?;

    // Schedule BL local write
    s.compute_at(BL, tx)?;
    let [_yi, _xi, fi, ni, ry, rx, rc] = s.axes(BL)?;
    let [rco, rci] = s.split(rc, step, Tail::Perfect)?;
    s.reorder(&[rco, ry, rx, rci, fi, ni])?;

    // Attach computation to iteration variables
    s.compute_at(AA, rx)?;
    s.compute_at(WW, rx)?;
    s.compute_at(AL, rci)?;
    s.compute_at(WL, rci)?;

    // Schedule for A's shared memory load, then W's
    for load in [AA, WW] {
        let [yi, xi, ci, ni] = s.axes(load)?;
        let [ty, ci] = s.split_nparts(ci, num_thread)?;
        let [tx, ni] = s.split_nparts(ni, num_thread)?;
        let [_, ni4] = s.split(ni, 4, Tail::Perfect)?;
        s.reorder(&[ty, tx, yi, xi, ci, ni4])?;
        s.bind(ty, THREAD(Axis::Y))?;
        s.bind(tx, THREAD(Axis::X))?;
        s.vectorize(ni4)?;
    }
    Ok(s)
}

/// The kernel as the verifier and the interpreter get it: schedules leave barriers out.
fn with_barriers(k: &Kernel) -> Kernel {
    insert_barriers(k.clone())
}

/// Also through every pass of lowering.
fn lowers(before: &Kernel, k: &Kernel) {
    let verified = verify(with_barriers(k), &Limits::cuda()).unwrap_or_else(|f| panic!("{}\n{k}", f[0]));
    for snapshot in lower(verified, &LowerOptions::cuda()).unwrap_or_else(|e| panic!("{e}")).trace() {
        if snapshot.changed {
            same(before, &snapshot.kernel).unwrap_or_else(|why| panic!("after {}: {why}", snapshot.pass));
        }
    }
}

#[test]
fn the_tuned_convolution_of_the_tutorial_schedules_and_computes() {
    let configs = [
        ([2, 2, 2, 2], [1, 1, 6, 1], [1, 2, 3, 1], [2, 2, 2], [1, 3, 1], [3, 1, 1]),
        ([4, 1, 2, 2], [3, 2, 1, 1], [1, 1, 1, 6], [1, 4, 2], [1, 1, 3], [1, 3, 1]),
        ([1, 1, 16, 1], [1, 1, 2, 3], [2, 1, 3, 1], [8, 1, 1], [3, 1, 1], [1, 1, 3]),
    ];
    for (tile_f, tile_y, tile_x, tile_rc, tile_ry, tile_rx) in configs {
        let before = conv2d_nchw(8, 16, 6, 3, 1);
        let cfg = Config { tile_f, tile_y, tile_x, tile_rc, tile_ry, tile_rx };
        let s = conv2d_no_batching(before.clone(), cfg).unwrap_or_else(|e| panic!("{e}"));
        same(&before, &with_barriers(&s.kernel)).unwrap_or_else(|why| panic!("{why}"));
        lowers(&before, &s.kernel);
        assert!(s.trace.len() > 40 && s.trace.iter().all(|t| !t.args.is_empty()));
    }
}

/// A random way to write `n` as a product.
pub(crate) fn factors<const N: usize>(r: &mut Random, n: i64) -> [i64; N] {
    let mut out = [1; N];
    let mut rest = n;
    for f in out.iter_mut().skip(1) {
        let divisors: Vec<i64> = (1..=rest).filter(|d| rest % d == 0).collect();
        *f = r.pick(&divisors);
        rest /= *f;
    }
    out[0] = rest;
    out
}

#[test]
fn random_points_of_the_tutorials_space_compute_the_convolution() {
    for seed in 0..40 {
        let mut r = Random(seed);
        let (ci, co, size) = (r.range(1, 8), r.range(1, 12), r.range(3, 6));
        let before = conv2d_nchw(ci, co, size, 3, 1);
        let cfg = Config {
            tile_f: factors(&mut r, co),
            tile_y: factors(&mut r, size),
            tile_x: factors(&mut r, size),
            tile_rc: factors(&mut r, ci),
            tile_ry: factors(&mut r, 3),
            tile_rx: factors(&mut r, 3),
        };
        let s = conv2d_no_batching(before.clone(), cfg).unwrap_or_else(|e| panic!("{cfg:?}: {e}"));
        same(&before, &with_barriers(&s.kernel)).unwrap_or_else(|why| panic!("{cfg:?}: {why}"));
        if seed % 5 == 0 {
            lowers(&before, &s.kernel);
        }
    }
}

#[test]
fn the_copies_of_a_tuned_convolution_can_be_double_buffered() {
    let before = conv2d_nchw(8, 16, 6, 3, 1);
    let (tile_f, tile_y, tile_x) = ([2, 2, 2, 2], [1, 1, 6, 1], [1, 2, 3, 1]);
    let cfg = Config { tile_f, tile_y, tile_x, tile_rc: [4, 1, 2], tile_ry: [1, 3, 1], tile_rx: [1, 3, 1] };
    for stages in [2, 3] {
        let mut s = conv2d_no_batching(before.clone(), cfg).unwrap_or_else(|e| panic!("{e}"));
        let rco = s.kernel.find_var("rc_o").unwrap();
        // The other outer reduce loops have one iteration; fused, the body with the copies belongs to one loop.
        let [ryo, rxo] = ["ry_o", "rx_o"].map(|n| s.kernel.find_var(n).unwrap());
        let outer = s.fuse_all(&[rco, ryo, rxo]).unwrap_or_else(|e| panic!("{e}"));
        s.pipeline(outer, stages).unwrap_or_else(|e| panic!("{e}"));
        let shared = s.kernel.buffers.iter().filter(|b| b.scope == Scope::Shared);
        assert!(shared.clone().count() == 2 && shared.clone().all(|b| b.shape[0] == stages));
        same(&before, &with_barriers(&s.kernel)).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn the_optimised_convolution_of_the_tutorial_schedules_and_computes() {
    let before = conv2d_hwcn(16, 4, 16, 3, 3, 1);
    let s = opt_conv_cuda(before.clone()).unwrap_or_else(|e| panic!("{e}"));
    same(&before, &with_barriers(&s.kernel)).unwrap_or_else(|why| panic!("{why}"));
    lowers(&before, &s.kernel);
}
