//! Holds the imports of this crate against three rules:
//!
//! * A module imports only what stands above it in the list of `ARCHITECTURE.md`.
//! * No files import each other in a circle, but for those of [`CIRCLES`].
//! * No file imports what a `mod.rs` above it defines, but for those of [`CLIMBING`]: a `mod.rs` declares its files, exports
//!   what they define, and orchestrates them.
//!
//! An import is a `use` or a path in code. What a file only exports leads on to the file that defines it. Test modules do not
//! count. Sources are read word by word, without types, so a call of a method is no import.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Files that may import each other in a circle, and why. A name that ends in `/` stands for all files of a folder.
const CIRCLES: &[(&[&str], &str)] = &[
    (&["network/translate/control_flow.rs", "network/translate/nodes.rs"], "nodes have graphs, and graphs have nodes"),
    (
        &[
            "workload/arg.rs",
            "workload/attention.rs",
            "workload/avg_pool2d.rs",
            "workload/binary.rs",
            "workload/broadcast_matmul.rs",
            "workload/channel_softmax.rs",
            "workload/concat.rs",
            "workload/conv1d.rs",
            "workload/conv2d.rs",
            "workload/conv_nd.rs",
            "workload/definition.rs",
            "workload/depthwise_pointwise.rs",
            "workload/dims.rs",
            "workload/gather.rs",
            "workload/grid_sample.rs",
            "workload/group_norm.rs",
            "workload/integers.rs",
            "workload/lookup.rs",
            "workload/lrn.rs",
            "workload/matmul.rs",
            "workload/matmul_nbits.rs",
            "workload/max_pool2d.rs",
            "workload/movement.rs",
            "workload/operator.rs",
            "workload/operators.rs",
            "workload/pool_nd.rs",
            "workload/quant.rs",
            "workload/recurrent.rs",
            "workload/reduce.rs",
            "workload/reference.rs",
            "workload/reference_attention.rs",
            "workload/reference_elements.rs",
            "workload/reference_grid.rs",
            "workload/reference_rows.rs",
            "workload/resize.rs",
            "workload/row_wise.rs",
            "workload/scaled_matmul.rs",
            "workload/select.rs",
            "workload/top_k.rs",
            "workload/unary.rs",
            "workload/windows.rs",
        ],
        "a workload holds an operator of the list, and an operator is asked of a whole workload",
    ),
    (
        &["interp/compile.rs", "interp/expr.rs", "interp/layout.rs"],
        "methods of one compiler: of statements, of expressions and of memory",
    ),
];

/// Folders whose `mod.rs` files may define what the files beside them import, and why.
const CLIMBING: &[(&str, &str)] = &[];

/// Names from the root of the crate on.
type Names = Vec<String>;

/// A module, in a file of its own or within one.
#[derive(Default)]
struct Module {
    /// Its file, below `src`.
    file: String,
    children: BTreeSet<String>,
    /// What a name stands for here, by `use`.
    names: BTreeMap<String, Names>,
    /// The modules whose names are all names here.
    globs: Vec<Names>,
    /// Paths that are followed: those of code, and of each `use` that does not only export.
    paths: BTreeSet<Names>,
    /// Exports by name. They count where the module's own code has the name.
    exports: Vec<(String, Names)>,
    /// Words of code that stand by themselves.
    words: BTreeSet<String>,
}

