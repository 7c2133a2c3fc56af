//! The README and the pages of `docs`: links lead somewhere, specs are read, and what a new user types works.

use kernel_gen::spec::Spec;
use kernel_gen_tests::consumer::{Consumer, repository};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every page: at the top, in `docs`, and beside examples, crates and tests.
fn pages() -> Vec<PathBuf> {
    fn below(folder: &Path, all: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // What is built, fetched or hidden is not ours.
            let ours = !name.starts_with('.') && !name.starts_with("target") && name != "models";
            if path.is_dir() && ours {
                below(&path, all);
            } else if name.ends_with(".md") {
                all.push(path);
            }
        }
    }
    let mut all = vec![];
    below(&repository(), &mut all);
    all.sort();
    all
}

/// Text outside of blocks of code, and blocks with what stands behind their fences and the line of these.
fn parts(text: &str) -> (String, Vec<(String, usize, String)>) {
    let (mut prose, mut blocks, mut open) = (String::new(), vec![], None::<(String, usize, String)>);
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some((language.to_string(), number + 1, String::new())),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some((language, at, text))) => open = Some((language, at, text + line + "\n")),
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert!(open.is_none(), "a block is not closed: {open:?}");
    (prose, blocks)
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let (mut wrong, mut links) = (vec![], 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let (prose, _) = parts(&text);
        for part in prose.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !path.exists() {
                wrong.push(format!("{}: there is no {target}", page.display()));
            } else if !fragment.is_empty() {
                let (prose, _) = parts(&fs::read_to_string(&path).unwrap());
                let headings = prose.lines().filter(|line| line.starts_with('#'));
                if !headings.map(|line| anchor(line.trim_start_matches('#'))).any(|a| a == fragment) {
                    wrong.push(format!("{}: {file} has no heading {fragment}", page.display()));
                }
            }
        }
    }
    assert!(links > 60, "{links}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_book_and_the_book_has_no_other() {
    let docs = repository().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let named: BTreeSet<PathBuf> =
        summary.split("](").skip(1).map(|part| docs.join(part.split(')').next().unwrap())).collect();
    let archive = docs.join("archive");
    // The pages of the archive are reached from its first.
    let mut there: BTreeSet<PathBuf> = pages().into_iter().filter(|p| p.starts_with(&docs)).collect();
    there.retain(|p| !p.starts_with(&archive) || *p == archive.join("README.md"));
    there.remove(&docs.join("SUMMARY.md"));
    assert_eq!(named, there);
}

/// The text of each file of Rust below a folder, without what cargo builds there, which has a tag for that.
fn sources(folder: &Path) -> Vec<String> {
    let mut all = vec![];
    for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if path.join("CACHEDIR.TAG").exists() {
            continue;
        } else if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(fs::read_to_string(path).unwrap());
        }
    }
    all
}

/// Every variable of ours that the library reads is on its page.
#[test]
fn every_variable_is_in_the_table() {
    let folders = ["kernel-gen/src", "build-support/src", "runtime/src"];
    let text = folders.map(|folder| sources(&repository().join(folder)).concat()).concat();
    let page = fs::read_to_string(repository().join("docs/variables.md")).unwrap();
    let word = |c: char| c.is_ascii_uppercase() || c == '_';
    let names: BTreeSet<&str> = text
        .match_indices("KERNEL_GEN_")
        .map(|(at, _)| text[at..].split(|c| !word(c)).next().unwrap())
        // Parts of names of macros and symbols, and what tests read.
        .filter(|name| !name.ends_with('_') && !name.starts_with("KERNEL_GEN_TEST"))
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    let missing: Vec<&&str> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(repository().join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= 900, "the README has {words} words");
}

/// Specs in the pages, those that are whole and those that are a kernel or two.
#[test]
fn specs_in_the_pages_are_read() {
    let mut read = 0;
    let mut wrong = vec![];
    for page in pages() {
        let (_, blocks) = parts(&fs::read_to_string(&page).unwrap());
        // Networks name files, and `[[extern]]` code.
        let is_spec =
            |text: &str| text.contains("[[kernel]]") && !text.contains("[[network]]") && !text.contains("[[extern]]");
        for (_, line, text) in blocks.iter().filter(|(language, _, text)| language == "toml" && is_spec(text)) {
            // An ellipsis stands for what a reader fills in.
            if text.contains('…') || text.contains("...") {
                continue;
            }
            let whole = if text.contains("schema =") { text.clone() } else { format!("schema = 1\n{text}") };
            let name = format!("{}:{line}", page.strip_prefix(repository()).unwrap().display());
            match Spec::parse(&whole, &name) {
                Ok(_) => read += 1,
                Err(all) => wrong.push(all[0].to_string()),
            }
        }
    }
    println!("{read} specs of the pages are read");
    assert!(read > 20 && wrong.is_empty(), "{read} read\n{}", wrong.join("\n"));
}

