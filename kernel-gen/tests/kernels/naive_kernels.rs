//! The naive kernel of a workload computes what the operator's plain definition does.

use kernel_gen::analysis::verify::verify;
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::DType;
use kernel_gen::target::Target;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Matmul, Op, Workload, naive, reference_with_bounds};

/// Runs the naive kernel in exact and in declared arithmetic and holds both against the reference; gives the largest
/// share of the error bound that declared arithmetic took.
pub(crate) fn check(workload: &Workload, seed: u64) -> f64 {
    workload.validate().unwrap_or_else(|e| panic!("{}: {e}", workload.key()));
    let kernel = naive(workload);
    let inputs = sample::inputs(workload, &mut Rng::new(seed));
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let expected = reference_with_bounds(workload, &views);
    let params = workload.params();
    let output = params.last().expect("the output").name;
    let values: Values = params.iter().zip(&inputs).map(|(p, values)| (p.name.to_string(), values.clone())).collect();
    let run = |mode| {
        let mut out =
            interp::run(&kernel, &values, mode).unwrap_or_else(|e| panic!("{}: {e}\n{kernel}", workload.key()));
        out.remove(output).expect("the output is a parameter")
    };
    let exact = run(Mode::F64);
    assert_eq!(exact.len(), expected.values.len());
    for (i, (got, want)) in exact.iter().zip(&expected.values).enumerate() {
        let same = got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= 1e-11 * want.abs().max(1.0);
        assert!(same, "{}: element {i}: {got} != {want}", workload.key());
    }
    expected.check(run(Mode::Declared)).unwrap_or_else(|m| panic!("{}: {m}", workload.key()))
}

#[test]
fn random_workloads_agree_with_the_reference() {
    let mut rng = Rng::new(2024);
    let mut largest: f64 = 0.0;
    for i in 0..80 {
        let mut workload = sample::workload(&mut rng);
        // Small ones: the interpreter runs some ten million steps a second.
        while workload.macs() > 60_000 {
            workload = sample::workload(&mut rng);
        }
        largest = largest.max(check(&workload, i));
    }
    // A bound that no error comes near would find nothing.
    assert!((0.05..=1.0).contains(&largest), "{largest}");
}

#[test]
fn random_pairs_of_convolutions_agree_with_the_reference() {
    let mut rng = Rng::new(2025);
    for i in 0..30 {
        let mut workload = Workload::f32(sample::pair(&mut rng)).with_epilogue(&sample::epilogue(&mut rng));
        while workload.validate().is_err() || workload.macs() > 60_000 {
            workload.op = sample::pair(&mut rng).into();
        }
        if i % 4 == 0 {
            workload = Workload { dtype: DType::F16, ..workload };
        }
        check(&workload, i);
    }
}

#[test]
fn the_verifier_passes_naive_kernels() {
    let limits = Target::find("x86-64").expect("built in").limits();
    let mut rng = Rng::new(99);
    for _ in 0..150 {
        let workload = sample::workload(&mut rng);
        let kernel = naive(&workload);
        if let Err(faults) = verify(kernel.clone(), &limits) {
            panic!("{}\n{kernel}", faults[0]);
        }
    }
}

#[test]
fn every_layout_agrees_grouped_and_depthwise() {
    let base =
        Conv2d { stride: [2, 1], padding: [1, 0, 2, 1], dilation: [1, 2], ..Conv2d::nchw(2, 32, 5, 6, 32, 3, 1, 0) };
    let mut seed = 0;
    let tiles = ConvLayout::NhwcNc(16);
    let conv = Conv2d { layout: tiles, n: 16, ..base };
    for (i, conv) in [conv, Conv2d { padding: [0; 4], ..conv }].into_iter().enumerate() {
        check(&Workload::f32(conv).with_epilogue(&[Epilogue::Scale, Epilogue::ResidualAdd]), i as u64);
    }
    for layout in ConvLayout::ALL.into_iter().filter(|l| *l != tiles) {
        let base = Conv2d { layout, ..base };
        for conv in [
            base,
            Conv2d { groups: 2, ..base },
            // A block of 16 output channels spans two groups of 8.
            Conv2d { groups: 4, ..base },
            base.depthwise(1),
            base.depthwise(3),
            Conv2d { padding: [0; 4], ..base },
        ] {
            seed += 1;
            let epilogue = [Epilogue::Scale, Epilogue::ResidualAdd, Epilogue::Relu];
            check(&Workload::f32(conv).with_epilogue(&epilogue), seed);
        }
    }
}