/// The words and marks of a source, without comments and literals. `::` is one mark.
fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let ahead = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let behind = |at: usize, end: &str| text[at..].find(end).map_or(text.len(), |n| at + n + end.len());
    let (mut all, mut at) = (vec![], 0);
    while at < bytes.len() {
        let from = at;
        match bytes[at] {
            b'/' if ahead(at + 1) == b'/' => at = behind(at, "\n"),
            b'/' if ahead(at + 1) == b'*' => at = behind(at + 2, "*/"),
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'\'' if ahead(at + 1) == b'\\' => at = behind(at + 3, "'"),
            b'\'' => {
                // One character between two of these is a literal; else it is a lifetime.
                let size = text[at + 1..].chars().next().map_or(1, char::len_utf8);
                at += if ahead(at + 1 + size) == b'\'' { size + 2 } else { 1 };
            }
            b'r' if ahead(at + 1) == b'"' || (ahead(at + 1) == b'#' && matches!(ahead(at + 2), b'"' | b'#')) => {
                let marks = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
                at = behind(at + marks + 2, &format!("\"{}", "#".repeat(marks)));
            }
            b if is_word(b) => {
                at += bytes[at..].iter().take_while(|b| is_word(**b)).count();
                all.push(&text[from..at]);
            }
            b':' if ahead(at + 1) == b':' => {
                at += 2;
                all.push("::");
            }
            b if b.is_ascii() && !b.is_ascii_whitespace() => {
                at += 1;
                all.push(&text[from..at]);
            }
            _ => at += 1,
        }
    }
    all
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The place behind the bracket that closes the one at `at`.
fn behind_brackets(t: &[&str], at: usize) -> usize {
    let mut depth = 0;
    for (i, token) in t.iter().enumerate().skip(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    t.len()
}

/// The place behind the item at `at`, which ends with a `;` or its braces.
fn behind_item(t: &[&str], mut at: usize) -> usize {
    while at < t.len() {
        match t[at] {
            ";" => return at + 1,
            "{" => return behind_brackets(t, at),
            "(" | "[" => at = behind_brackets(t, at),
            _ => at += 1,
        }
    }
    at
}

/// A path as it is written in a module, from the root of the crate on; none if it leads into another crate.
fn absolute(here: &[String], children: &BTreeSet<String>, path: &[&str]) -> Option<Names> {
    let (mut base, mut rest) = (here.to_vec(), path);
    match path[0] {
        "crate" => (base, rest) = (vec![], &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first() == Some(&"super") {
                (_, rest) = (base.pop(), &rest[1..]);
            }
        }
        name if children.contains(name) => {}
        _ => return None,
    }
    base.extend(rest.iter().map(|name| name.to_string()));
    Some(base)
}

/// Reads the tree of a `use` that stands at `at`: each path with the name that it gets. The second answer is the place behind.
fn read_use<'t>(t: &[&'t str], mut at: usize, before: &[&'t str]) -> (Vec<(Vec<&'t str>, &'t str)>, usize) {
    let (mut path, mut all) = (before.to_vec(), vec![]);
    loop {
        match t[at] {
            "{" => {
                at += 1;
                while t[at] != "}" {
                    let (inner, behind) = read_use(t, at, &path);
                    all.extend(inner);
                    at = if t[behind] == "," { behind + 1 } else { behind };
                }
                return (all, at + 1);
            }
            "::" => at += 1,
            "as" => {
                all.push((path, t[at + 1]));
                return (all, at + 2);
            }
            "," | "}" | ";" => {
                let name = path.last().copied().unwrap_or_default();
                all.push((path, name));
                return (all, at);
            }
            // `{self}` is the path before it.
            "self" if !path.is_empty() => at += 1,
            token => {
                path.push(token);
                at += 1;
            }
        }
    }
}

/// Reads the items of a module from `at` to its end into `modules`, and those of modules within it.
fn read(
    t: &[&str],
    mut at: usize,
    file: &str,
    here: &Names,
    modules: &mut BTreeMap<Names, Module>,
    tests: &mut BTreeSet<Names>,
) -> usize {
    // A file's modules may stand below what needs them.
    let mut module = Module { file: file.to_string(), ..Module::default() };
    let (mut i, mut depth) = (at, 0);
    while i < t.len() && depth >= 0 {
        match t[i] {
            "{" => depth += 1,
            "}" => depth -= 1,
            "mod" if depth == 0 && is_name(t[i + 1]) && matches!(t[i + 2], ";" | "{") => {
                module.children.insert(t[i + 1].to_string());
            }
            _ => {}
        }
        i += 1;
    }
    let mut depth = 0;
    let mut exported = false;
    while at < t.len() {
        match t[at] {
            "#" => {
                let open = if t[at + 1] == "!" { at + 2 } else { at + 1 };
                let behind = behind_brackets(t, open);
                let has = |word: &str| t[open..behind].contains(&word);
                at = behind;
                if t[open + 1] == "cfg" && has("test") && !has("not") && !has("any") {
                    while t[at] == "#" {
                        at = behind_brackets(t, at + 1);
                    }
                    let end = behind_item(t, at);
                    if let Some(name) = t[at..end].iter().position(|w| *w == "mod").map(|m| t[at + m + 1]) {
                        tests.insert(here.iter().cloned().chain([name.to_string()]).collect());
                    }
                    at = end;
                }
                continue;
            }
            // `pub(in crate::templates)` says who may import, and imports nothing.
            "pub" => {
                at = if t[at + 1] == "(" { behind_brackets(t, at + 1) } else { at + 1 };
                exported = true;
                continue;
            }
            "use" if t[at + 1] != "<" => {
                let (all, behind) = read_use(t, at + 1, &[]);
                for (path, name) in all {
                    let is_glob = name == "*";
                    let path = if is_glob { &path[..path.len() - 1] } else { &path[..] };
                    let Some(path) = absolute(here, &module.children, path) else { continue };
                    if is_glob {
                        module.globs.push(path);
                    } else if exported {
                        module.exports.push((name.to_string(), path.clone()));
                        module.names.insert(name.to_string(), path);
                    } else {
                        module.paths.insert(path.clone());
                        module.names.insert(name.to_string(), path);
                    }
                }
                (at, exported) = (behind, false);
                continue;
            }
            "mod" if is_name(t[at + 1]) && t[at + 2] == "{" => {
                let inner = here.iter().cloned().chain([t[at + 1].to_string()]).collect();
                (at, exported) = (read(t, at + 3, file, &inner, modules, tests), false);
                continue;
            }
            "{" => depth += 1,
            "}" => depth -= 1,
            "." => {
                // A field or a method.
                at += 2;
                continue;
            }
            name if is_name(name) => {
                let mut path = vec![name];
                while t.get(at + 1) == Some(&"::") && t.get(at + 2).is_some_and(|next| is_name(next)) {
                    path.push(t[at + 2]);
                    at += 2;
                }
                match (absolute(here, &module.children, &path), path.len()) {
                    (_, 1) => drop(module.words.insert(name.to_string())),
                    (Some(path), _) => drop(module.paths.insert(path)),
                    // Its first name may stand for a module.
                    (None, _) => {
                        module.words.insert(name.to_string());
                        let path = here.iter().cloned().chain(path.iter().map(|name| name.to_string()));
                        module.paths.insert(path.collect());
                    }
                }
            }
            _ => {}
        }
        (at, exported) = (at + 1, false);
        if depth < 0 {
            break;
        }
    }
    modules.insert(here.clone(), module);
    at
}

