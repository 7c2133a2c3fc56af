//! "Optimize Deep Learning GPU Operators with TVM: A Depthwise Convolution Example" (Yuwei Hu, TVM blog, 2017).
//!
//! The library's template `depthwise_cuda` is this schedule with knobs for its constants.

use kernel_gen::ir::{Axis, LoopKind, Scope};
use kernel_gen::schedule::{Schedule, ScheduleError, Tail};
use kernel_gen::workload::{Conv2d, Workload, naive};
use kernel_gen_runtime::{D4, Device};
use std::process::ExitCode;
use tutorials::{as_written, chosen, numbers, on_gpu, show, time};

const BLOCK: fn(Axis) -> LoopKind = LoopKind::Grid;
const THREAD: fn(Axis) -> LoopKind = LoopKind::Thread;

#[allow(non_snake_case, reason = "the article's names")]
fn depthwise_conv2d(workload: &Workload) -> Result<Schedule, ScheduleError> {
    let mut s = Schedule::new(naive(workload));
    let [PaddedInput, Filter] = [s.stage("pad")?, s.stage("w")?];
    let [DepthwiseConv2d, Output] = [s.stage("acc")?, s.stage("y")?];

    // padding is a stage of its own, inlined to avoid another allocation
    s.compute_inline(PaddedInput)?;
    let IS = s.cache_read(PaddedInput, Scope::Shared, &[DepthwiseConv2d])?;
    let FS = s.cache_read(Filter, Scope::Shared, &[DepthwiseConv2d])?;
    s.set_scope(DepthwiseConv2d, Scope::Local)?;

    // one 32 x 32 block of one channel to one CUDA block
    let (blocking_h, blocking_w) = (32, 32);
    let (num_thread_y, num_thread_x) = (8, 8);
    let (num_vthread_y, num_vthread_x) = (2, 2);
    let [n, c, h, w] = s.axes(Output)?;
    let [bx1, h] = s.split(h, blocking_h, Tail::Perfect)?;
    let [bx2, w] = s.split(w, blocking_w, Tail::Perfect)?;

    // split the dimensions of height and width twice
    let [tvy, vyi] = s.split_nparts(h, num_vthread_y)?;
    let [ty, yi] = s.split_nparts(vyi, num_thread_y)?;
    let [tvx, vxi] = s.split_nparts(w, num_vthread_x)?;
    let [tx, xi] = s.split_nparts(vxi, num_thread_x)?;
    s.reorder(&[n, c, bx1, bx2, tvy, tvx, ty, tx, yi, xi])?;
    let by = s.fuse(n, c)?;
    s.bind(by, BLOCK(Axis::Y))?;
    let bx = s.fuse(bx1, bx2)?;
    s.bind(bx, BLOCK(Axis::X))?;

    // bind thread and vthread respectively
    s.vthread(tvy)?;
    s.vthread(tvx)?;
    s.bind(ty, THREAD(Axis::Y))?;
    s.bind(tx, THREAD(Axis::X))?;
    s.compute_at(DepthwiseConv2d, tx)?;
    s.compute_at(IS, tx)?;
    s.compute_at(FS, tx)?;

    // both are fetched by all threads together
    for load in [IS, FS] {
        let loops = s.loops_of(load);
        let all = s.fuse_all(&loops)?;
        let threads = if load == IS { num_thread_y * num_thread_x } else { num_thread_x };
        let [_, thread] = s.split(all, threads, Tail::Guard)?;
        let [ty, tx] = s.split(thread, num_thread_x, Tail::Perfect)?;
        s.bind(ty, THREAD(Axis::Y))?;
        s.bind(tx, THREAD(Axis::X))?;
    }
    Ok(s)
}

fn main() -> ExitCode {
    tutorials::main(|| {
        let workload = Workload::f32(Conv2d::nchw(1, 256, 96, 96, 256, 3, 1, 1).depthwise(1));
        show("depthwise_conv2d", depthwise_conv2d(&workload)?)?;
        on_gpu(|dev| {
            let x = numbers::<f32, D4<1, 256, 96, 96>>(dev, |v| v)?;
            let w = numbers::<f32, D4<256, 1, 3, 3>>(dev, |v| v)?;
            let mut y = dev.zeros::<f32, D4<1, 256, 96, 96>>()?;
            let macs = 256 * 96 * 96 * 9;
            time(dev, "as written", macs, || as_written::depthwise(dev, &x, &w, &mut y))?;
            time(dev, "chosen", macs, || chosen::depthwise(dev, &x, &w, &mut y))
        })
    })
}
