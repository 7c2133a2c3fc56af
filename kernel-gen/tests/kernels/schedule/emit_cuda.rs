//! Scheduled kernels as CUDA: the emitted text computes what the interpreter computes.

use super::random::Random;
use super::tutorials::{Config, conv2d_hwcn, conv2d_nchw, conv2d_no_batching, factors, opt_conv_cuda};
use crate::cuda_on_cpu;
use kernel_gen::analysis::verify::{Limits, verify};
use kernel_gen::emit::cuda::{Arch, CudaOptions, CudaSource, emit};
use kernel_gen::interp::{self, Mode};
use kernel_gen::ir::{Axis, Kernel, LoopKind, Stmt, VarId};
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::schedule::{Schedule, ScheduleError, Tail};
use kernel_gen::stable::Rng;
use kernel_gen::workload::{naive, sample};

/// The CUDA of a schedule.
fn cuda(kernel: &Kernel) -> CudaSource {
    let verified =
        verify(insert_barriers(kernel.clone()), &Limits::cuda()).unwrap_or_else(|f| panic!("{}\n{kernel}", f[0]));
    let lowered = lower(verified, &LowerOptions::cuda()).unwrap_or_else(|e| panic!("{e}"));
    let arch = Arch::parse("sm_80").unwrap();
    let options = CudaOptions { arch, symbol: kernel.name.clone(), comment: "A test.".into(), min_blocks: None };
    let cuda = emit(&lowered, &options).unwrap_or_else(|e| panic!("{e}\n{}", lowered.kernel()));
    if let Some(folder) = std::env::var_os("KERNEL_GEN_KEEP_CUDA") {
        let name = format!("{}-{:08x}.cu", kernel.name, kernel_gen::stable::fnv1a(cuda.source.as_bytes()) as u32);
        std::fs::write(std::path::Path::new(&folder).join(name), &cuda.source).unwrap();
    }
    cuda
}

/// The emitted text, run, against the kernel that it was made from.
fn computes(before: &Kernel, scheduled: &Kernel) {
    let cuda = cuda(scheduled);
    let inputs = interp::seeded_inputs(before, 3);
    let want = interp::run(before, &inputs, Mode::Declared).unwrap();
    let got = cuda_on_cpu::build(scheduled, &cuda)
        .and_then(|program| program.run(&inputs))
        .unwrap_or_else(|e| panic!("{e}\n{scheduled}"));
    // The inputs are such that sums of products are exact; what remains is the rounding of functions and of 16 bits.
    let tolerance = if before.buffers.iter().any(|b| b.dtype.bytes() == 2) { 0.02 } else { 1e-4 };
    match interp::max_difference(&want, &got) {
        Some(d) if d <= tolerance => {}
        d => panic!("differs by {d:?}\n{scheduled}\n{}", cuda.source),
    }
}

#[test]
fn the_tuned_convolution_of_the_tutorial_runs_as_cuda() {
    for seed in 0..4 {
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
        let s = conv2d_no_batching(before.clone(), cfg).unwrap_or_else(|e| panic!("{e}"));
        computes(&before, &s.kernel);
    }
}

#[test]
fn the_optimised_convolution_of_the_tutorial_runs_as_cuda() {
    let before = conv2d_hwcn(16, 4, 16, 3, 3, 1);
    let s = opt_conv_cuda(before.clone()).unwrap_or_else(|e| panic!("{e}"));
    computes(&before, &s.kernel);
}

/// Loops that a reduction runs over.
fn reduce_loops(kernel: &Kernel) -> Vec<VarId> {
    let mut found = vec![];
    for s in &kernel.body {
        s.walk(&mut |s| {
            if let Stmt::Reduce { over, .. } = s {
                found.extend(over);
            }
        });
    }
    found
}

/// Binds every stage: elements on threads, runs of neighbours as vectors where nothing is reduced.
fn bound(r: &mut Random, before: &Kernel) -> Result<Kernel, ScheduleError> {
    let mut s = Schedule::new(before.clone());
    let stages: Vec<_> = (0..before.buffers.len()).filter_map(|b| s.stage(&before.buffers[b].name).ok()).collect();
    for stage in stages {
        let reduce = reduce_loops(&s.kernel);
        let loops = s.loops_of(stage);
        // Parameters that are only read are no stages of anything.
        if loops.is_empty() {
            continue;
        }
        let (inner, spatial): (Vec<VarId>, Vec<VarId>) = loops.iter().partition(|v| reduce.contains(v));
        let mut blocks = s.fuse_all(&spatial)?;
        let elements: i64 = before.buffer(stage).shape.iter().product();
        let lanes = r.pick(&[1, 2, 4, 8]);
        if inner.is_empty() && elements % lanes == 0 && lanes > 1 {
            let [outer, lane] = s.split(blocks, lanes, Tail::Perfect)?;
            s.vectorize(lane)?;
            blocks = outer;
        } else if let Some(last) = inner.last()
            && r.below(2) == 0
        {
            s.unroll(*last)?;
        }
        let [outer, thread] = s.split(blocks, r.pick(&[1, 4, 7, 32]), Tail::Guard)?;
        s.bind(outer, LoopKind::Grid(r.pick(&[Axis::X, Axis::Y])))?;
        s.bind(thread, LoopKind::Thread(r.pick(&[Axis::X, Axis::Z])))?;
    }
    Ok(s.kernel)
}

#[test]
fn random_operators_with_their_epilogues_run_as_cuda() {
    let mut ran = 0;
    for seed in 0..14 {
        let mut rng = Rng::new(seed);
        let workload = loop {
            let w = sample::workload(&mut rng);
            if w.macs() <= 30_000 {
                break w;
            }
        };
        let before = naive(&workload);
        let scheduled = bound(&mut Random(seed), &before).unwrap_or_else(|e| panic!("{e}\n{before}"));
        // Vectors may turn out misaligned, which the verifier refuses.
        if verify(scheduled.clone(), &Limits::cuda()).is_ok() {
            computes(&before, &scheduled);
            ran += 1;
        }
    }
    assert!(ran >= 8, "{ran}");
}
