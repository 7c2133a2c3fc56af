//! What is public in each crate that others depend on, and in a module that is generated, against a text that is checked in: a change of it
//! is seen in a review.
//! `KERNEL_GEN_BLESS=1` writes the texts.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates, with the features that are on. The generator's are those that a build script has.
const CRATES: &[(&str, &[&str])] = &[
    ("kernel-gen-runtime", &["--all-features"]),
    ("kernel-gen-build", &["--all-features"]),
    ("kernel-gen-records", &[]),
    ("kernel-gen", &["--no-default-features", "--features", "networks"]),
    (WRAPPERS, &[]),
];

/// The crate whose module is generated, with its wrappers alone: their form does not depend on their code.
const WRAPPERS: &str = "wrappers";

/// Whether a line is about the library's own templates: names for the registry, of which users write none.
fn is_of_template(line: &str) -> bool {
    ["cpu", "cuda", "sketch"].iter().any(|of| line.contains(&format!("kernel_gen::templates::{of}::")))
}

/// The file of rustdoc's JSON of a crate.
fn json(root: &Path, name: &str, features: &[&str]) -> PathBuf {
    let target = root.join("target/api");
    let folder = if name == WRAPPERS { root.join("tests/api").join(WRAPPERS) } else { root.to_path_buf() };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.env("KERNEL_GEN_NO_CC", "1").env("KERNEL_GEN_CUDA", "embed");
    command.current_dir(folder).args(["rustdoc", "--quiet", "--lib", "--package", name, "--target-dir"]).arg(&target);
    command.args(features).args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    // The format is unstable, and a stable compiler writes it if it is told so. What is compiled stays apart from other builds.
    let status = command.env("RUSTC_BOOTSTRAP", "1").status().expect("cargo runs");
    assert!(status.success(), "rustdoc of {name} fails");
    target.join("doc").join(format!("{}.json", name.replace('-', "_")))
}

#[test]
fn what_is_public_is_what_the_texts_say() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..").canonicalize().unwrap();
    let mut changed = vec![];
    for (name, features) in CRATES {
        let api = public_api::Builder::from_rustdoc_json(json(&root, name, features))
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build();
        let api: String = match api {
            Ok(api) => {
                api.to_string().lines().filter(|line| !is_of_template(line)).map(|line| format!("{line}\n")).collect()
            }
            Err(error) => {
                println!("[SKIP] {name}: this compiler's JSON is not what public-api reads: {error}");
                continue;
            }
        };
        let file = here.join(format!("{name}.txt"));
        if std::env::var_os("KERNEL_GEN_BLESS").is_some() {
            std::fs::write(&file, &api).unwrap();
        }
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        let (before, after): (Vec<&str>, Vec<&str>) = (known.lines().collect(), api.lines().collect());
        changed.extend(before.iter().filter(|line| !after.contains(line)).map(|line| format!("{name}: - {line}")));
        changed.extend(after.iter().filter(|line| !before.contains(line)).map(|line| format!("{name}: + {line}")));
    }
    assert!(
        changed.is_empty(),
        "what is public changed; say so in CHANGELOG.md, and write the texts with KERNEL_GEN_BLESS=1:\n{}",
        changed.join("\n")
    );
}
