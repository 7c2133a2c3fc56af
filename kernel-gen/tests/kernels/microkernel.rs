//! Register-tiled kernels through lowering, the C emitter and the compiler: right, and near the machine's peak.

use crate::compiled;
use kernel_gen::analysis::verify::{Limits, verify};
use kernel_gen::emit::c::{COptions, CSource, Isa, emit};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::{Access, DType, Expr, Kernel, LoopKind, Scope, Stmt};
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::toolchain::harness::{RunOptions, TimeOptions};
use std::time::Duration;

/// `c[i, j] += a[k, i] * b[k, j]` with the whole of `c` in registers, written back at the end.
fn tile_kernel(m: i64, n: i64, k: i64, tiles: i64) -> Kernel {
    let mut b = KernelBuilder::new("tile");
    let a = b.param("a", DType::F32, &[tiles, k, m], Access::Read);
    let w = b.param("b", DType::F32, &[k, n], Access::Read);
    let c = b.param("c", DType::F32, &[tiles, m, n], Access::Write);
    b.for_("t", tiles, |b, t| {
        let acc = b.alloc("acc", DType::F32, &[m, n], Scope::Register);
        b.for_("k", k, |b, k| {
            b.nest(&[("i", m), ("j", n)], |b, v| {
                let value =
                    Expr::load(a, vec![t.into(), k.into(), v[0].into()]) * Expr::load(w, vec![k.into(), v[1].into()]);
                b.sum(acc, [v[0].into(), v[1].into()], value, &[k]);
            });
        });
        b.nest(&[("i", m), ("j", n)], |b, v| {
            let value = Expr::load(acc, vec![v[0].into(), v[1].into()]);
            b.store(c, [t.into(), v[0].into(), v[1].into()], value);
        });
    });
    let mut kernel = b.finish();
    set_kinds(
        &mut kernel.body,
        &|name| match name.split('_').next() {
            Some("t") => LoopKind::Parallel,
            Some("i") => LoopKind::Unrolled,
            Some("j") => LoopKind::Vectorized,
            _ => LoopKind::Serial,
        },
        &kernel.vars.iter().map(|v| v.name.clone()).collect::<Vec<_>>(),
    );
    kernel
}

fn set_kinds(block: &mut [Stmt], kind: &dyn Fn(&str) -> LoopKind, names: &[String]) {
    for s in block {
        match s {
            Stmt::For(l) => {
                l.kind = kind(&names[l.var.0 as usize]);
                set_kinds(&mut l.body, kind, names);
            }
            Stmt::If { then, otherwise, .. } => {
                set_kinds(then, kind, names);
                set_kinds(otherwise, kind, names);
            }
            _ => {}
        }
    }
}

fn source(kernel: &Kernel, isa: Isa) -> CSource {
    let lowered = lower(verify(kernel.clone(), &Limits::cpu()).unwrap(), &LowerOptions::cpu()).unwrap();
    emit(&lowered, &COptions { isa, symbol: "tile".into(), comment: "a register tile".into() }).unwrap()
}

fn ramp(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) as f64 / (1u64 << 24) as f64) - 0.5
        })
        .collect()
}

fn check(m: usize, n: usize, k: usize, isa: Isa) {
    let tiles = 4;
    let kernel = tile_kernel(m as i64, n as i64, k as i64, tiles as i64);
    let program = compiled::program(&source(&kernel, isa), &kernel).unwrap();
    let (a, b) = (ramp(tiles * k * m, 1), ramp(k * n, 2));
    let out = program.run(&[a.clone(), b.clone(), vec![]], &RunOptions::default()).unwrap();
    for t in 0..tiles {
        for i in 0..m {
            for j in 0..n {
                let want: f64 =
                    (0..k).map(|kk| f64::from(a[(t * k + kk) * m + i] as f32) * f64::from(b[kk * n + j] as f32)).sum();
                let got = out[2][(t * m + i) * n + j];
                assert!((got - want).abs() <= 1e-6 * k as f64, "{m}x{n}x{k} {isa:?} [{t},{i},{j}]: {got} {want}");
            }
        }
    }
}

#[test]
fn register_tiles_of_any_width_are_right_on_every_level_that_runs_here() {
    for isa in Isa::ALL.into_iter().filter(|i| i.runs_here()) {
        for (m, n) in [(14, 32), (8, 48), (6, 64), (3, 7), (5, 16), (2, 23), (4, 1), (3, 3)] {
            check(m, n, 19, isa);
        }
    }
}

/// Run by hand: `cargo test --release -p kernel-gen --test kernels microkernel:: -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, which other load disturbs"]
fn register_tiles_reach_95_percent_of_the_measured_peak() {
    let isa = Isa::best_here();
    let mut slow = vec![];
    for (m, n) in [(14, 32), (12, 32), (8, 48), (6, 64), (13, 32), (9, 48), (7, 32)] {
        let (k, tiles) = (384, 8);
        let kernel = tile_kernel(m, n, k, tiles);
        let program = compiled::program(&source(&kernel, isa), &kernel).unwrap();
        let inputs = [ramp((tiles * k * m) as usize, 1), ramp((k * n) as usize, 2), vec![]];
        let t = program
            .time(
                &inputs,
                &TimeOptions { samples: 99, min_sample: Duration::from_micros(300), ..TimeOptions::default() },
            )
            .unwrap();
        // The best of many short samples on both sides: what another process takes does not count.
        let peak = t.peak_gflops.iter().copied().fold(0.0, f64::max);
        let gflops = (2 * m * n * k * tiles) as f64 / t.best_ns();
        let share = gflops / peak * 100.0;
        println!("{m:>2} x {n}: {gflops:6.1} GFLOP/s, {share:5.1} % of {peak:.1}");
        if share < 95.0 {
            slow.push((m, n));
        }
    }
    assert!(slow.is_empty(), "below 95 %: {slow:?}");
}

#[test]
#[ignore = "prints the source"]
fn print_source() {
    println!("{}", source(&tile_kernel(3, 23, 8, 2), Isa::best_here()).source);
}
