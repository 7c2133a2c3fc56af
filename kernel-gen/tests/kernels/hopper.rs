//! Kernels of tensor cores, asynchronous copies and mbarriers in the interpreter: the good ones compute the product.

use kernel_gen::analysis::verify::{Limits, check};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::Kernel;
use kernel_gen::ir::parse::parse;
use kernel_gen::stable::Rng;
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

#[test]
fn copies_one_step_ahead_of_the_tensor_cores_of_warps_compute_the_product() {
    let kernel = good("copy_async_mma");
    let inputs = interp::seeded_inputs(&kernel, 4);
    let out = interp::run(&kernel, &inputs, Mode::F64).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(out["c"], product(&inputs, [32, 40, 64]));
}

#[test]
fn two_blocks_of_a_cluster_load_for_each_other_and_compute_the_product() {
    let kernel = good("hopper_cluster");
    let mut inputs = interp::seeded_inputs(&kernel, 5);
    let out = interp::run(&kernel, &inputs, Mode::F64).unwrap_or_else(|e| panic!("{e}"));
    // The kernel multiplies by the transpose.
    let b = &inputs["b"];
    let transposed = (0..128 * 64).map(|i| b[i % 64 * 128 + i / 64]).collect();
    inputs.insert("b".to_string(), transposed);
    assert_eq!(out["c"], product(&inputs, [128, 64, 128]));
}

#[test]
fn parts_in_tf32_compute_the_product_of_f32() {
    let kernel = good("split_tf32");
    let mut inputs = interp::seeded_inputs(&kernel, 6);
    // One part holds what has few bits, two what has those of an f32.
    let a: Vec<f64> = inputs["a"].iter().map(|v| f64::from((v * 0.765_432_1) as f32)).collect();
    inputs.insert("a".to_string(), a.clone());
    let b: Vec<f64> = inputs["b"].iter().map(|v| (v * 256.0).round() / 256.0).collect();
    inputs.insert("b".to_string(), b.clone());
    let out = interp::run(&kernel, &inputs, Mode::Declared).unwrap_or_else(|e| panic!("{e}"));
    let mut one_part = 0.0_f64;
    for (i, got) in out["c"].iter().enumerate() {
        let terms = || (0..64).map(|k| (a[i / 16 * 64 + k], b[i % 16 * 64 + k]));
        let (sum, size): (f64, f64) = (terms().map(|(x, w)| x * w).sum(), terms().map(|(x, w)| (x * w).abs()).sum());
        assert!((got - sum).abs() <= size * 64.0 / f64::from(1 << 24), "element {i} is {got}, should be {sum}");
        let rounded: f64 = terms().map(|(x, w)| (f64::from(x as f32) * 1024.0).round() / 1024.0 * w).sum();
        one_part = one_part.max((rounded - sum).abs() / size);
    }
    // The test can tell the parts apart: one of them alone is farther off than is allowed.
    assert!(one_part > 64.0 / f64::from(1 << 24), "{one_part}");
}

#[test]
fn parts_in_bf16_compute_the_product_of_f32() {
    let kernel = good("split_bf16");
    let mut inputs = interp::seeded_inputs(&kernel, 6);
    // Of all sizes that have 24 bits in bf16.
    let a = inputs["a"].iter().zip((-100..=100).step_by(25).cycle());
    let a: Vec<f64> = a.map(|(v, e)| f64::from((v * 0.765_432_1 * 2f64.powi(e)) as f32)).collect();
    inputs.insert("a".to_string(), a.clone());
    // Each sum is one product, so nothing else is rounded.
    let b: Vec<f64> = (0..16 * 64).map(|i| f64::from(u8::from(i % 64 == 3 * (i / 64)))).collect();
    inputs.insert("b".to_string(), b.clone());
    let out = interp::run(&kernel, &inputs, Mode::Declared).unwrap_or_else(|e| panic!("{e}"));
    let want: Vec<f64> = (0..64 * 16).map(|i| a[i / 16 * 64 + i % 16 * 3]).collect();
    assert_eq!(out["c"], want);
}

#[test]
fn infinity_leaves_over_no_number() {
    let kernel = good("split_bf16");
    let mut inputs = interp::seeded_inputs(&kernel, 6);
    let a = inputs.get_mut("a").expect("an input");
    (a[0], a[64]) = (f64::INFINITY, f64::NAN);
    let out = interp::run(&kernel, &inputs, Mode::Declared).unwrap_or_else(|e| panic!("{e}"));
    assert!(out["c"][..32].iter().all(|v| v.is_nan()) && out["c"][32..].iter().all(|v| v.is_finite()));
}