/// All modules of the crate but those of tests.
fn modules(src: &Path) -> BTreeMap<Names, Module> {
    let (mut all, mut tests, mut folders) = (BTreeMap::new(), BTreeSet::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(src.join(&folder)).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.push(format!("{folder}{name}/"));
            } else if let Some(stem) = name.strip_suffix(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                let is_own = !matches!(stem, "mod" | "lib" | "main");
                let names = folder.split('/').filter(|n| !n.is_empty()).chain(is_own.then_some(stem));
                let here: Names = names.map(str::to_string).collect();
                read(&tokens(&text), 0, &format!("{folder}{name}"), &here, &mut all, &mut tests);
            }
        }
    }
    all.retain(|names, _| !(1..=names.len()).any(|n| tests.contains(&names[..n])));
    all
}

/// The module and the name in it that a path leads to; no name where it is a module itself.
fn followed(modules: &BTreeMap<Names, Module>, path: &[String], deep: usize) -> Option<(Names, Option<String>)> {
    let mut here = vec![];
    for (i, name) in path.iter().enumerate() {
        let module = &modules[&here];
        let child: Names = here.iter().cloned().chain([name.clone()]).collect();
        // A module may have the name of what it exports: at the end of a path that is meant.
        let is_exported = i + 1 == path.len() && module.names.contains_key(name);
        if modules.contains_key(&child) && !is_exported {
            here = child;
            continue;
        }
        let rest = &path[i + 1..];
        let handed_on = module.names.get(name).cloned().into_iter();
        let handed_on = handed_on.chain(module.globs.iter().map(|g| g.iter().cloned().chain([name.clone()]).collect()));
        for target in handed_on {
            let target: Names = target.iter().chain(rest).cloned().collect();
            if deep == 0 || target == path {
                continue;
            }
            match followed(modules, &target, deep - 1) {
                // A glob may not have the name at all: only what is defined there by this name is known to be meant.
                Some(found) if module.names.contains_key(name) || has(modules, &found) => return Some(found),
                _ => {}
            }
        }
        return Some((here, Some(name.clone())));
    }
    Some((here, None))
}

/// Whether a module's own code has the name that was found in it.
fn has(modules: &BTreeMap<Names, Module>, (module, name): &(Names, Option<String>)) -> bool {
    name.as_ref().is_none_or(|name| modules[module].words.contains(name))
}

/// Which files a file imports, each with one of the names that it takes from there.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