/// The runs of lines of code in Rust, without comments and what separates words. A blank line and a line that is a comment end a run.
fn code_runs(text: &str) -> Vec<Vec<String>> {
    let mut runs = vec![vec![]];
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        match code.split_whitespace().collect::<Vec<_>>().join(" ") {
            code if code.is_empty() => runs.push(vec![]),
            code => runs.last_mut().expect("there is one").push(code),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// The lines of code of a file, with those in the examples of its documentation that are compiled as tests.
fn compiled_lines(text: &str) -> Vec<String> {
    let (mut code, mut in_example) = (String::new(), false);
    for line in text.lines().map(str::trim_start) {
        match ["//!", "///"].iter().find_map(|mark| line.strip_prefix(mark)) {
            Some(said) if said.trim().starts_with("```") => in_example = !in_example && said.trim() == "```",
            Some(said) if in_example => code += &format!("{said}\n"),
            Some(_) => {}
            None => code += &format!("{line}\n"),
        }
    }
    code_runs(&code).concat()
}

/// Blocks of Rust are parts of programs and tests: each run of their lines stands there in one place, the runs in the same order. Those of
/// quick starts, which name their files, are built by a test of their own.
#[test]
fn rust_in_the_pages_stands_in_what_is_compiled() {
    let compiled: Vec<Vec<String>> = ["examples", "kernel-gen/src/templates", "tests/gpu-runtime"]
        .iter()
        .flat_map(|folder| sources(&repository().join(folder)))
        .map(|text| compiled_lines(&text))
        .collect();
    let stands_in = |text: &str, source: &[String]| {
        let mut rest = source;
        code_runs(text).iter().all(|run| {
            let at = rest.windows(run.len()).position(|lines| lines == run);
            rest = at.map_or(&[], |at| &rest[at + run.len()..]);
            at.is_some()
        })
    };
    let (mut found, mut missing) = (0, vec![]);
    // A crate's own page is part of its documentation, whose code is compiled by the tests of that.
    for page in pages().into_iter().filter(|page| page.starts_with(repository().join("docs"))) {
        let (_, blocks) = parts(&fs::read_to_string(&page).unwrap());
        for (language, line, text) in blocks.iter().filter(|(language, ..)| language.starts_with("rust")) {
            let is_file = |name: &str| text.lines().next().is_some_and(|first| first.trim_end().ends_with(name));
            if is_file("// build.rs") || is_file("main.rs") {
                continue;
            }
            match compiled.iter().any(|source| stands_in(text, source)) {
                true => found += 1,
                false => missing.push(format!("{}:{line}: a block of {language}", page.display())),
            }
        }
    }
    assert!(found >= 8 && missing.is_empty(), "{found} found; no program or test has these:\n{}", missing.join("\n"));
    // What a program does not have is missed: a line less, and lines in another order.
    let program: Vec<String> = ["a();", "b();", "c();"].map(String::from).to_vec();
    assert!(stands_in("a();\nb();\n", &program) && stands_in("a();\n// ...\nc();\n", &program));
    assert!(!stands_in("a();\nc();\n", &program) && !stands_in("c();\n\na();\n", &program));
}

/// The files of a page's quick start: blocks whose first line names them.
fn files(page: &str) -> Vec<(String, String)> {
    let (_, blocks) = parts(&fs::read_to_string(repository().join(page)).unwrap());
    let named = blocks.into_iter().filter_map(|(_, _, text)| {
        let first = text.lines().next()?.trim_start_matches(['#', '/', ' ']);
        let is_file = ["kernels.toml", "build.rs", "main.rs", "src/main.rs"].contains(&first);
        is_file.then(|| (first.to_string(), text.clone()))
    });
    named.collect()
}

#[test]
fn the_quick_starts_build_and_run() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream");
    for page in ["README.md", "docs/start.md"] {
        let consumer = Consumer::new(&root, &page.replace(['.', '/'], "-").to_lowercase());
        let mut written = BTreeSet::new();
        // A later block of the same name is another example.
        for (name, text) in files(page) {
            let name = if name == "main.rs" { "src/main.rs".to_string() } else { name };
            if written.insert(name.clone()) {
                consumer.write(&name, &text);
            }
        }
        assert_eq!(written.len(), 3, "{page}: {written:?}");
        let _ = fs::create_dir(consumer.folder.join("tuned"));
        let ran = consumer.cargo(&["run", "--offline", "--locked"]).passed();
        assert!(ran.stdout.contains("origin") && ran.stderr.contains(" workload for "), "{page}: {}", ran.stdout);
    }
}
