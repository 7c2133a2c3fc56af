//! The harness notices what a kernel must not do, and says which buffer it did it to.

use kernel_gen::emit::c::{CSource, Isa, Phase};
use kernel_gen::ir::{Access, DType, Kernel, builder::KernelBuilder};
use kernel_gen::toolchain::Compiler;
use kernel_gen::toolchain::harness::{HarnessError, Program, RunOptions, TimeOptions};
use std::time::Duration;

const N: i64 = 100;

fn parameters() -> Kernel {
    let mut b = KernelBuilder::new("f");
    b.param("x", DType::F32, &[N], Access::Read);
    b.param("y", DType::F32, &[N], Access::Write);
    b.finish()
}

/// A source whose one phase of ten iterations has this body.
fn source(body: &str) -> CSource {
    let head = "void f_p0(const float *restrict x, float *restrict y, unsigned char *restrict ws, int64_t worker, \
                int64_t begin, int64_t end)";
    CSource {
        isa: Isa::Portable,
        symbol: "f".into(),
        source: format!(
            "#include <stdint.h>\n{head};\n{head} {{\n  (void)x; (void)y; (void)ws; (void)worker;\n  \
             for (int64_t i = begin; i < end; i++) {{\n    {body}\n  }}\n}}\n"
        ),
        helpers: vec![],
        header: format!("#include <stdint.h>\n{head};\n"),
        phases: vec![Phase { symbol: "f_p0".into(), extent: 10, first: None, parallel: true }],
        units: None,
        workspace_bytes: 64,
        worker_bytes: 64,
    }
}

fn run(body: &str) -> Result<Vec<f64>, HarnessError> {
    let program = Program::build(&Compiler::host().unwrap(), &source(body), &parameters())?;
    let options = RunOptions { workers: 3, timeout: Duration::from_secs(2) };
    let x: Vec<f64> = (0..N).map(|i| i as f64).collect();
    Ok(program.run(&[x, vec![]], &options)?.remove(1))
}

const COPY: &str = "for (int j = 0; j < 10; j++) y[i * 10 + j] = x[i * 10 + j] + 1;\n    ";

#[test]
fn a_kernel_that_does_as_told_gives_its_outputs() {
    let y = run(COPY).unwrap();
    assert_eq!(y, (1..=N).map(|i| i as f64).collect::<Vec<_>>());
}

#[test]
fn reading_one_element_too_far_is_named() {
    let error = run(&format!("{COPY} y[0] = x[100 + i - 9];")).unwrap_err();
    assert_eq!(error, HarnessError::OutOfBounds { buffer: "x".into(), offset: 400 });
    assert!(error.to_string().contains("400 bytes from the start of `x`"), "{error}");
}

#[test]
fn reading_one_element_too_early_is_named() {
    let error = run(&format!("{COPY} y[0] = x[(i == 0) * -1];")).unwrap_err();
    assert_eq!(error, HarnessError::OutOfBounds { buffer: "x".into(), offset: -4 });
}

#[test]
fn touching_memory_of_nobody_is_told_apart_from_a_crash() {
    assert_eq!(run("y[i] = x[(1ll << 40) + i];").unwrap_err(), HarnessError::Stray);
}

#[test]
fn writing_beside_an_output_is_named() {
    // On the side where no inaccessible page is near, the canary tells.
    let error = run(&format!("{COPY} if (i == 9) y[100] = 0;")).unwrap_err();
    assert_eq!(error, HarnessError::Canary { buffer: "y".into(), offset: 400 });
}

#[test]
fn writing_an_input_is_named() {
    let error = run(&format!("{COPY} ((float *)(uintptr_t)x)[3] = 7;")).unwrap_err();
    assert_eq!(error, HarnessError::InputChanged { buffer: "x".into() });
}

#[test]
fn an_element_that_is_never_written_makes_the_result_unstable() {
    let error = run("for (int j = 0; j < 9; j++) y[i * 10 + j] = x[i];").unwrap_err();
    assert_eq!(error, HarnessError::Unstable { buffer: "y".into(), offset: 36 });
}

#[test]
fn reading_the_workspace_before_writing_it_makes_the_result_unstable() {
    let error = run(&format!("{COPY} y[i] = ws[i];")).unwrap_err();
    assert!(matches!(&error, HarnessError::Unstable { buffer, .. } if buffer == "y"), "{error}");
}

#[test]
fn depending_on_the_order_of_parallel_iterations_makes_the_result_unstable() {
    let error = run(&format!("{COPY} y[99] = (float)i;")).unwrap_err();
    assert_eq!(error, HarnessError::Unstable { buffer: "y".into(), offset: 396 + 2 });
}

#[test]
fn a_kernel_that_hangs_is_ended() {
    let error = run("volatile int forever = 1; while (forever) {}").unwrap_err();
    assert_eq!(error, HarnessError::Timeout { limit_s: 2 });
}

#[test]
fn a_trap_is_told_apart_from_a_memory_fault() {
    let error = run("__builtin_trap();").unwrap_err();
    assert!(matches!(&error, HarnessError::Died { cause } if cause.contains("signal")), "{error}");
}

