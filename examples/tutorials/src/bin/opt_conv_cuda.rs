//! "How to optimize convolution on GPU" (Haichen Shen, Apache TVM).
//!
//! The library's template `conv2d_hwcn` is this schedule with knobs for its constants.

use kernel_gen::ir::{Axis, LoopKind, Scope};
use kernel_gen::schedule::{Schedule, ScheduleError, Tail};
use kernel_gen::workload::{Conv2d, ConvLayout, Workload, naive};
use kernel_gen_runtime::{D4, Device};
use std::process::ExitCode;
use tutorials::{as_written, chosen, numbers, on_gpu, show, time};

const BLOCK: fn(Axis) -> LoopKind = LoopKind::Grid;
const THREAD: fn(Axis) -> LoopKind = LoopKind::Thread;

#[allow(non_snake_case, reason = "the tutorial's names")]
fn opt_conv_cuda(workload: &Workload) -> Result<Schedule, ScheduleError> {
    let mut s = Schedule::new(naive(workload));
    let [Apad, W, BL, B] = [s.stage("pad")?, s.stage("w")?, s.stage("acc")?, s.stage("y")?];

    // Designate the memory hierarchy
    s.compute_inline(Apad)?; // compute Apad inline
    let AA = s.cache_read(Apad, Scope::Shared, &[BL])?;
    let WW = s.cache_read(W, Scope::Shared, &[BL])?;
    let AL = s.cache_read(AA, Scope::Local, &[BL])?;
    let WL = s.cache_read(WW, Scope::Local, &[BL])?;
    s.set_scope(BL, Scope::Local)?;

    // tile consts
    let (tile, num_thread, step, vthread) = (8, 8, 8, 2);
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

    let [tyz, fi] = s.split_nparts(fi, vthread)?; // virtual thread split
    let [txz, ni] = s.split_nparts(ni, vthread)?; // virtual thread split
    let [ty, fi] = s.split_nparts(fi, num_thread)?;
    let [tx, ni] = s.split_nparts(ni, num_thread)?;
    s.reorder(&[bz, by, bx, tyz, txz, ty, tx, fi, ni])?;

    s.vthread(tyz)?;
    s.vthread(txz)?;
    s.bind(ty, THREAD(Axis::Y))?;
    s.bind(tx, THREAD(Axis::X))?;

    // Schedule BL local write
    s.compute_at(BL, tx)?;
    let [_yi, _xi, fi, ni, rc, ry, rx] = s.axes(BL)?;
    let [rco, rci] = s.split(rc, step, Tail::Perfect)?;
    s.reorder(&[rco, ry, rx, rci, fi, ni])?;

    // Attach computation to iteration variables
    s.compute_at(AA, rx)?;
    s.compute_at(WW, rx)?;
    s.compute_at(AL, rci)?;
    s.compute_at(WL, rci)?;

    // Schedule for A's shared memory load, then for W's
    for load in [AA, WW] {
        let [yi, xi, ci, ni] = s.axes(load)?;
        let [ty, ci] = s.split_nparts(ci, num_thread)?;
        let [tx, ni] = s.split_nparts(ni, num_thread)?;
        let [_, ni4] = s.split(ni, 4, Tail::Perfect)?;
        s.reorder(&[ty, tx, yi, xi, ci, ni4])?;
        s.bind(ty, THREAD(Axis::Y))?;
        s.bind(tx, THREAD(Axis::X))?;
        s.vectorize(ni4)?; // vectorize memory load
    }
    Ok(s)
}

fn main() -> ExitCode {
    tutorials::main(|| {
        // The sizes of inputs and filters: batch 256, 256 channels to 512, 14 x 14, 3 x 3
        let conv = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1) };
        show("opt_conv_cuda", opt_conv_cuda(&Workload::f32(conv))?)?;
        on_gpu(|dev| {
            let x = numbers::<f32, D4<14, 14, 256, 256>>(dev, |v| v)?;
            let w = numbers::<f32, D4<3, 3, 256, 512>>(dev, |v| v)?;
            let mut y = dev.zeros::<f32, D4<14, 14, 512, 256>>()?;
            let macs = 14 * 14 * 512 * 256 * 256 * 9;
            time(dev, "as written", macs, || as_written::opt_conv_cuda(dev, &x, &w, &mut y))?;
            time(dev, "chosen", macs, || chosen::opt_conv_cuda(dev, &x, &w, &mut y))
        })
    })
}
