//! Runs the ONNX project's published tests through the `_dyn` wrappers and compares with the published outputs.

use kernel_gen_onnx_tests::kernels;
use kernel_gen_runtime::{Cpu, DynView, DynViewMut, Isa, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// A file of `cases/`.
#[derive(Deserialize)]
struct Case {
    name: String,
    /// The function of `kernels.toml` whose `_dyn` form runs it.
    function: String,
    /// The workload of that function with these shapes.
    kernel: String,
    rtol: f32,
    atol: f32,
    /// The arguments in order, the published output last.
    tensor: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    data: Vec<f32>,
}

impl Tensor {
    fn view(&self) -> DynView<'_, f32> {
        DynView::new(&self.data, &self.shape)
    }
}

/// A file of tests that are not run.
#[derive(Deserialize)]
struct Skipped {
    test: Vec<SkippedTest>,
}

#[derive(Deserialize)]
struct SkippedTest {
    name: String,
    reason: String,
}

/// All cases, by name.
fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path| toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    paths.iter().map(read).collect()
}

/// Runs a kernel that gives indices, which are compared as the numbers that they are.
fn indices<'a>(y: DynViewMut<'a, f32>, run: impl FnOnce(DynViewMut<i64>) -> Result<()>) -> Result<()> {
    let mut found = vec![-1; y.data.len()];
    run(DynViewMut::new(&mut found, y.shape))?;
    y.data.iter_mut().zip(&found).for_each(|(y, index)| *y = *index as f32);
    Ok(())
}

/// Runs a kernel that takes integers, which are published as the numbers that they are.
fn integers(x: DynView<f32>, run: impl FnOnce(DynView<i32>) -> Result<()>) -> Result<()> {
    let whole: Vec<i32> = x.data.iter().map(|x| *x as i32).collect();
    run(DynView::new(&whole, x.shape))
}

/// Runs a case's function on its inputs. The result starts out as values that are no numbers, so that one which the
/// kernel leaves out cannot pass.
fn run(case: &Case, dev: &Cpu) -> Result<Vec<f32>> {
    let (expected, inputs) = case.tensor.split_last().expect("a case has tensors");
    let mut result = vec![f32::NAN; expected.data.len()];
    let y = DynViewMut::new(&mut result, &expected.shape);
    let views: Vec<DynView<f32>> = inputs.iter().map(Tensor::view).collect();
    include!("calls.rs.in")?;
    Ok(result)
}

/// The worst element: its position, what was published and what came.
fn worst(case: &Case, result: &[f32]) -> Option<(usize, f32, f32)> {
    let expected = &case.tensor.last().expect("a case has tensors").data;
    let wrong = |(_, want, got): &(usize, f32, f32)| {
        let off = (got - want).abs();
        // Of two infinities that are equal there is no difference.
        got != want && (off.is_nan() || off > case.atol + case.rtol * want.abs())
    };
    let all = expected.iter().zip(result).enumerate().map(|(i, (want, got))| (i, *want, *got));
    all.filter(wrong).max_by(|a, b| (a.2 - a.1).abs().total_cmp(&(b.2 - b.1).abs()))
}

#[test]
fn every_published_case_gives_the_published_output_at_every_level_and_thread_count() {
    let cases = cases();
    let levels: Vec<Isa> = Isa::ALL.into_iter().filter(|isa| Isa::detect().runs(*isa)).collect();
    let mut failures = vec![];
    for case in &cases {
        for threads in [1, 2] {
            for isa in &levels {
                let dev = Cpu::with_threads(threads).with_isa(*isa).unwrap();
                let place = format!("{} ({}), {isa}, {threads} thread(s)", case.name, case.kernel);
                match run(case, &dev) {
                    Ok(result) => failures.extend(worst(case, &result).map(|(i, want, got)| {
                        format!(
                            "{place}: element {i} is {got} and should be {want}, within {} + {} of it",
                            case.atol, case.rtol
                        )
                    })),
                    Err(error) => failures.push(format!("{place}: {error}")),
                }
            }
        }
    }
    let names: Vec<&str> = levels.iter().map(|isa| isa.name()).collect();
    println!("{} published ONNX tests run, each at {} with 1 and 2 threads", cases.len(), names.join(", "));
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn no_published_test_is_left_out_without_a_reason() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("skipped.toml")).unwrap();
    let skipped: Skipped = toml::from_str(&text).unwrap();
    for test in &skipped.test {
        println!("skipped {}: {}", test.name, test.reason);
        assert!(!test.reason.is_empty());
    }
    let run: BTreeSet<String> = cases().into_iter().map(|case| case.name).collect();
    assert!(skipped.test.iter().all(|test| !run.contains(&test.name)));
    // What onnx 1.23.2 publishes with one of our operators as the one under test.
    assert_eq!((run.len(), skipped.test.len()), (643, 332));
}

/// Operators of two tensors.
const PAIRS: [&str; 16] = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "minimum",
    "maximum",
    "prelu",
    "pow",
    "fmod",
    "mod",
    "equal",
    "less",
    "greater",
    "logical_and",
    "logical_or",
    "logical_xor",
];

#[test]
fn cases_have_the_tensors_of_their_function() {
    for case in cases() {
        let names: Vec<&str> = case.tensor.iter().map(|t| t.name.as_str()).collect();
        let (first, last): (&[&str], &str) = match &case.function {
            f if f.contains("conv") => (&["x", "w"], "y"),
            f if f.contains("matmul") => (&["a", "b"], "c"),
            f if f.contains("concat") => (&["x0", "x1"], "y"),
            f if f.contains("attention") => (&["q", "k", "v"], "y"),
            f if f.contains("gather") => (&["x", "indices"], "y"),
            f if f.contains("where") => (&["condition", "a", "b"], "y"),
            f if PAIRS.iter().any(|op| f.starts_with(&format!("onnx_{op}"))) => (&["a", "b"], "y"),
            _ => (&["x"], "y"),
        };
        assert!(names.starts_with(first) && names.last() == Some(&last), "{}: {names:?}", case.name);
        for tensor in &case.tensor {
            assert_eq!(tensor.shape.iter().product::<usize>(), tensor.data.len(), "{}: {}", case.name, tensor.name);
        }
    }
}
