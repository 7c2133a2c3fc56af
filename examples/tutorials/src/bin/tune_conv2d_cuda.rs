//! "Tuning High Performance Convolution on NVIDIA GPUs" (Lianmin Zheng, Apache TVM), with the config that it ends with.
//!
//! The library's template `conv2d_no_batching` is this schedule with its space, and more layers than this one.

use kernel_gen::ir::{Axis, LoopKind, Pragma, Scope};
use kernel_gen::schedule::{Schedule, ScheduleError};
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::conv2d_no_batching::Conv2dNoBatching;
use kernel_gen::workload::{Conv2d, Workload, naive};
use kernel_gen_runtime::{D4, Device};
use std::process::ExitCode;
use tutorials::{as_written, chosen, numbers, on_gpu, show, time};

const BLOCK: fn(Axis) -> LoopKind = LoopKind::Grid;
const THREAD: fn(Axis) -> LoopKind = LoopKind::Thread;

/// What `autotvm` calls a config.
struct Config {
    tile_f: [i64; 4],
    tile_y: [i64; 4],
    tile_x: [i64; 4],
    tile_rc: [i64; 3],
    tile_ry: [i64; 3],
    tile_rx: [i64; 3],
    auto_unroll_max_step: i64,
    unroll_explicit: bool,
}

/// The tutorial's best config, for its last layer of a ResNet.
const CFG: Config = Config {
    tile_f: [4, 2, 64, 1],
    tile_y: [1, 1, 1, 7],
    tile_x: [1, 1, 7, 1],
    tile_rc: [128, 2, 2],
    // The tutorial applies `tile_rx` to `ry` and `tile_ry` to `rx`.
    tile_ry: [1, 1, 3],
    tile_rx: [1, 3, 1],
    auto_unroll_max_step: 1500,
    unroll_explicit: false,
};

#[allow(non_snake_case, reason = "the tutorial's names")]
fn conv2d_no_batching(workload: &Workload, cfg: &Config) -> Result<Schedule, ScheduleError> {
    let mut s = Schedule::new(naive(workload));
    let [data, kernel, OL, output] = [s.stage("pad")?, s.stage("w")?, s.stage("acc")?, s.stage("y")?];

    // inline padding
    s.compute_inline(data)?;

    // create cache stage
    let AA = s.cache_read(data, Scope::Shared, &[OL])?;
    let WW = s.cache_read(kernel, Scope::Shared, &[OL])?;
    let AL = s.cache_read(AA, Scope::Local, &[OL])?;
    let WL = s.cache_read(WW, Scope::Local, &[OL])?;
    s.set_scope(OL, Scope::Local)?;

    // tile and bind spatial axes
    let [n, f, y, x] = s.axes(output)?;
    let [bf, vf, tf, fi] = s.split_sizes(f, cfg.tile_f)?;
    let [by, vy, ty, yi] = s.split_sizes(y, cfg.tile_y)?;
    let [bx, vx, tx, xi] = s.split_sizes(x, cfg.tile_x)?;
    let kernel_scope = n; // this is the scope to attach global config inside this kernel

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
    s.pragma(kernel_scope, Pragma::AutoUnrollMaxStep(cfg.auto_unroll_max_step))?;
    s.pragma(kernel_scope, Pragma::UnrollExplicit(cfg.unroll_explicit))?;
    Ok(s)
}

fn main() -> ExitCode {
    tutorials::main(|| {
        // the last layer in resnet
        let workload = Workload::f32(Conv2d::nchw(1, 512, 7, 7, 512, 3, 1, 1));
        let target = Target::find("sm_80").ok_or("the library knows the target")?;
        println!("{}\n", Conv2dNoBatching.space(&workload, target)?);
        show("conv2d_no_batching", conv2d_no_batching(&workload, &CFG)?)?;
        on_gpu(|dev| {
            let x = numbers::<f32, D4<1, 512, 7, 7>>(dev, |v| v)?;
            let w = numbers::<f32, D4<512, 512, 3, 3>>(dev, |v| v)?;
            let mut y = dev.zeros::<f32, D4<1, 512, 7, 7>>()?;
            let macs = 7 * 7 * 512 * 512 * 9;
            time(dev, "as written", macs, || as_written::tune_conv2d_cuda(dev, &x, &w, &mut y))?;
            time(dev, "chosen", macs, || chosen::tune_conv2d_cuda(dev, &x, &w, &mut y))
        })
    })
}
