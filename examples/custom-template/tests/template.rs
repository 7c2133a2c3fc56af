//! The template's kernels, run by the interpreter: no compiler, every target, many configs.

#[path = "../src/dense_layer.rs"]
mod dense_layer;
#[path = "../src/template.rs"]
mod template;

use dense_layer::DenseLayer;
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::DType;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::workload::bound::reference_with_bounds;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Epilogue, Matmul, Workload};
use template::MatvecInPlace;

/// Holds the default and some drawn configs of a template against the reference; they run in the interpreter.
fn check(template: &dyn Template, workload: &Workload, target: &Target, seed: u64, configs: usize) {
    let inputs = sample::inputs(workload, &mut Rng::new(seed));
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let reference = reference_with_bounds(workload, &views);
    let values: Values = workload.params().iter().zip(&inputs).map(|(p, v)| (p.name.into(), v.clone())).collect();
    let space = template.space(workload, target).unwrap();
    let default = template.default_config(workload, target).unwrap();
    assert!(space.index_of(&default).is_ok(), "{default} is not in its own space");
    for config in space.sample(1).take(configs).map(|(_, config)| config).chain([default]) {
        let what = format!("{} with {config} on {}", workload.key(), target.name);
        let kernel = template.schedule(workload, target, &config).expect(&what).schedule.kernel;
        let mut outputs = interp::run(&insert_barriers(kernel), &values, Mode::Declared).expect(&what);
        let c = outputs.remove("c").expect("the output of a product");
        reference.check(c).unwrap_or_else(|mismatch| panic!("{what}: {mismatch}"));
    }
}

/// Products of one row, of sizes that no number of vectors divides, and one smaller than a vector.
fn workloads() -> [Workload; 3] {
    [(37, 7), (100, 16), (3, 5)].map(|(n, k)| Workload::f32(Matmul::new(1, n, k)).with_epilogue(&[Epilogue::Bias]))
}

#[test]
fn kernels_equal_the_reference_on_every_target() {
    for (seed, workload) in (1..).zip(workloads()) {
        for target in Target::all().iter().filter(|t| t.cpu().is_some()) {
            check(&MatvecInPlace, &workload, target, seed, 8);
        }
    }
}

#[test]
fn dense_layers_equal_the_reference() {
    // Rows, columns and terms that no tile and no step divides.
    for (seed, (m, n, k)) in (1..).zip([(37, 70, 40), (5, 33, 72), (130, 64, 8)]) {
        let m = Matmul { trans_b: true, ..Matmul::new(m, n, k) };
        let workload = Workload::f32(m).with_dtype(DType::F16).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]);
        for target in ["sm_80", "sm_90a"].map(|name| Target::find(name).unwrap()) {
            check(&DenseLayer, &workload, target, seed, 4);
        }
    }
}

#[test]
fn other_products_are_refused_with_a_reason() {
    let target = Target::find("x86-64-v3").unwrap();
    let batch = Matmul { batch: 2, ..Matmul::new(1, 8, 8) };
    for m in [Matmul::new(2, 8, 8), Matmul { trans_b: true, ..Matmul::new(1, 8, 8) }, batch] {
        let reason = MatvecInPlace.applies(&Workload::f32(m), target).unwrap_err();
        assert_eq!(reason, "for products of one row with a matrix that is not transposed");
    }
    let gpu = Target::find("sm_80").unwrap();
    assert_eq!(MatvecInPlace.applies(&Workload::f32(Matmul::new(1, 8, 8)), gpu).unwrap_err(), "for CPUs");
    let dense = |m: Matmul, target: &str| {
        DenseLayer.applies(&Workload::f32(m).with_dtype(DType::F16), Target::find(target).unwrap()).unwrap_err()
    };
    let layer = Matmul { trans_b: true, ..Matmul::new(64, 64, 64) };
    let refused = "for products of rows with rows, whose length divides by eight";
    for m in [Matmul { trans_b: false, ..layer }, Matmul { trans_a: true, ..layer }, Matmul { k: 60, ..layer }] {
        assert_eq!(dense(m, "sm_80"), refused);
    }
    assert_eq!(dense(layer, "sm_75"), "needs cp.async (sm_80)");
    assert_eq!(dense(layer, "x86-64"), "for CUDA devices");
}
