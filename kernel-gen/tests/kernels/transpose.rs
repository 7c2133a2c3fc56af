//! Transposed tiles, from memory and from registers, in every size that meets another path.

use crate::compiled;
use kernel_gen::analysis::verify::{Limits, verify};
use kernel_gen::emit::c::{COptions, Isa, emit};
use kernel_gen::interp::{self, Mode};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::parse::parse;
use kernel_gen::ir::{Access, DType, Expr, Kernel, LoopKind, Scope, Stmt, Tile, visit};
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::toolchain::harness::RunOptions;

/// `y[t, 1 + j, 2 + i] = x[t, i, j]`, through registers or straight.
fn kernel(m: i64, n: i64, registers: bool) -> Kernel {
    let mut b = KernelBuilder::new("turn");
    let x = b.param("x", DType::F32, &[3, m, n], Access::Read);
    let y = b.param("y", DType::F32, &[3, n + 1, m + 2], Access::Write);
    b.nest(&[("t0", 3), ("r", n + 1), ("c", m + 2)], |b, v| {
        b.store(y, v.iter().map(|v| Expr::Var(*v)).collect::<Vec<_>>(), Expr::f32(0.5));
    });
    b.for_("t", 3, |b, t| {
        let dst = Tile { buffer: y, origin: vec![t.into(), 1.into(), 2.into()], extents: vec![1, n, m] };
        let src = if registers {
            let acc = b.alloc("acc", DType::F32, &[m, n], Scope::Register);
            b.nest(&[("i", m), ("j", n)], |b, v| {
                let value = Expr::load(x, vec![t.into(), v[0].into(), v[1].into()]);
                b.store(acc, [v[0].into(), v[1].into()], value);
            });
            Tile { buffer: acc, origin: vec![0.into(), 0.into()], extents: vec![m, n] }
        } else {
            Tile { buffer: x, origin: vec![t.into(), 0.into(), 0.into()], extents: vec![1, m, n] }
        };
        b.push(Stmt::Transpose { dst, src });
    });
    let mut kernel = b.finish();
    for (name, kind) in [("i", LoopKind::Unrolled), ("j", LoopKind::Vectorized)] {
        if let Some(l) = kernel.find_var(name).and_then(|v| visit::find_loop_mut(&mut kernel.body, v)) {
            l.kind = kind;
        }
    }
    kernel
}

#[test]
fn tiles_of_any_size_are_transposed_on_every_level() {
    for isa in Isa::ALL.into_iter().filter(|i| i.runs_here()) {
        for (m, n, registers) in [
            (14, 16, true),
            (16, 16, false),
            (20, 37, false),
            (7, 32, true),
            (3, 5, true),
            (17, 3, false),
            (1, 9, false),
        ] {
            let kernel = kernel(m, n, registers);
            let inputs = interp::seeded_inputs(&kernel, 1);
            let want = interp::run(&kernel, &inputs, Mode::F64).unwrap();
            let lowered = lower(verify(kernel.clone(), &Limits::cpu()).unwrap(), &LowerOptions::cpu()).unwrap();
            let options = COptions { isa, symbol: "turn".into(), comment: String::new() };
            let source = emit(&lowered, &options).unwrap_or_else(|e| panic!("{m} {n} {registers}: {e}"));
            let program = compiled::program(&source, &kernel).unwrap_or_else(|e| panic!("{e}"));
            let got = program.run(&[inputs["x"].clone(), vec![]], &RunOptions::default()).unwrap();
            assert_eq!(got[1], want["y"], "{m} x {n}, registers {registers}, {}\n{}", isa.name(), source.source);
        }
    }
}

/// What is left of a tile that was turned in long vectors is stored in short ones. GCC makes one instruction of taking a
/// part of a vector and storing some of its lanes, and that one faults for lanes that are not stored.
#[test]
fn the_end_of_a_turned_tile_is_stored_where_memory_ends_behind_it() {
    for isa in Isa::ALL.into_iter().filter(|i| i.runs_here()) {
        for pixels in [3, 5] {
            let text = format!(
                "kernel tail {{
  param x: f32[3, {pixels}, 16] global read
  param y: f32[3, 16, {pixels}] global write
  for t in 0..3 parallel {{
    alloc acc: f32[{pixels}, 16] local
    for p in 0..{pixels} {{
      for l in 0..16 vectorized {{
        acc[p, l] = x[t, p, l] + 1.0f32
      }}
    }}
    for c in 0..16 unrolled {{
      for q in 0..{pixels} vectorized {{
        y[t, c, q] = acc[q, c]
      }}
    }}
  }}
}}
"
            );
            let kernel = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let inputs = interp::seeded_inputs(&kernel, 1);
            let want = interp::run(&kernel, &inputs, Mode::F64).unwrap();
            let lowered = lower(verify(kernel.clone(), &Limits::cpu()).unwrap(), &LowerOptions::cpu()).unwrap();
            let options = COptions { isa, symbol: "tail".into(), comment: String::new() };
            let source = emit(&lowered, &options).unwrap();
            let program = compiled::program(&source, &kernel).unwrap_or_else(|e| panic!("{e}"));
            let got = program.run(&[inputs["x"].clone(), vec![]], &RunOptions::default());
            let got = got.unwrap_or_else(|e| panic!("{e} ({})\n{}", isa.name(), source.source));
            assert_eq!(got[1], want["y"], "{pixels} pixels, {}", isa.name());
        }
    }
}
