//! The verifier and the interpreter on kernels in files: good ones pass, planted faults are caught by name.

use crate::sweep::number;
use kernel_gen::analysis::verify::{Limits, check, verify};
use kernel_gen::interp::{self, Mode};
use kernel_gen::ir::parse::parse;
use kernel_gen::workload::sample::Rng;
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the filetests are in the repository").map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "kg"));
    paths.sort();
    paths.into_iter().map(|p| (p.clone(), std::fs::read_to_string(p).unwrap())).collect()
}

/// What follows `; key:` in one of the comment lines at the top.
fn header<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines()
        .take_while(|l| l.starts_with(';'))
        .find_map(|l| l.trim_start_matches([';', ' ']).strip_prefix(key)?.trim_start().strip_prefix(':').map(str::trim))
}

#[test]
fn planted_faults_are_caught_by_name() {
    let (mut by_verifier, mut by_both) = (0, 0);
    let files = files("faults");
    for (path, text) in &files {
        let kernel = parse(text).unwrap_or_else(|e| panic!("{}:{e}", path.display()));
        let want = header(text, "fault").unwrap_or_else(|| panic!("{}: no fault is named", path.display()));
        let limits = if text.contains("thread.") || text.contains("grid.") { Limits::cuda() } else { Limits::cpu() };
        let faults = verify(kernel.clone(), &limits).expect_err(&format!("{} passes", path.display()));
        assert!(
            faults.iter().any(|f| f.kind.name() == want),
            "{}: wanted {want}, found {:?}",
            path.display(),
            faults.iter().map(ToString::to_string).collect::<Vec<_>>()
        );
        println!("{}: {}", path.file_stem().unwrap().to_string_lossy(), faults[0]);
        by_verifier += 1;
        let ran = interp::run(&kernel, &interp::seeded_inputs(&kernel, 1), Mode::Declared);
        match (header(text, "interp"), ran) {
            (Some(want), Err(e)) => {
                assert_eq!(e.cause.kind(), want, "{}: {e}", path.display());
                println!("    interpreter: {e}");
                by_both += 1;
            }
            (None, Ok(_)) => {}
            (want, got) => panic!("{}: wanted {want:?} of the interpreter, got {got:?}", path.display()),
        }
    }
    println!("{by_verifier} planted faults caught by the verifier, {by_both} of them by the interpreter too");
    for name in [
        "out-of-bounds read",
        "out-of-bounds write",
        "missing barrier",
        "divergent barrier",
        "unguarded tail",
        "misaligned vector",
        "register array indexed at run time",
        "shared memory over the limit",
        "unwritten output",
        "write race",
        "wrong reduction init",
        "wrong scope",
        "deadlock",
        "missing fence",
        "barrier misuse",
        "unfinished store",
        "fragment element of another thread",
    ] {
        assert!(files.iter().any(|(_, t)| header(t, "fault") == Some(name)), "no file plants: {name}");
    }
}

