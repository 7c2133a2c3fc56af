//! Mutated records, kernels, configs and keys never make a parser panic; what is refused is explained, and what is
//! accepted means the same when it is written and read again.
//!
//! `KERNEL_GEN_FUZZ_SECONDS=600 cargo test --release --test kernels fuzz_text::` runs each test for that long; without the
//! variable a fixed number of mutations runs, the same on every machine.

use kernel_gen::ir::parse::parse;
use kernel_gen::records::{self, Record};
use kernel_gen::space::Config;
use kernel_gen::stable::Rng;
use kernel_gen::workload::sample;
use kernel_gen::workload::{Workload, naive};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Text that breaks parsers.
const PIECES: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "\"",
    "\\",
    "'''",
    "\n",
    "\r\n",
    "\t",
    " ",
    "=",
    "+=",
    ",",
    ".",
    "..",
    ":",
    "#",
    ";",
    "-",
    "*",
    "/",
    "%",
    "0",
    "-1",
    "1",
    "1e999",
    "nan",
    "1f32",
    "9223372036854775808",
    "\u{0}",
    "\u{7f}",
    "\u{a0}",
    "é",
    "[config]",
    "for",
    "select",
    "ramp",
    "\u{feff}",
];

/// Up to three random edits: a piece put in, a stretch cut out or doubled, the end torn off, a number changed.
fn mutate(seed: &str, rng: &mut Rng) -> String {
    let mut text = seed.to_string();
    for _ in 0..=rng.below(3) {
        let boundaries: Vec<usize> = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).collect();
        let mut at = || boundaries[rng.below(boundaries.len() as u64) as usize];
        let (a, b) = (at(), at());
        let (from, to) = (a.min(b), a.max(b));
        match rng.below(6) {
            0 | 1 => text.insert_str(a, PIECES[rng.below(PIECES.len() as u64) as usize]),
            2 => text.replace_range(from..to, ""),
            3 => text.truncate(a),
            4 => {
                let copy = text[from..to].to_string();
                text.insert_str(a, &copy);
            }
            _ => {
                let digits: Vec<usize> = text.match_indices(|c: char| c.is_ascii_digit()).map(|(i, _)| i).collect();
                if !digits.is_empty() {
                    let i = digits[rng.below(digits.len() as u64) as usize];
                    text.replace_range(i..=i, &rng.below(1000).to_string());
                }
            }
        }
        // Doubling again and again would only test patience.
        if text.len() > 1 << 16 {
            return text;
        }
    }
    text
}

/// Mutates one of the seeds again and again; `check` says whether the text was accepted.
fn fuzz(what: &str, rounds: u64, seeds: &[String], mut check: impl FnMut(&str) -> bool) {
    let budget = std::env::var("KERNEL_GEN_FUZZ_SECONDS")
        .ok()
        .map(|s| Duration::from_secs(s.parse().expect("KERNEL_GEN_FUZZ_SECONDS is a number of seconds")));
    let (start, mut accepted, mut round) = (Instant::now(), 0, 0);
    while budget.map_or(round < rounds, |budget| start.elapsed() < budget) {
        let mut rng = Rng::new(round);
        let seed = &seeds[rng.below(seeds.len() as u64) as usize];
        accepted += u64::from(check(&mutate(seed, &mut rng)));
        round += 1;
    }
    println!("{round} mutated {what}: {accepted} accepted, no panic");
    assert!(accepted > round / 200, "the mutations are too wild to test what is accepted: {accepted} of {round}");
}

#[test]
fn mutated_records_are_read_or_explained() {
    let good = "schema = 1\nworkload = \"matmul-f32-m8n8k8-nn\"\ntarget = \"x86-64-v3\"\ndevice = \"A \\\"CPU\\\"\"\n\
                threads = 1\ntemplate = \"gemm\"\ntemplate_version = 2\nspace = \"56e583029914c63f\"\n\
                generator = \"0.1.0\"\ntime_us = 81.25\ngflops = 51.6\nmax_error = 1.2e-7\nverified = true\n\n\
                [config]\ntile = [-1, 8]\norder = { perm = [1, 0] }\nann = [\"none\", \"vec\"]\nunroll = 16\n\
                pack = true\nalgorithm = \"direct\"\n";
    let mut seeds = vec![good.to_string()];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests/bad-records");
    let mut paths: Vec<_> = fs::read_dir(folder).expect("the folder is there").map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    seeds.extend(paths.iter().map(|p| fs::read_to_string(p).expect("a readable file")));
    // Most of the rounds start from a good one: of the old form, or a list.
    let record = Record::parse(good, "good.toml").expect("it is good").to_line();
    let list = format!("schema = 2\ntarget = \"x86-64-v3\"\ndevice = \"A \\\"CPU\\\"\"\n\n[records]\n{record}\n");
    seeds.extend([vec![good.to_string(); seeds.len()], vec![list; seeds.len()]].concat());
    let written = |all: &[Record]| all.iter().map(Record::to_line).collect::<Vec<_>>();
    fuzz("records", 20_000, &seeds, |text| match records::parse(text, "fuzz.toml") {
        Ok(all) => {
            let head = |r: &Record| (r.target.clone(), r.device.clone());
            assert!(all.iter().all(|r| head(r) == head(&all[0])), "{text}");
            let lines = written(&all);
            let again = format!("schema = 2\ntarget = \"t\"\ndevice = \"d\"\n[records]\n{}\n", lines.join("\n"));
            assert_eq!(records::parse(&again, "again.toml").map(|all| written(&all)), Ok(lines), "{text}");
            true
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty(), "refused without a reason:\n{text}");
            for d in &diagnostics {
                assert!(!d.to_string().contains('\n') && d.line >= 1 && !d.help.is_empty(), "{d}");
            }
            false
        }
    });
}

