//! Mutated specs never make the parser panic, and what it refuses it explains.
//!
//! `KERNEL_GEN_FUZZ_SECONDS=600 cargo test --release --test kernels fuzz_spec::` runs for that long; without the variable a
//! fixed number of mutations runs, the same on every machine.

use kernel_gen::spec::Spec;
use kernel_gen::workload::naive;
use kernel_gen::workload::sample::Rng;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Text that specs are made of and text that breaks parsers.
const FRAGMENTS: &[&str] = &[
    "[[kernel]]",
    "[[kernel.workload]]",
    "[[extern]]",
    "[targets]",
    "kernel = 3",
    "schema = 1",
    "[",
    "]",
    "{",
    "}",
    "=",
    "\"",
    "'''",
    "\"\"\"",
    ",",
    ".",
    "\n",
    "\r\n",
    "#",
    "-",
    "0",
    "-1",
    "1",
    "16",
    "65536",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "0x7fffffffffffffff",
    "1e308",
    "nan",
    "inf",
    "true",
    "1979-05-27",
    "input = [1, 16, 8, 8]",
    "weight = [16, 16, 3, 3]",
    "stride = [2, 3]",
    "padding = [1, 2, 3, 4]",
    "padding = \"same\"",
    "stride = 2",
    "dilation = [2, 2]",
    "groups = 16",
    "layout = \"NCHW16c\"",
    "layout = \"HWCN\"",
    "op = \"depthwise_conv2d\"",
    "op = \"batch_matmul\"",
    "a = [4, 3, 2]",
    "b = [4, 2, 5]",
    "trans_a = true",
    "epilogue = [\"bias\", \"gelu\"]",
    "name = \"é\"",
    "name = \"a\"",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
];

fn mutate(text: &str, others: &[String], rng: &mut Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.between(1, 6) {
        let at = |rng: &mut Rng, n: usize| rng.between(0, n as i64) as usize;
        let start = at(rng, bytes.len());
        let end = (start + at(rng, 24)).min(bytes.len());
        match rng.between(0, 6) {
            0 => drop(bytes.splice(start..end, [])),
            1 => drop(bytes.splice(start..start, rng.pick(FRAGMENTS).bytes())),
            2 => drop(bytes.splice(start..end, rng.pick(FRAGMENTS).bytes())),
            3 => {
                let piece = bytes[start..end].to_vec();
                let to = at(rng, bytes.len());
                bytes.splice(to..to, piece);
            }
            4 => {
                let other = rng.pick(others).as_bytes();
                let from = at(rng, other.len());
                let to = (from + at(rng, 200)).min(other.len());
                bytes.splice(start..start, other[from..to].iter().copied());
            }
            5 if start < bytes.len() => bytes[start] = (rng.next_u64() & 0x7f) as u8,
            // Numbers are where sizes go wrong: make one of them extreme.
            _ => {
                if let Some(digit) = bytes[start..].iter().position(u8::is_ascii_digit) {
                    let digit = start + digit;
                    let number = bytes[digit..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let extreme = *rng.pick(&["0", "1", "2", "7", "97", "100003", "4294967295", "4611686018427387904"]);
                    bytes.splice(digit..digit + number, extreme.bytes());
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A mutation that keeps the text TOML: another number, a line less, a line of another spec. It reaches the checks
/// that lie behind the syntax.
fn mutate_gently(text: &str, others: &[String], rng: &mut Rng) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let at = rng.between(0, lines.len().max(1) as i64 - 1) as usize;
    let line = lines.get(at).cloned().unwrap_or_default();
    match rng.between(0, 5) {
        0 if !lines.is_empty() => drop(lines.remove(at)),
        1 => {
            let other: Vec<&str> = rng.pick(others).lines().collect();
            if !other.is_empty() {
                lines.insert(at, rng.pick(&other).to_string());
            }
        }
        _ => {
            let digits: Vec<usize> =
                line.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit()).map(|(i, _)| i).collect();
            if line.contains('[') && !digits.is_empty() {
                let digit = *rng.pick(&digits);
                let number = *rng.pick(&["0", "1", "2", "3", "7", "16", "64", "97", "100003", "4294967295"]);
                lines[at].replace_range(digit..digit + 1, number);
            }
        }
    }
    lines.join("\n")
}

#[test]
fn mutated_specs_parse_or_are_explained() {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    let (mut seeds, mut good) = (vec![], 0);
    for folder in [specs.clone(), specs.join("filetests/bad-specs")] {
        let mut paths: Vec<_> = fs::read_dir(folder).expect("specs").map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        paths.retain(|p| p.extension().is_some_and(|e| e == "toml"));
        seeds.extend(paths.iter().map(|p| fs::read_to_string(p).expect("a readable spec")));
        if good == 0 {
            good = seeds.len();
        }
    }
    let budget = std::env::var("KERNEL_GEN_FUZZ_SECONDS")
        .ok()
        .map(|s| Duration::from_secs(s.parse().expect("KERNEL_GEN_FUZZ_SECONDS is a number of seconds")));
    let start = Instant::now();
    let (mut accepted, mut refused, mut round) = (0, 0, 0_u64);
    loop {
        match budget {
            Some(budget) if start.elapsed() >= budget => break,
            None if round == 4000 => break,
            _ => round += 1,
        }
        let mut rng = Rng::new(round);
        let seed = rng.pick(&seeds).clone();
        let text = match rng.between(0, 1) {
            0 => mutate(&seed, &seeds, &mut rng),
            _ => {
                let seed = rng.pick(&seeds[..good]).clone();
                mutate_gently(&seed, &seeds, &mut rng)
            }
        };
        match Spec::parse(&text, "fuzz.toml") {
            Ok(spec) => {
                accepted += 1;
                for (_, w) in spec.workloads() {
                    // All that a valid workload promises: its sizes can be computed, its kernel be made.
                    assert!(w.workload.flops() > 0 && w.workload.bytes() > 0, "{}", w.workload.key());
                    assert_eq!(naive(&w.workload).params.len(), w.workload.params().len());
                }
            }
            Err(diagnostics) => {
                refused += 1;
                assert!(!diagnostics.is_empty(), "refused without a reason:\n{text}");
                for d in &diagnostics {
                    let line = d.to_string();
                    assert!(!line.contains('\n') && d.line >= 1 && !d.help.is_empty(), "{line}");
                }
            }
        }
    }
    println!("{round} mutated specs: {accepted} accepted, {refused} refused, no panic");
    assert!(budget.is_some() || (accepted > 100 && refused > 100), "{accepted} accepted, {refused} refused");
}
