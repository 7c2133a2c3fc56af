//! Norms and softmax, case by case: rows of one warp and of several, rows that vectors and warps do not fill, and more rows
//! than blocks have.

use crate::checked;
use crate::cpu_templates::{self, Way};
use kernel_gen::analysis::verify::{Limits, verify};
use kernel_gen::ir::DType;
use kernel_gen::target::Target;
use kernel_gen::templates::cpu::plain::Plain;
use kernel_gen::templates::cuda::rows::Rows;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::{Epilogue, Workload, error_bound, reference};

#[test]
fn rows_of_any_length_compute_what_the_reference_does() {
    for (key, config) in [
        ("softmax-f32-m5n1000", "warps=1 rows=2 vector=4"),
        ("softmax-f32-m3n1000", "warps=4 rows=4 vector=2"),
        ("softmax-f16.f32-m2n2048", "warps=8 rows=1 vector=8"),
        ("softmax-bf16-m9n33-scale.residual_add", "warps=1 rows=8 vector=1"),
        ("layer_norm-f32-m3n768-e6-scale", "warps=2 rows=2 vector=4"),
        ("layer_norm-f16-m7n768-e6-scale.gelu", "warps=1 rows=4 vector=8"),
        ("layer_norm-f16-m2n4098-e5", "warps=32 rows=1 vector=2"),
        ("rms_norm-f32-m4n97-e12-multiply", "warps=2 rows=2 vector=1"),
        ("rms_norm-f32-m1n1-e5", "warps=1 rows=1 vector=1"),
        // Groups of channels, and what rows come to.
        ("group_norm-f32-n3c6p10-g2-e5-scale.relu", "warps=1 rows=4 vector=2"),
        ("group_norm-f16-n2c8p77-g4-e5-scale", "warps=2 rows=1 vector=1"),
        ("reduce_mean-f32-3x5x7x7-r0x0x1x1-bias", "warps=1 rows=8 vector=1"),
        ("reduce_max-f16-2x3x256-r0x0x1-residual_add", "warps=4 rows=2 vector=2"),
        // Rows that no block holds.
        ("softmax-f32-m2n33001", "warps=8 rows=1 vector=1"),
        ("group_norm-f32-n1c4p17000-g2-e5-scale", "warps=32 rows=1 vector=4"),
        ("reduce_sum-f16-1x70000-r0x1", "warps=16 rows=1 vector=8"),
    ] {
        let workload = Workload::from_key(key).expect("a key");
        let text = checked::check(&Rows, &workload, "sm_90", config);
        let warps = config.starts_with("warps=1 ");
        assert_eq!(text.contains("__syncthreads"), !warps, "{text}");
    }
}

#[test]
fn rows_of_every_length_are_taken_and_read_once_where_they_fit_registers() {
    let target = Target::find("sm_90a").expect("built in");
    let takes = |key: &str| {
        let workload = Workload::from_key(key).expect("a key");
        let all = Registry::builtin();
        all.applicable(&workload, target).map(|t| t.name().to_string()).collect::<Vec<_>>()
    };
    for (key, columns) in [("softmax-f32-m4", 32768), ("softmax-f16-m4", 65536)] {
        let key = format!("{key}n{columns}");
        assert!(takes(&key).contains(&"rows_cuda".to_string()), "{key}");
        Rows.default_config(&Workload::from_key(&key).expect("a key"), target).expect("some config fits");
    }
    // What is longer is read for each number that it shares, and for the result.
    for (columns, reads) in [(32768, 1), (32769, 3), (1 << 24, 3)] {
        let workload = Workload::from_key(&format!("softmax-f32-m4n{columns}")).expect("a key");
        let config = Rows.default_config(&workload, target).expect("some config fits");
        let made = Rows.schedule(&workload, target, &config).expect("it fits").schedule.kernel.to_string();
        let fetches = |line: &&str| line.contains("held") && line.contains("x[");
        assert_eq!(made.lines().filter(fetches).count(), reads, "{columns}: {config}\n{made}");
    }
    // A whole warp has something to do, and a long row has several.
    for (key, warps) in [("layer_norm-f16-m197n768-e6", 1), ("softmax-f32-m128n16384", 8)] {
        let workload = Workload::from_key(key).expect("a key");
        let config = Rows.default_config(&workload, target).expect("it applies");
        assert!(config.int("warps").expect("a knob") >= warps, "{key}: {config}");
    }
}

