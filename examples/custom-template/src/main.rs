//! Matrix-vector products through a template of this crate's own, beside the library's.
//!
//! The calls are the same typed functions as ever: which template a kernel comes from shows only in the report.

kernel_gen_runtime::include_kernels!(custom);
kernel_gen_runtime::include_kernels!(builtin);

use kernel_gen_runtime::{Cpu, D1, D2, Report, Result, Tensor};
use std::process::ExitCode;
use std::time::Instant;

/// Largest error that counts as correct, relative to the largest sum.
const TOLERANCE: f64 = 1e-5;
/// Timed runs, of which the fastest counts.
const RUNS: usize = 50;

fn main() -> ExitCode {
    match run() {
        Ok(worst) if worst < TOLERANCE => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("custom-template: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<f64> {
    let dev = Cpu::new();
    println!(
        "{}, {} threads; the matrix is new in every call, so packing it is part of the time",
        dev.isa(),
        dev.threads()
    );
    println!("\n{:10} {:18} {:>9} {:>7} {:>9}", "workload", "template", "us", "GB/s", "error");
    let worst = [both::<512, 4096>(&dev, "wide")?, both::<300, 1001>(&dev, "odd")?].into_iter().fold(0.0, worse);
    println!("\nmax error {worst:.2e} (relative)");
    Ok(worst)
}

/// Runs one workload with either template; the larger error.
fn both<const K: usize, const N: usize>(dev: &Cpu, workload: &str) -> Result<f64>
where
    (D2<1, K>, D2<K, N>, D1<N>, D2<1, N>): custom::MatvecShapes + builtin::MatvecShapes,
{
    let value = |i: usize, step: usize| ((i * step) % 1009) as f32 / 504.5 - 1.0;
    let a = Tensor::<f32, D2<1, K>>::from_fn(|i| value(i, 389));
    let b = Tensor::<f32, D2<K, N>>::from_fn(|i| value(i, 677));
    let bias = Tensor::<f32, D1<N>>::from_fn(|i| value(i, 211));
    let expected = reference(a.as_slice(), b.as_slice(), bias.as_slice());

    let mut c = Tensor::<f32, D2<1, N>>::zeros();
    let us = fastest_us(|| custom::matvec(dev, &a, &b, &bias, &mut c))?;
    let first = print(dev, &custom::report(), workload, us, b.as_slice().len(), c.as_slice(), &expected);

    let mut c = Tensor::<f32, D2<1, N>>::zeros();
    let us = fastest_us(|| builtin::matvec(dev, &a, &b, &bias, &mut c))?;
    let second = print(dev, &builtin::report(), workload, us, b.as_slice().len(), c.as_slice(), &expected);
    Ok(worse(first, second))
}

/// `relu(a * b + bias)` in `f64`.
fn reference(a: &[f32], b: &[f32], bias: &[f32]) -> Vec<f64> {
    let mut sums: Vec<f64> = bias.iter().map(|v| f64::from(*v)).collect();
    for (a, row) in a.iter().zip(b.chunks_exact(bias.len())) {
        sums.iter_mut().zip(row).for_each(|(sum, b)| *sum += f64::from(*a) * f64::from(*b));
    }
    sums.iter().map(|v| v.max(0.0)).collect()
}

/// Prints a line of the table; the error.
fn print(dev: &Cpu, report: &Report, workload: &str, us: f64, elements: usize, found: &[f32], expected: &[f64]) -> f64 {
    let report = report.for_device(dev);
    let template = report.rows().iter().find(|r| r.workload == workload).map_or("-", |r| r.template);
    let largest = expected.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let differences = found.iter().zip(expected).map(|(f, e)| (f64::from(*f) - e).abs());
    let error = differences.fold(0.0, worse) / largest;
    println!("{workload:10} {template:18} {us:>9.1} {:>7.1} {error:>9.1e}", 4.0 * elements as f64 / us / 1e3);
    error
}

/// The larger of two errors; NaN is larger than any.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

/// The shortest of several runs.
fn fastest_us(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_gen_runtime::Isa;

    #[test]
    fn the_results_are_right_and_every_kernel_is_this_crates() {
        assert!(run().unwrap() < TOLERANCE);
        // Without fused multiply-adds both templates are expected to be equally fast, and the library's comes first.
        for row in custom::report().rows().iter().filter(|r| r.isa != Some(Isa::X86_64)) {
            assert!(row.template.starts_with("matvec_in_place"), "{}: {}", row.workload, row.template);
        }
    }
}