fn imports(src: &Path) -> Imports {
    let modules = modules(src);
    let mut all = Imports::new();
    for (here, module) in &modules {
        let of_file = all.entry(module.file.clone()).or_default();
        let used = module.exports.iter().filter(|(name, _)| module.words.contains(name)).map(|(_, path)| path);
        for path in module.paths.iter().chain(used) {
            let Some((to, Some(name))) = followed(&modules, path, 8) else { continue };
            // A path whose first name is of another crate, or of this very module, leads back here.
            if to != *here && modules[&to].file != module.file {
                of_file.entry(modules[&to].file.clone()).or_insert(name);
            }
        }
        for glob in &module.globs {
            if let Some((to, None)) = followed(&modules, glob, 8).filter(|(to, _)| modules[to].file != module.file) {
                of_file.entry(modules[&to].file.clone()).or_insert("*".to_string());
            }
        }
    }
    all
}

/// Files from which imports lead back to them, in groups of those that reach each other.
fn circles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let reached = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in imports.get(file).into_iter().flat_map(|to| to.keys()) {
                if seen.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|file| (file.as_str(), reached(file))).collect();
    let mut circles = vec![];
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for (file, to) in &all {
        if to.contains(file) && !done.contains(file) {
            let circle: BTreeSet<&str> = to.iter().filter(|other| all[*other].contains(file)).copied().collect();
            done.extend(&circle);
            circles.push(circle);
        }
    }
    circles
}

/// Whether a list of files and folders has a file.
fn lists(listed: &[&str], file: &str) -> bool {
    listed.iter().any(|l| *l == file || (l.ends_with('/') && file.starts_with(l)))
}

/// The imports of this crate, read once for all tests.
fn of_this_crate() -> &'static Imports {
    static IMPORTS: OnceLock<Imports> = OnceLock::new();
    IMPORTS.get_or_init(|| imports(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))))
}

#[test]
fn files_import_each_other_in_no_circle_but_those_that_are_named() {
    let imports = of_this_crate();
    let circles = circles(imports);
    let mut wrong = String::new();
    for circle in &circles {
        if CIRCLES.iter().any(|(listed, _)| circle.iter().all(|file| lists(listed, file))) {
            continue;
        }
        let _ = writeln!(wrong, "these files import each other in a circle:");
        for file in circle {
            for (to, name) in imports[*file].iter().filter(|(to, _)| circle.contains(to.as_str())) {
                let _ = writeln!(wrong, "  {file} imports `{name}` of {to}");
            }
        }
    }
    for (listed, _) in CIRCLES.iter().filter(|(listed, _)| !circles.iter().flatten().any(|file| lists(listed, file))) {
        let _ = writeln!(wrong, "no circle is left of {}: take its line out of CIRCLES", listed.join(", "));
    }
    let help = "move what is shared to a file that both import; a circle that is natural gets a line in CIRCLES, with its reason";
    assert!(wrong.is_empty(), "\n{wrong}{help}");
}

#[test]
fn no_file_imports_what_a_mod_rs_above_it_defines() {
    let (mut wrong, mut met) = (String::new(), BTreeSet::new());
    for (file, to) in of_this_crate() {
        for (above, name) in to {
            let folder = above.strip_suffix("mod.rs").filter(|folder| file.starts_with(folder));
            if folder.is_none() {
                continue;
            }
            match CLIMBING.iter().find(|(listed, _)| lists(&[*listed], above)) {
                Some((listed, _)) => drop(met.insert(*listed)),
                None => drop(writeln!(wrong, "  {file} imports `{name}` of {above}")),
            }
        }
    }
    for (listed, _) in CLIMBING.iter().filter(|(listed, _)| !met.contains(listed)) {
        let _ = writeln!(wrong, "  nothing climbs to {listed}: take its line out of CLIMBING");
    }
    assert!(wrong.is_empty(), "\n{wrong}move it to a file of its own, which mod.rs may export");
}

#[test]
fn modules_import_only_what_stands_above_them_in_the_architecture() {
    let text = include_str!("../../ARCHITECTURE.md");
    // Each is a line such as "- **`interp` (feature)**: What does a kernel compute?"
    let named = text.lines().filter_map(|line| Some(line.strip_prefix("- **`")?.split_once('`')?.0));
    let order: Vec<&str> = named.take_while(|name| *name != "cli").chain(["cli"]).collect();
    let place = |file: &str| {
        let module = file.split('/').next().unwrap_or(file);
        order.iter().position(|name| *name == module.trim_end_matches(".rs"))
    };
    assert_eq!(order.first(), Some(&"ir"), "the list of modules is the first one of ARCHITECTURE.md");
    let mut wrong = String::new();
    for (file, to) in of_this_crate() {
        for (other, name) in to {
            let down = match (place(file), place(other)) {
                (Some(from), Some(to)) => from < to,
                // The few files beside the modules know none of them.
                (None, to) => to.is_some() && file != "lib.rs" && file != "main.rs",
                _ => false,
            };
            if down {
                let _ = writeln!(wrong, "  {file} imports `{name}` of {other}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}these imports lead down the list of ARCHITECTURE.md; data flows one way");
}

/// All Rust files of this repository but what is built.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if entry.is_dir() && !name.starts_with("target") && !name.starts_with('.') {
            rust_files(&entry, found);
        } else if name.ends_with(".rs") {
            found.push(entry);
        }
    }
}