#[test]
fn an_operand_in_registers_is_in_use_until_the_wait() {
    let said = report("split_tf32", "wait mma 0", "wait mma 1");
    assert!(said.contains("rows[0, 0, 0]") && said.contains("an mma.warpgroup of warpgroup 0"), "{said}");
    let text = good("split_tf32").to_string().replace("wait mma 0", "wait mma 1");
    let faults = check(&parse(&text).expect("it parses"), &Limits::cuda());
    assert!(faults.iter().any(|f| f.to_string().contains("rows")), "{faults:?}");
}

/// What the interpreter says about a good kernel in which `from` was replaced.
fn report(name: &str, from: &str, to: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests/good");
    let text = std::fs::read_to_string(folder.join(name).with_extension("kg")).unwrap();
    assert!(text.contains(from), "{name} has no `{from}`");
    let kernel = parse(&text.replace(from, to)).unwrap_or_else(|e| panic!("{name}:{e}"));
    interp::run(&kernel, &interp::seeded_inputs(&kernel, 1), Mode::F64).expect_err("the fault is seen").to_string()
}

#[test]
fn a_deadlock_is_reported_with_every_position_and_what_it_waits_for() {
    assert_eq!(
        report("hopper_ring", "bytes 16384", "bytes 16385"),
        "deadlock: no thread can go on: thread (0, 0, 0) of block 0 and 127 more at \
        `mbarrier wait full[ci % 2] parity ci / 2 % 2` with g = 0, ct = 0, ck = 0 waits for parity 0 of full[0], whose \
        phase 0 lacks 0 of 1 arrivals and 1 bytes; thread (128, 0, 0) of block 0 at \
        `mbarrier wait empty[pi % 2] parity (pi / 2 + 1) % 2` with g = 0, pt = 0, pk = 2 waits for parity 0 of empty[0], \
        whose phase 0 lacks 1 of 1 arrivals; at `mbarrier wait full[ci % 2] parity ci / 2 % 2` with g = 0, t = 0, ct = 0, \
        ck = 0"
    );
}

#[test]
fn a_missing_wait_is_reported_with_the_copy_and_its_reader() {
    assert_eq!(
        report("hopper_ring", "mbarrier wait full[ci % 2] parity ci / 2 % 2", "barrier warp"),
        "read of unwritten memory: sa[0, 0, 0] is read by an mma.warpgroup of warpgroup 0 of block 0, which has not \
        waited for a tensor_load on full[0]; at `mma.warpgroup acc[0: 64, 0: 64] += sa[ci % 2: 1, 0: 64, kk * 16: 16] * \
        sb[ci % 2: 1, kk * 16: 16, 0: 64]` with g = 0, t = 0, ct = 0, ck = 0, kk = 0"
    );
}

/// A good kernel with a line left out or a number changed.
fn mutate(text: &str, rng: &mut Rng) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let at = rng.below(lines.len() as u64) as usize;
    if rng.below(2) == 0 && !lines[at].contains(['{', '}']) {
        return [&lines[..at], &lines[at + 1..]].concat().join("\n");
    }
    let is_number = |i: &usize| {
        let b = text.as_bytes();
        b[*i].is_ascii_digit() && matches!(b[i - 1], b' ' | b'[') && !b[i + 1].is_ascii_digit()
    };
    let digits: Vec<usize> = (1..text.len() - 1).filter(is_number).collect();
    let at = digits[rng.below(digits.len() as u64) as usize];
    format!("{}{}{}", &text[..at], rng.below(5), &text[at + 1..])
}

/// `KERNEL_GEN_MUTANTS=2000 cargo test --test kernels hopper::` tries more.
#[test]
fn what_the_verifier_passes_runs_without_a_report() {
    let count = std::env::var("KERNEL_GEN_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(40u64);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests/good");
    let (mut passed, mut refused) = (0, 0);
    for name in ["hopper_ring", "hopper_cluster", "copy_async_mma", "move_rows", "split_tf32", "split_bf16"] {
        let text = std::fs::read_to_string(folder.join(name).with_extension("kg")).unwrap();
        for seed in 0..count {
            let mutant = mutate(&text, &mut Rng::new(seed));
            let Ok(kernel) = parse(&mutant) else { continue };
            if !check(&kernel, &Limits::cuda()).is_empty() {
                refused += 1;
                continue;
            }
            passed += 1;
            if let Err(e) = interp::run(&kernel, &interp::seeded_inputs(&kernel, 1), Mode::F64) {
                panic!("{name}, seed {seed}: {e}\n{mutant}");
            }
        }
    }
    println!("{passed} mutants passed the verifier and ran, {refused} were refused");
    assert!(passed > 0 && refused > passed, "{passed} passed, {refused} refused");
}
