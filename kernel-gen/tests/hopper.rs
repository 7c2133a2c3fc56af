//! Kernels of tensor cores, asynchronous copies and mbarriers in the interpreter: the good ones compute the product.

use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::Kernel;
use kernel_gen::ir::parse::parse;
use std::path::Path;

fn good(name: &str) -> Kernel {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests/good");
    let text = std::fs::read_to_string(folder.join(name).with_extension("kg")).unwrap();
    parse(&text).unwrap_or_else(|e| panic!("{name}:{e}"))
}

/// `a[m, k] * b[k, n]`.
fn product(inputs: &Values, [m, n, k]: [usize; 3]) -> Vec<f64> {
    let (a, b) = (&inputs["a"], &inputs["b"]);
    (0..m * n).map(|i| (0..k).map(|l| a[i / n * k + l] * b[l * n + i % n]).sum()).collect()
}

#[test]
fn the_ring_of_a_loading_warp_and_a_multiplying_warpgroup_computes_the_product() {
    let kernel = good("hopper_ring");
    let inputs = interp::seeded_inputs(&kernel, 3);
    let out = interp::run(&kernel, &inputs, Mode::F64).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(out["c"], product(&inputs, [128, 128, 192]));
}