#[test]
fn each_invariant_of_the_architecture_names_what_keeps_it() {
    let (root, text) = (Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), include_str!("../../ARCHITECTURE.md"));
    let mut files = vec![];
    rust_files(root, &mut files);
    let defined: BTreeSet<String> = files
        .iter()
        .flat_map(|file| {
            let source = fs::read_to_string(file).unwrap();
            let after = |word: &'static str| {
                let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                source.split(word).skip(1).map(name).collect::<Vec<String>>()
            };
            [after("fn "), after("mod ")].concat()
        })
        .collect();
    let exists = |name: &str| match name {
        // What the compiler keeps, crates, and programs of the GPU suite.
        "#![forbid(unsafe_code)]" | "gpu-suite families" => true,
        _ if name.contains(['/', '.']) => root.join(name).exists() || files.iter().any(|file| file.ends_with(name)),
        _ => {
            name.split("::").all(|part| defined.contains(part))
                || root.join(name).exists()
                || root.join("tests").join(name).exists()
        }
    };
    let invariants = text.split("\n## ").find_map(|section| section.strip_prefix("Invariants\n")).unwrap();
    let (mut wrong, mut count) = (String::new(), 0);
    for invariant in invariants.split("\n- **").skip(1) {
        count += 1;
        let Some((_, kept)) = invariant.split_once("*(") else {
            let _ = writeln!(wrong, "  nothing keeps: {invariant}");
            continue;
        };
        for name in kept.split('`').skip(1).step_by(2).filter(|name| !exists(&name.replace("\n  ", ""))) {
            let _ = writeln!(wrong, "  there is no `{name}`, which keeps: {invariant}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(count > 10 && text.lines().all(|line| line.chars().count() <= 120), "{count} invariants; long lines");
}

/// The imports of a crate of three files.
fn example(name: &str, files: [&str; 3]) -> Imports {
    let folder = std::env::temp_dir().join(format!("kernel-gen-imports-{name}-{}", std::process::id()));
    fs::create_dir_all(folder.join("a")).unwrap();
    for (file, text) in ["lib.rs", "a/mod.rs", "a/b.rs"].iter().zip(files) {
        fs::write(folder.join(file), text).unwrap();
    }
    let imports = imports(&folder);
    fs::remove_dir_all(folder).unwrap();
    imports
}

#[test]
fn imports_are_found_wherever_they_stand_and_lead_to_what_defines_a_name() {
    let b = "use super::Owned;\nfn f() { /* \" */ let _ = ('\"', '\\'', r#\"use super::No;\"#); crate::root() }\n";
    let a = "mod b;\npub use b::f;\nuse crate::a::b::g as h;\npub struct Owned;\nfn own() { h() }\n";
    let found = example("found", ["mod a;\nfn root() { a::f() }\n", a, b]);
    let names = |file: &str| found[file].iter().map(|(to, name)| format!("{to}:{name}")).collect::<Vec<_>>().join(" ");
    assert_eq!(names("lib.rs"), "a/b.rs:f");
    assert_eq!(names("a/mod.rs"), "a/b.rs:g");
    assert_eq!(names("a/b.rs"), "a/mod.rs:Owned lib.rs:root");
    assert_eq!(circles(&found), [BTreeSet::from(["a/b.rs", "a/mod.rs", "lib.rs"])]);
}

#[test]
fn what_tests_import_and_what_is_only_exported_makes_no_circle() {
    let b = "use super::c::T;\n#[cfg(all(test, unix))]\nmod tests {\n    use super::super::Owned;\n}\n";
    let a = "mod b;\nmod c { pub struct T; use super::*; }\npub(in crate::a) use b::f;\npub struct Owned;\n";
    let found = example("none", ["mod a;\n#[cfg(test)]\nuse crate::a::b::f;\n", a, b]);
    assert_eq!(found["a/b.rs"].keys().collect::<Vec<_>>(), ["a/mod.rs"]);
    assert!(found["a/mod.rs"].is_empty() && found["lib.rs"].is_empty(), "{found:?}");
    assert!(circles(&found).is_empty());
}