/// On a CPU, rows that vectors divide, rows that half a vector does, and others.
#[test]
fn rows_of_any_length_run_on_cpus() {
    for (i, key) in [
        "softmax-f32-m3n768-relu",
        "softmax-f16-m2n1000",
        "log_softmax-f32-m5n64",
        "layer_norm-bf16-m3n96-e6-scale.gelu",
        "rms_norm-f32-m4n97-e5",
        "group_norm-f32-n2c6p48-g3-e5-scale.silu",
        "group_norm-f32-n2c6p7-g6-e5",
    ]
    .iter()
    .enumerate()
    {
        let workload = Workload::from_key(key).expect("a key");
        for target in ["x86-64", "x86-64-v3", "x86-64-v4"].map(|name| Target::find(name).expect("built in")) {
            let config = Plain.default_config(&workload, target).expect("it applies");
            cpu_templates::check(&Plain, &workload, target, &config, i as u64, Way::Interpreted);
            let kernel = Plain.schedule(&workload, target, &config).expect("it applies").schedule.kernel;
            verify(kernel, &Limits::cpu()).unwrap_or_else(|faults| panic!("{key} for {}: {faults:?}", target.name));
        }
    }
}

/// What `f32` cannot tell apart, a norm makes large: its bound follows from the row's values.
#[test]
fn bounds_follow_from_the_values_of_a_row() {
    let norm = Workload::from_key("layer_norm-f32-strict-m1n4-e5").expect("a key");
    let bound = |x: [f64; 4]| error_bound(&norm, &[&x]).into_iter().fold(0.0, f64::max);
    assert!(bound([1.0, -1.0, 2.0, -2.0]) < 1e-5);
    let close = [1e4, 1e4 + 1.0, 1e4 - 1.0, 1e4];
    assert!(bound(close) > 1e-3 && bound(close) < 1.0, "{}", bound(close));
    // Rows without any spread.
    assert_eq!(reference(&norm, &[&[3.0; 4]]), [0.0; 4]);
    let softmax = Workload::from_key("softmax-f32-m1n4").expect("a key").with_epilogue(&[Epilogue::Relu]);
    let nan = reference(&softmax, &[&[f64::NEG_INFINITY; 4]]);
    assert!(nan.iter().all(|y| y.is_nan()), "a row of minus infinities: {nan:?}");
    let one = reference(&softmax, &[&[f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY, f64::NEG_INFINITY]]);
    assert_eq!(one, [0.0, 1.0, 0.0, 0.0]);
    assert!(error_bound(&softmax.with_dtype(DType::F16), &[&[0.0; 4]]).iter().all(|b| *b < 1e-3));
}

/// Where the squares of a row exceed the largest `f32`, anything is right.
#[test]
fn a_row_whose_squares_overflow_has_no_bound() {
    for key in ["rms_norm-f32-strict-m2n4-e1", "layer_norm-f32-m2n4-e5"] {
        let norm = Workload::from_key(key).expect("a key").with_epilogue(&[Epilogue::Relu]);
        let bounds = error_bound(&norm, &[&[1.0, 2f64.powi(100), 1.0, 0.5, 1.0, 2.0, 3.0, 4.0]]);
        assert_eq!(bounds[..4], [f64::INFINITY; 4], "{key}");
        assert!(bounds[4..].iter().all(|b| *b < 1e-4), "{key}: {bounds:?}");
    }
}
