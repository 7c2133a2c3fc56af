//! The template's kernels, run by the interpreter: no compiler, every target, many configs.

#[path = "../src/template.rs"]
mod template;

use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::workload::bound::reference_with_bounds;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Epilogue, Matmul, Workload};
use template::MatvecInPlace;

/// Products of one row, of sizes that no number of vectors divides, and one smaller than a vector.
fn workloads() -> [Workload; 3] {
    [(37, 7), (100, 16), (3, 5)].map(|(n, k)| Workload::f32(Matmul::new(1, n, k)).with_epilogue(&[Epilogue::Bias]))
}

#[test]
fn kernels_equal_the_reference_on_every_target() {
    for (seed, workload) in workloads().iter().enumerate() {
        let inputs = sample::inputs(workload, &mut Rng::new(seed as u64));
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let reference = reference_with_bounds(workload, &views);
        let values: Values = workload.params().iter().zip(&inputs).map(|(p, v)| (p.name.into(), v.clone())).collect();
        for target in Target::all().iter().filter(|t| t.cpu().is_some()) {
            let space = MatvecInPlace.space(workload, target).unwrap();
            let default = MatvecInPlace.default_config(workload, target).unwrap();
            assert!(space.index_of(&default).is_ok(), "{default} is not in its own space");
            for config in space.sample(1).take(8).map(|(_, config)| config).chain([default]) {
                let what = format!("{} with {config} on {}", workload.key(), target.name);
                let scheduled = MatvecInPlace.schedule(workload, target, &config).expect(&what);
                let mut outputs = interp::run(&scheduled.schedule.kernel, &values, Mode::Declared).expect(&what);
                let c = outputs.remove("c").expect("the output of a product");
                reference.check(c).unwrap_or_else(|mismatch| panic!("{what}: {mismatch}"));
            }
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
}