#[test]
fn good_kernels_pass_run_and_round_trip() {
    let files = files("good");
    for (path, text) in &files {
        let kernel = parse(text).unwrap_or_else(|e| panic!("{}:{e}", path.display()));
        let limits = match header(text, "target") {
            Some("cpu") => Limits::cpu(),
            Some("cuda") => Limits::cuda(),
            other => panic!("{}: target {other:?}", path.display()),
        };
        let faults: Vec<String> = check(&kernel, &limits).iter().map(ToString::to_string).collect();
        assert!(faults.is_empty(), "{}: {faults:#?}", path.display());
        let inputs = interp::seeded_inputs(&kernel, 1);
        for mode in [Mode::F64, Mode::Declared] {
            interp::run(&kernel, &inputs, mode).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        assert_eq!(parse(&kernel.to_string()).unwrap(), kernel, "{}", path.display());
    }
    println!("{} good kernels pass the verifier and run", files.len());
}

#[test]
fn the_shared_memory_products_compute_the_product() {
    for name in ["shared_matmul", "shared_matmul_vthread"] {
        let (_, text) = files("good").into_iter().find(|(p, _)| p.file_stem().unwrap() == name).unwrap();
        let kernel = parse(&text).unwrap();
        let inputs = interp::seeded_inputs(&kernel, 5);
        let out = interp::run(&kernel, &inputs, Mode::F64).unwrap();
        for i in 0..64 {
            for j in 0..64 {
                let want: f64 = (0..32).map(|k| inputs["a"][i * 32 + k] * inputs["b"][k * 64 + j]).sum();
                assert_eq!(out["c"][i * 64 + j], want, "{name} at {i}, {j}");
            }
        }
    }
}

/// Kernels in pairs, a wrong one and its twin, with what the verifier and the interpreter have to say of each.
#[test]
fn litmus_kernels_are_judged_as_their_files_say() {
    let files = files("litmus");
    let (mut wrong, mut failures) = (0, vec![]);
    for (path, text) in &files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let kernel = parse(text).unwrap_or_else(|e| panic!("{}:{e}", path.display()));
        let says = |key: &str| header(text, key).unwrap_or_else(|| panic!("{name}: `{key}` is not stated"));
        let limits = match says("target") {
            "cpu" => Limits::cpu(),
            "cuda" => Limits::cuda(),
            other => panic!("{name}: target {other}"),
        };
        let verified = verify(kernel.clone(), &limits);
        let ran = interp::run(&kernel, &interp::seeded_inputs(&kernel, 1), Mode::Declared);
        let found = match &ran {
            Ok(_) => "passes",
            Err(e) => e.cause.kind(),
        };
        let agrees = match &verified {
            Ok(_) => says("verifier") == "passes",
            Err(faults) => faults.iter().any(|f| f.kind.name() == says("verifier")),
        };
        let told = match &verified {
            Ok(v) => v.depth().to_string(),
            Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        println!("{name}: {told}; interpreter: {found}");
        if !agrees || found != says("interpreter") {
            failures.push(format!("{name}: verifier: {told}; interpreter: {ran:?}"));
        }
        if let (Some(depth), Ok(v)) = (header(text, "depth"), &verified)
            && v.depth().launches.iter().map(ToString::to_string).collect::<Vec<_>>() != [depth]
        {
            failures.push(format!("{name}: the depth is {told}"));
        }
        wrong += usize::from(says("verifier") != "passes");
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert!(files.len() >= 60 && wrong * 2 == files.len(), "{wrong} of {} are wrong", files.len());
}

/// A workspace of which every other element is written and read, too long to follow: the type says how far it was.
#[test]
fn a_walk_that_is_too_long_is_said_and_what_it_sees_is_judged() {
    let kernel = |extent: i64, odd: i64| {
        let text = format!(
            "kernel every_other {{\n  param x: f32[{extent}] global read\n  param z: f32[{extent}] global write\n  alloc t: f32[8] global\n  \
             for p in 0..{} {{\n    for i in 0..8 {{\n      if i % 2 == 0 {{\n        t[i] = x[p * 8 + i]\n      }}\n    }}\n    \
             for q in 0..8 {{\n      z[p * 8 + q] = select((p + q) % 2 == (p + {odd}) % 2, t[q], 0.0f32)\n    }}\n  }}\n}}\n",
            extent / 8
        );
        verify(parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), &Limits::cpu())
    };
    let whole = kernel(64, 0).unwrap();
    assert!(whole.depth().is_whole(), "{}", whole.depth());
    let long = kernel(1 << 24, 0).unwrap();
    assert!(!long.depth().is_whole() && long.depth().reads[0].followed > 1 << 19, "{}", long.depth());
    assert!(long.depth().to_string().contains("reads of t, of which the first"), "{}", long.depth());
    for extent in [64, 1 << 24] {
        let faults = kernel(extent, 1).unwrap_err();
        assert!(faults[0].to_string().contains("t[1] is read, but nothing has written it"), "{}", faults[0]);
    }
}

/// Elements of a tile that a flat number counts, as threads that copy together do: more of them than are followed, so that it
/// is shown for all or not said. Where the number ends early or its digits are others, it is never said.
#[test]
fn tiles_copied_by_one_number_are_shown_whole_at_any_size() {
    let mut rng = Rng::new(11);
    for _ in 0..4 {
        let shape = [rng.between(200, 300), rng.between(200, 300), rng.between(200, 300)];
        let [a, b, c] = shape;
        let elements = a * b * c;
        let step = *rng.pick(&[32, 96, 128]);
        let kernel = |end: i64, digit: i64| {
            let e = format!("(o * {step} + l)");
            let text = format!(
                "kernel copied {{\n  param x: f32[{a}, {b}, {c}] global read\n  param z: f32[4, {a}, {b}, {c}] global write\n  \
                 for p in 0..4 {{\n    alloc t: f32[{a}, {b}, {c}] global\n    for o in 0..{} {{\n      for l in 0..{step} {{\n        \
                 if {e} < {end} {{\n          t[{e} / {}, {e} / {digit} % {b}, {e} % {c}] = x[{e} / {}, {e} / {c} % {b}, {e} % {c}]\n        \
                 }}\n      }}\n    }}\n    for i in 0..{a} {{\n      for j in 0..{b} {{\n        for k in 0..{c} {{\n          \
                 z[p, i, j, k] = t[i, j, k]\n        }}\n      }}\n    }}\n  }}\n}}\n",
                (elements + step - 1) / step,
                b * c,
                b * c,
            );
            verify(parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), &Limits::cpu())
        };
        let right = kernel(elements, c).unwrap_or_else(|faults| panic!("{shape:?} by {step}: {}", faults[0]));
        assert!(right.depth().is_whole(), "{shape:?} by {step}: {}", right.depth());
        for (end, digit) in [(elements - 1, c), (elements - rng.between(2, c), c), (elements, c + 1), (elements, c - 1)]
        {
            assert!(!kernel(end, digit).is_ok_and(|v| v.depth().is_whole()), "{shape:?} by {step}: {end}, {digit}");
        }
    }
}