#[test]
fn mutated_kernels_parse_back_or_are_explained() {
    let mut rng = sample::Rng::new(3);
    let mut seeds: Vec<String> = (0..12).map(|_| naive(&sample::workload(&mut rng)).to_string()).collect();
    seeds.push(
        "kernel all {\n  param x: f16[4, 16] global read\n  param y: f32[16, 4] global write\n  \
         for i in 0..4 parallel {\n    alloc t: f32[16] register\n    let h: i64 = i * 2 + 1\n    \
         t[ramp(0, 1, 16)] = f32(x[i, ramp(0, 1, 16)])\n    if i < 3 && h % 2 == 1 {\n      \
         for j in 0..16 vectorized {\n        y[j, i] = select(j < 8, t[j], 0f32)\n      }\n    } else {\n      \
         barrier block\n    }\n  }\n}\n"
            .to_string(),
    );
    for seed in &seeds {
        parse(seed).unwrap_or_else(|e| panic!("{e}\n{seed}"));
    }
    fuzz("kernels", 6_000, &seeds, |text| match parse(text) {
        Ok(kernel) => {
            let printed = kernel.to_string();
            let again = parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
            assert_eq!(again.to_string(), printed);
            true
        }
        Err(error) => {
            assert!(!error.cause.is_empty() && error.line >= 1 && error.col >= 1, "{error}");
            false
        }
    });
}

#[test]
fn mutated_configs_and_keys_read_back_or_are_explained() {
    let mut rng = sample::Rng::new(5);
    let mut seeds: Vec<String> = (0..20).map(|_| sample::workload(&mut rng).key()).collect();
    let config = "tile_f=[-1,2,64,1] order=(0,2,1) ann=<none,unroll,vec> unroll=1500 pack=true a=direct b=\"x\\u{20}\"";
    seeds.extend(vec![config.to_string(); 20]);
    fuzz("configs and keys", 40_000, &seeds, |text| {
        let key = match Workload::from_key(text) {
            Ok(workload) => {
                assert_eq!(workload.key(), text);
                true
            }
            Err(message) => {
                assert!(!message.is_empty());
                false
            }
        };
        let config = match Config::parse(text) {
            Ok(config) => {
                assert_eq!(Config::parse(&config.to_string()), Ok(config));
                true
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false
            }
        };
        key || config
    });
}

/// A line of a log whose checksum belongs to it, whatever it says.
#[cfg(feature = "tune")]
fn seal(content: &str) -> String {
    format!("{content},\"sum\":\"{:08x}\"}}", kernel_gen::stable::stable_hash(content) >> 32)
}