#[test]
fn every_epilogue_and_storage_type_agrees() {
    let conv = Workload::f32(Conv2d::nchw(1, 3, 6, 5, 4, 3, 1, 1));
    let product = Workload::f32(Matmul::new(5, 7, 9));
    for (i, step) in Epilogue::ALL.into_iter().enumerate() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for workload in [&conv, &product] {
                let workload = workload.clone().with_dtype(dtype).with_epilogue(&[step]);
                check(&workload, i as u64);
                check(&Workload { out_dtype: DType::F32, ..workload }, i as u64);
            }
        }
    }
}

#[test]
fn every_transposition_agrees() {
    for batch in [1, 3] {
        for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let product = Matmul { batch, trans_a, trans_b, ..Matmul::new(5, 4, 7) };
            check(&Workload::f32(product).with_epilogue(&[Epilogue::Bias, Epilogue::Gelu]), 3);
        }
    }
}

#[test]
fn stages_and_loops_have_the_documented_names() {
    let conv = Conv2d::nchw(1, 8, 6, 6, 4, 3, 1, 1);
    for (op, stages, loops) in [
        (Op::from(conv), &["pad", "acc", "y"][..], &["n", "co", "oh", "ow", "ci", "kh", "kw"][..]),
        (Conv2d { padding: [0; 4], ..conv }.into(), &["acc", "y"], &["n", "co", "oh", "ow", "ci", "kh", "kw"]),
        (Conv2d { groups: 2, ..conv }.into(), &["pad", "acc", "y"], &["n", "g", "co", "oh", "ow", "ci", "kh", "kw"]),
        (conv.depthwise(1).into(), &["pad", "acc", "y"], &["n", "c", "oh", "ow", "kh", "kw"]),
        (conv.depthwise(2).into(), &["pad", "acc", "y"], &["n", "c", "m", "oh", "ow", "kh", "kw"]),
        (Matmul::new(2, 3, 4).into(), &["acc", "c"], &["i", "j", "k"]),
        (Matmul { batch: 2, ..Matmul::new(2, 3, 4) }.into(), &["acc", "c"], &["bt", "i", "j", "k"]),
    ] {
        let kernel = naive(&Workload::f32(op));
        for stage in stages {
            assert!(kernel.find_buffer(stage).is_some(), "{stage}\n{kernel}");
        }
        assert_eq!(kernel.find_buffer("pad").is_some(), stages.contains(&"pad"));
        for name in loops {
            assert!(kernel.find_var(name).is_some(), "{name}\n{kernel}");
        }
        assert!(!kernel.vars.iter().any(|v| v.name.ends_with("_1")), "a name clashed\n{kernel}");
    }
}

#[test]
fn a_naive_kernel_reads_like_the_operator() {
    let conv = Conv2d { stride: [2, 1], padding: [1, 0, 0, 1], ..Conv2d::nchw(1, 8, 6, 6, 4, 3, 1, 0) };
    let kernel = naive(&Workload::f32(conv).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]));
    assert_eq!(
        kernel.to_string(),
        "\
kernel conv2d_nchw_f32_n1c8h6w6_o4k3x3_s2x1_p1_0_0_1_d1x1_g1_bias_relu {
  param x: f32[1, 8, 6, 6] global read
  param w: f32[4, 8, 3, 3] global read
  param bias: f32[4] global read
  param y: f32[1, 4, 3, 5] global write
  alloc pad: f32[1, 8, 7, 7] global
  for n_pad in 0..1 {
    for ci_pad in 0..8 {
      for h_pad in 0..7 {
        for w_pad in 0..7 {
          pad[n_pad, ci_pad, h_pad, w_pad] = select(1 <= h_pad && w_pad < 6, x[n_pad, ci_pad, h_pad - 1, w_pad], 0.0f32)
        }
      }
    }
  }
  alloc acc: f32[1, 4, 3, 5] global
  for n in 0..1 {
    for co in 0..4 {
      for oh in 0..3 {
        for ow in 0..5 {
          for ci in 0..8 {
            for kh in 0..3 {
              for kw in 0..3 {
                acc[n, co, oh, ow] += pad[n, ci, oh * 2 + kh, ow + kw] * w[co, ci, kh, kw] init 0.0f32 over (ci, kh, kw)
              }
            }
          }
        }
      }
    }
  }
  for n_out in 0..1 {
    for co_out in 0..4 {
      for oh_out in 0..3 {
        for ow_out in 0..5 {
          y[n_out, co_out, oh_out, ow_out] = max(acc[n_out, co_out, oh_out, ow_out] + bias[co_out], 0.0f32)
        }
      }
    }
  }
}
"
    );
}