/// Rows in tiles that several statements write a part of each, too many rows to mark them all: shown where nothing is left out.
#[test]
fn outputs_in_tiles_are_shown_whole_at_any_size() {
    let mut rng = Rng::new(12);
    for _ in 0..40 {
        let (parts, part) = (rng.between(2, 4), rng.between(1, 9));
        let tile = parts * part;
        let rows = rng.between(1 << 28, 1 << 33);
        let kernel = |tiles: i64, end: i64, missing: i64| {
            let store = |p: i64| {
                let row = format!("tile * {tile} + (i{p} + {})", p * part);
                format!("      if {row} < {end} {{\n        y[{row}, c{p}] = 1.0f32\n      }}\n")
            };
            let stores: String = (0..parts)
                .map(|p| {
                    let extent = if p == missing { part - 1 } else { part };
                    format!("    for c{p} in 0..3 {{\n    for i{p} in 0..{extent} {{\n{}    }}\n    }}\n", store(p))
                })
                .collect();
            let text = format!(
                "kernel tiles {{\n  param y: f32[{rows}, 3] global write\n  for tile in 0..{tiles} {{\n{stores}  }}\n}}\n"
            );
            check(&parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), &Limits::cpu())
        };
        let tiles = (rows + tile - 1) / tile;
        let faults = kernel(tiles, rows, parts);
        assert!(faults.is_empty(), "{rows} rows by {parts} of {part}: {}", faults[0]);
        for (tiles, end, missing) in
            [(tiles - 1, rows, parts), (tiles, rows - 1, parts), (tiles, rows, rng.between(0, parts - 1))]
        {
            assert!(
                !kernel(tiles, end, missing).is_empty(),
                "{rows} rows by {parts} of {part}: {tiles} {end} {missing}"
            );
        }
    }
}