#[cfg(feature = "tune")]
#[test]
fn mutated_lines_of_logs_are_read_or_explained() {
    use kernel_gen::records::Trial;
    use kernel_gen::records::log::{LogItem, LogReader, LogWriter, Machine, Run};
    let common = "\"workload\":\"matmul-f32-m8n8k8-nn\",\"target\":\"sm_90a\",\"template\":\"gemm\",\"version\":2,\
                  \"space\":\"56e583029914c63f\",\"index\":3,\"config\":\"tile=[-1,8] order=(1,0) ann=<vec> word=\\\"a b\\\"\"";
    let of_run = "\"device\":\"H100\",\"threads\":1,\"generator\":\"0.1.0\",\"tuner\":\"auto\",\"seed\":1,\"run\":\"5f0c00000001\"";
    let good = [
        format!(
            "{{\"log\":1,\"line\":\"trial\",{common},\"us\":[4.5,4.25],\"error\":1e-7,\"verified\":true,{of_run},\"n\":0,\"at\":0.5"
        ),
        format!(
            "{{\"log\":1,\"line\":\"trial\",{common},\"failure\":\"crash\",\"detail\":\"x\",{of_run},\"n\":0,\"at\":0.5"
        ),
        format!("{{\"log\":1,\"line\":\"seed\",{common},\"reported_us\":7.5,\"verified\":false,\"source\":\"s\""),
        format!(
            "{{\"log\":1,\"line\":\"run\",{of_run},\"machine\":{{\"cpu\":{{\"isa\":\"v4\",\"compiler\":\"gcc\"}}}},\"started\":17"
        ),
    ];
    let log = std::env::temp_dir().join(format!("kernel-gen-fuzz-log-{}.jsonl", std::process::id()));
    let mut writer = LogWriter::open(&log, Run::new("fuzz", 1, Machine::Other, "fuzz", 0)).unwrap();
    let mut written: Vec<Trial> = vec![];
    // Half of the lines get a checksum that belongs to what the mutation made of them.
    let mut round = 0;
    fuzz("lines of logs", 20_000, &good, |text| {
        round += 1;
        let line = if round % 2 == 0 { seal(text) } else { text.to_string() };
        let mut accepted = false;
        for item in LogReader::new(line.as_bytes(), "fuzz.jsonl") {
            match item {
                Ok(LogItem::Trial(entry)) if written.len() < 500 => {
                    // What was read can be written again.
                    writer.append(&entry.task, &entry.trial).unwrap_or_else(|e| panic!("{e}\n{line}"));
                    written.push(entry.trial);
                    accepted = true;
                }
                Ok(_) => accepted = true,
                Err(d) => assert!(!d.to_string().contains('\n') && d.line >= 1 && !d.help.is_empty(), "{d}"),
            }
        }
        accepted
    });
    let back = kernel_gen::records::log::Log::read(&[&log]).unwrap();
    assert_eq!(back.entries.into_iter().map(|e| e.trial).collect::<Vec<_>>(), written);
    fs::remove_file(&log).unwrap();
}

#[cfg(feature = "tune")]
#[test]
fn mutated_lines_of_autotvm_are_taken_or_explained() {
    use kernel_gen::records::import::autotvm::Line;
    let entities = "[[\"tile_f\", \"sp\", [-1, 2, 64, 1]], [\"order\", \"re\", [1, 0]], [\"ann\", \"an\", [\"vec\"]], \
                    [\"tile_rc\", \"sp\", [-1, 2]], [\"auto_unroll_max_step\", \"ot\", 1500]]";
    let rest = format!(
        "\"config\": {{\"index\": 4881186, \"code_hash\": null, \"entity\": {entities}}}, \"result\": [[0.00074], 0, 1.6, 1605451988.4], \
         \"version\": 0.2}}"
    );
    let seeds = [
        format!(
            "{{\"input\": [\"cuda\", \"tutorial/conv2d_no_batching\", [1, 7, 7, 512, 512, 3, 3, [1, 1], [1, 1]], {{}}], {rest}"
        ),
        format!(
            "{{\"input\": [\"cuda -arch=sm_80\", \"conv2d_nchw.cuda\", [[\"TENSOR\", [1, 64, 8, 8], \"float32\"], [\"TENSOR\", \
             [32, 64, 3, 3], \"float32\"], [1, 1], [1, 1, 1, 1], [1, 1], \"float32\"], {{}}], {rest}"
        ),
        format!("{{\"input\": [\"llvm\", \"tutorial/matmul\", [512, 512, 512, \"float32\"], {{}}], {rest}"),
        format!(
            "{{\"input\": [\"cuda\", \"conv2d_hwcn.cuda\", [[\"TENSOR\", [8, 8, 64, 32], \"float16\"], [\"TENSOR\", [3, 3, 64, 32], \
             \"float16\"], 1, 1, 1, \"float16\"], {{}}], {}",
            rest.replace("\"tile_f\"", "\"tile_fi\"")
                .replace("\"order\", \"re\", [1, 0]", "\"tile_ni\", \"sp\", [-1, 2, 8, 4]")
        ),
        format!(
            "{{\"input\": [\"cuda\", \"dense_large_batch.gpu\", [[\"TENSOR\", [128, 64], \"float32\"], [\"TENSOR\", [32, 64], \
             \"float32\"], null, \"float32\"], {{}}], {}",
            rest.replace("\"tile_f\"", "\"tile_x\"")
                .replace("\"order\", \"re\", [1, 0]", "\"tile_y\", \"sp\", [-1, 2, 8, 4]")
                .replace("\"tile_rc\", \"sp\", [-1, 2]", "\"tile_k\", \"sp\", [-1, 8, 1]")
        ),
    ];
    fuzz("lines of AutoTVM", 20_000, &seeds, |text| match Line::parse(text) {
        Ok(line) => {
            assert_eq!(Workload::from_key(&line.workload.key()), Ok(line.workload));
            assert_eq!(Config::parse(&line.config.to_string()), Ok(line.config));
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n') && !error.help().is_empty(), "{error}");
            false
        }
    });
}