#[test]
fn warnings_of_the_compiler_are_errors_with_its_words() {
    let error = run("int unused;").unwrap_err();
    assert!(matches!(&error, HarnessError::Tool(_)), "{error}");
    assert!(error.to_string().contains("unused"), "{error}");
}

#[test]
fn inputs_of_the_wrong_size_are_refused() {
    let program = Program::build(&Compiler::host().unwrap(), &source(COPY), &parameters()).unwrap();
    let error = program.run(&[vec![0.0; 7], vec![]], &RunOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "`x` has 400 bytes, but 28 were given");
    let error = program.run(&[vec![]], &RunOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "the kernel has 2 parameters, but 1 were given");
}

#[test]
fn timing_gives_as_many_samples_as_asked_with_one_and_two_threads() {
    let program = Program::build(&Compiler::host().unwrap(), &source(COPY), &parameters()).unwrap();
    for threads in [1, 2] {
        let options =
            TimeOptions { threads, samples: 3, min_sample: Duration::from_nanos(1), ..TimeOptions::default() };
        let t = program.time(&[vec![0.0; N as usize], vec![]], &options).unwrap();
        assert_eq!(t.samples_ns.len(), 3);
        assert!(t.best_ns() > 0.0 && t.median_ns() >= t.best_ns(), "{t:?}");
    }
}

#[test]
fn a_call_finds_in_the_caches_what_is_kept_there_and_nothing_else() {
    // Half a megabyte that a call reads once: a processor's own cache holds it, which no other program disturbs.
    const LARGE: i64 = 1 << 17;
    let mut b = KernelBuilder::new("f");
    b.param("x", DType::F32, &[LARGE], Access::Read);
    b.param("y", DType::F32, &[N], Access::Write);
    let read = "float sum = 0; for (int j = 0; j < 13107; j += 16) sum += x[i * 13107 + j]; y[i] = sum;";
    let program = Program::build(&Compiler::host().unwrap(), &source(read), &b.finish()).unwrap();
    let input = program.scratch("input");
    std::fs::write(&input, vec![0; 4 * LARGE as usize]).unwrap();
    let limit = Duration::from_secs(30);
    for threads in [1, 2] {
        let mut session = program.start(&input, 0).unwrap();
        let mut fastest = |kept| {
            session.prepare(threads, (Duration::from_micros(100), 1), kept, limit).unwrap();
            let samples = session.sample(15, limit).unwrap();
            assert!(samples.len() == 15 && samples.iter().all(|s| s.ns > 0.0), "{samples:?}");
            samples.iter().map(|s| s.ns).fold(f64::INFINITY, f64::min)
        };
        let (from_caches, from_memory) = (fastest(1), fastest(0));
        assert!(from_caches < from_memory, "{threads} threads: {from_caches} ns and {from_memory} ns");
    }
}

#[test]
fn threads_that_leave_a_call_late_do_not_join_the_next_one() {
    // A thread that lost its processor at the end of a call looks whether it is done when the next number of calls is
    // already set. More threads than processors make that happen many times in these samples.
    let program = Program::build(&Compiler::host().unwrap(), &source(COPY), &parameters()).unwrap();
    let inputs = [vec![0.0; N as usize], vec![]];
    let options = TimeOptions {
        threads: std::thread::available_parallelism().map_or(2, usize::from) + 1,
        samples: 1,
        min_sample: Duration::from_micros(20),
        timeout: Duration::from_secs(20),
    };
    for round in 0..40 {
        let timing = program.time(&inputs, &options);
        assert!(timing.is_ok(), "round {round}: {timing:?}");
    }
}

/// What the next test starts in a process of its own.
#[test]
#[ignore = "it hangs; `a_kernel_that_hangs_ends_with_whoever_started_it` runs it"]
fn a_kernel_hangs() {
    let program =
        Program::build(&Compiler::host().unwrap(), &source("for (volatile int j = 0; j < 1;) {}"), &parameters());
    let options = RunOptions { workers: 1, timeout: Duration::from_secs(120) };
    let _ = program.unwrap().run(&[vec![0.0; N as usize], vec![]], &options);
}

#[cfg(target_os = "linux")]
#[test]
fn a_kernel_that_hangs_ends_with_whoever_started_it() {
    use std::process::{Command, Stdio};
    use std::time::Instant;
    let mut starter = Command::new(std::env::current_exe().unwrap());
    starter.args(["--exact", "harness::a_kernel_hangs", "--ignored"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut starter = starter.spawn().unwrap();
    let harness = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", starter.id())).ok()?;
        let children = threads.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
        let ids: Vec<String> =
            children.flat_map(|c| c.split_whitespace().map(String::from).collect::<Vec<_>>()).collect();
        ids.into_iter().find(|id| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|c| c == "harness\n"))
    };
    let begun = Instant::now();
    let id = loop {
        if let Some(id) = harness() {
            break id;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no harness was started");
        std::thread::sleep(Duration::from_millis(20));
    };
    // It has asked to end with its parent by the time that it runs the kernel.
    std::thread::sleep(Duration::from_millis(500));
    starter.kill().unwrap();
    starter.wait().unwrap();
    let killed = Instant::now();
    let lives = || std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|s| !s.contains(") Z "));
    while lives() {
        assert!(killed.elapsed() < Duration::from_secs(10), "process {id} goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}
