//! Random operators under random schedules: every pass keeps what the interpreter computes, and the compiled C computes
//! the same.

use crate::compiled;
use kernel_gen::analysis::verify::{Limits, verify};
use kernel_gen::emit::c::{COptions, Isa, emit};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::{Access, BufferId, Kernel, LoopKind, Pragma, Scope, VarId, visit};
use kernel_gen::lower::{LowerOptions, Lowered, lower};
use kernel_gen::schedule::Schedule;
use kernel_gen::schedule::split::Tail;
use kernel_gen::stable::Rng;
use kernel_gen::toolchain::harness::RunOptions;
use kernel_gen::workload::{naive, sample};

/// A small operator with a schedule of random steps; steps that do not apply are skipped.
fn scheduled(seed: u64) -> (String, Kernel, Kernel) {
    let mut rng = Rng::new(seed);
    let workload = loop {
        let w = sample::workload(&mut rng);
        if w.macs() <= 60_000 {
            break w;
        }
    };
    let plain = naive(&workload);
    let mut s = Schedule::new(plain.clone());
    let stages: Vec<_> = (0..plain.buffers.len()).filter_map(|b| s.stage(&plain.buffers[b].name).ok()).collect();
    for stage in stages {
        for var in s.loops_of(stage) {
            if rng.one_in(2) {
                let factor = *rng.pick(&[2, 3, 4, 5, 8, 16]);
                let tail = *rng.pick(&[Tail::Guard, Tail::Guard, Tail::Perfect, Tail::Cut]);
                let _ = s.split(var, factor, tail);
            }
        }
        let mut loops = s.loops_of(stage);
        for i in (1..loops.len()).rev() {
            if rng.one_in(2) {
                loops.swap(i, rng.below(i as u64 + 1) as usize);
            }
        }
        let _ = s.reorder(&loops);
        let loops = s.loops_of(stage);
        if rng.one_in(3) && loops.len() > 2 {
            let _ = s.fuse(loops[0], loops[1]);
        }
        let loops = s.loops_of(stage);
        if let Some(outer) = loops.first() {
            let _ = s.parallel(*outer);
        }
        if let Some(inner) = loops.last()
            && !rng.one_in(4)
        {
            let _ = s.vectorize(*inner);
        }
        for var in &loops {
            let extent = extent(&s.kernel, *var);
            match rng.below(8) {
                0 | 1 if extent <= 6 => drop(s.unroll(*var)),
                2 if extent <= 4 => drop(s.vthread(*var)),
                3 => drop(s.pragma(*var, Pragma::AutoUnrollMaxStep(12))),
                4 => drop(s.pragma(*var, Pragma::UnrollExplicit(false))),
                _ => {}
            }
        }
    }
    if rng.one_in(2) {
        place(&mut s, &mut rng);
        // What is in registers must be unrolled or vectorised; not every random schedule does that.
        if verify(s.kernel.clone(), &Limits::cpu()).is_err() {
            return scheduled(seed + 1_000_000);
        }
    }
    let steps: Vec<String> = s.trace.iter().map(|t| format!("{}({})", t.name, t.args.join(", "))).collect();
    (format!("seed {seed}: {} with {}", workload.key(), steps.join("; ")), plain, s.kernel)
}

/// Random caches, attached stages and tile intrinsics, where they apply.
fn place(s: &mut Schedule, rng: &mut Rng) {
    for _ in 0..rng.below(6) {
        let buffer = BufferId(rng.below(s.kernel.buffers.len() as u64) as u32);
        let loops: Vec<VarId> = visit::loops(&s.kernel.body).iter().map(|l| l.var).collect();
        let Some(at) = loops.get(rng.below(loops.len().max(1) as u64) as usize).copied() else { return };
        let scope = *rng.pick(&[Scope::Local, Scope::Local, Scope::Register]);
        match rng.below(8) {
            0 | 1 => drop(s.cache_write_at(buffer, at, scope)),
            2 | 3 => drop(s.cache_read_at(buffer, at, scope)),
            4 => drop(s.compute_at(buffer, at)),
            5 => drop(s.compute_inline(buffer)),
            6 => drop(s.set_scope(buffer, scope)),
            _ => drop(s.rfactor(buffer, at)),
        }
        if rng.one_in(2) {
            for var in s.loops_of(buffer) {
                if extent(&s.kernel, var) <= 8 {
                    let _ = s.unroll(var);
                }
            }
        }
    }
}

fn extent(k: &Kernel, var: VarId) -> i64 {
    visit::find_loop(&k.body, var).map_or(1, |l| l.extent)
}