/// An index of two loops' variables: one of them, their number, digits of it, or sums.
fn random_index(rng: &mut Rng, [a, b]: [&str; 2], within: i64) -> String {
    let number = format!("({a} * {within} + {b})");
    let by = rng.between(1, 4);
    match rng.between(0, 8) {
        0 => a.to_string(),
        1 => b.to_string(),
        2 => format!("{number} / {}", rng.between(1, 6)),
        3 => format!("{number} % {}", rng.between(1, 6)),
        4 => format!("{number} / {by} % {}", rng.between(1, 4)),
        5 => format!("{a} + {b}"),
        6 => format!("{b} % {by} * {} + {a}", rng.between(1, 3)),
        7 => number,
        _ => rng.between(0, 2).to_string(),
    }
}

/// Two loops around an access of a buffer of this shape, as far as it is inside, and perhaps under another condition.
fn random_nest(rng: &mut Rng, shape: [i64; 2], vars: [&str; 2], access: &dyn Fn(&str) -> String) -> String {
    let ([a, b], [x, y]) = (vars, [rng.between(1, 6), rng.between(1, 6)]);
    let [i, j] = shape.map(|_| random_index(rng, vars, y));
    let mut guards = vec![format!("({i}) < {}", shape[0]), format!("({j}) < {}", shape[1])];
    if rng.one_in(3) {
        guards.push(format!("({}) < {}", random_index(rng, vars, y), rng.between(1, 8)));
    }
    let (guards, access) = (guards.join(" && "), access(&format!("[{i}, {j}]")));
    format!("for {a} in 0..{x} {{\n for {b} in 0..{y} {{\n if {guards} {{\n {access}\n }}\n }}\n }}\n")
}

/// What the verifier passes of random kernels runs: that is how proofs without running are held to what running shows.
fn passed_ones_run(what: &str, draw: &dyn Fn(&mut Rng) -> String) {
    let mut rng = Rng::new(number("KERNEL_GEN_SEED", 13));
    let (mut passed, mut refused) = (0, 0);
    let draws = number("KERNEL_GEN_WORKLOADS", 12) * 500;
    for _ in 0..draws {
        let text = draw(&mut rng);
        let kernel = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let ran = interp::run(&kernel, &interp::seeded_inputs(&kernel, 1), Mode::Declared);
        match (verify(kernel, &Limits::cpu()), ran) {
            (Ok(_), Ok(_)) => passed += 1,
            (Err(_), _) => refused += 1,
            (Ok(v), Err(e)) => panic!("passed ({}), but {e}\n{text}", v.depth()),
        }
    }
    println!("{what}: {passed} passed, {refused} refused");
    assert!(passed > draws / 100 && refused > draws / 100, "{passed} passed, {refused} refused");
}

#[test]
fn reads_that_pass_are_of_what_was_written() {
    passed_ones_run("reads", &|rng| {
        let shape = [rng.between(1, 4), rng.between(1, 6)];
        let write = random_nest(rng, shape, ["a", "b"], &|index| format!("t{index} = x[p]"));
        let read = random_nest(rng, shape, ["c", "d"], &|index| format!("z[p] = z[p] + t{index}"));
        format!(
            "kernel random {{\n param x: f32[2] global read\n param z: f32[2] global readwrite\n for p in 0..2 {{\n \
             alloc t: f32[{}, {}] local\n{write}{read} }}\n}}\n",
            shape[0], shape[1]
        )
    });
}

#[test]
fn outputs_that_pass_are_written_whole() {
    passed_ones_run("outputs", &|rng| {
        let shape = [rng.between(1, 3), rng.between(1, 9)];
        let nests: String = [["a", "b"], ["c", "d"]][..rng.between(1, 2) as usize]
            .iter()
            .map(|vars| random_nest(rng, shape, *vars, &|index| format!("y{index} = x[0]")))
            .collect();
        format!(
            "kernel random {{\n param x: f32[2] global read\n param y: f32[{}, {}] global write\n{nests}}}\n",
            shape[0], shape[1]
        )
    });
}