fn run(kernel: &Kernel, inputs: &Values, what: &str) -> Values {
    interp::run(kernel, inputs, Mode::Declared).unwrap_or_else(|e| panic!("{what}: {e}\n{kernel}"))
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let count = std::env::var("KERNEL_GEN_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(default);
    let first = std::env::var("KERNEL_GEN_FIRST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    first..first + count
}

fn lowered(kernel: &Kernel, what: &str) -> Lowered {
    lower(verify(kernel.clone(), &Limits::cpu()).unwrap(), &LowerOptions::cpu())
        .unwrap_or_else(|e| panic!("{what}: {e}\n{kernel}"))
}

#[test]
fn every_pass_keeps_what_a_kernel_computes() {
    for seed in seeds(60) {
        let (what, plain, kernel) = scheduled(seed);
        let inputs = interp::seeded_inputs(&plain, seed);
        // In f64 the order of sums matters less than this.
        let want = interp::run(&plain, &inputs, Mode::F64).unwrap();
        let close = |got: &Values| interp::max_difference(&want, got).is_some_and(|difference| difference < 1e-9);
        let got = interp::run(&kernel, &inputs, Mode::F64).unwrap_or_else(|e| panic!("{what}: {e}\n{kernel}"));
        assert!(close(&got), "{what}: the schedule is wrong\n{kernel}");
        for snapshot in lowered(&kernel, &what).trace() {
            if !snapshot.changed {
                continue;
            }
            let got = interp::run(&snapshot.kernel, &inputs, Mode::F64)
                .unwrap_or_else(|e| panic!("{what}\nafter {}: {e}\n{}", snapshot.pass, snapshot.kernel));
            assert!(close(&got), "{what}\nafter {}:\nbefore {kernel}\nafter {}", snapshot.pass, snapshot.kernel);
        }
    }
}

#[test]
fn nothing_is_left_that_the_emitter_cannot_say() {
    for seed in seeds(60) {
        let (what, _, kernel) = scheduled(seed);
        let lowered = lowered(&kernel, &what);
        for l in visit::loops(&lowered.kernel().body) {
            assert!(
                matches!(l.kind, LoopKind::Serial | LoopKind::Parallel | LoopKind::Unrolled),
                "{what}: a {} loop is left",
                l.kind.name()
            );
        }
        for isa in Isa::ALL {
            emit(&lowered, &options(isa)).unwrap_or_else(|e| panic!("{what}: {e}\n{}", lowered.kernel()));
        }
    }
}

fn options(isa: Isa) -> COptions {
    COptions { isa, symbol: "k".into(), comment: "a test".into() }
}

#[test]
fn the_compiled_c_computes_what_the_interpreter_computes() {
    let levels: Vec<Isa> = Isa::ALL.into_iter().filter(|i| i.runs_here()).collect();
    for seed in seeds(12) {
        let (what, plain, kernel) = scheduled(seed);
        let isa = levels[seed as usize % levels.len()];
        let values = interp::seeded_inputs(&plain, seed);
        let want = run(&plain, &values, &what);
        let source = emit(&lowered(&kernel, &what), &options(isa)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let program = compiled::program(&source, &kernel).unwrap_or_else(|e| panic!("{what}: {e}"));
        let inputs: Vec<Vec<f64>> =
            program.params().iter().map(|p| values.get(&p.name).cloned().unwrap_or_default()).collect();
        let got = program
            .run(&inputs, &RunOptions::default())
            .unwrap_or_else(|e| panic!("{what} {}: {e}\n{}", isa.name(), source.source));
        for (p, got) in program.params().iter().zip(got).filter(|(p, _)| p.access != Access::Read) {
            for (i, (g, w)) in got.iter().zip(&want[&p.name]).enumerate() {
                // Inputs are multiples of 1/64, so sums are exact; what follows rounds, in 16 bits at worst.
                let unit = if p.dtype.bytes() == 2 { 1.0 / 64.0 } else { 1e-5 };
                assert!(
                    g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= unit * w.abs().max(1.0),
                    "{what} {}: {}[{i}] = {g}, not {w}\n{}",
                    isa.name(),
                    p.name,
                    source.source
                );
            }
        }
    }
}

/// `cargo test -p kernel-gen --test kernels lowering::print_one -- --ignored --nocapture` with `KERNEL_GEN_FIRST_SEED`.
#[test]
#[ignore = "prints one case"]
fn print_one() {
    let seed = seeds(1).start;
    let (what, _, kernel) = scheduled(seed);
    let lowered = lowered(&kernel, &what);
    println!("{what}\n{kernel}\n{}\n{}", lowered.kernel(), emit(&lowered, &options(Isa::best_here())).unwrap().source);
}

#[test]
fn the_verifier_passes_scheduled_and_lowered_kernels() {
    let limits = kernel_gen::analysis::verify::Limits::cpu();
    let mut worst = std::time::Duration::ZERO;
    for seed in seeds(60) {
        let (what, _, kernel) = scheduled(seed);
        let lowered = lowered(&kernel, &what);
        for (stage, k) in [("scheduled", &kernel), ("lowered", lowered.kernel())] {
            let start = std::time::Instant::now();
            let faults: Vec<String> =
                kernel_gen::analysis::verify::check(k, &limits).iter().map(ToString::to_string).collect();
            worst = worst.max(start.elapsed());
            assert!(faults.is_empty(), "{what}\n{stage}: {}\n{k}", faults.join("\n"));
        }
    }
    println!("the slowest took {worst:?}");
}
