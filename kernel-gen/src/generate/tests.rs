//! The pipeline over a small template: what comes out, that it is the same everywhere, and what errors say.

use super::*;
use crate::cache::Cache;
use crate::generate::made::Made;
use crate::stable::fnv1a;
use crate::stored::Stored;
use crate::templates::testing::Rows;
use crate::toolchain::cuda::{Environment, SupplyOptions};
use crate::toolchain::{Compiler, Temporary};
use std::path::Path;

const SPEC: &str = r#"
schema = 1
[targets]
cpu = ["x86-64-v3"]
[[kernel]]
name = "product"
op = "matmul"
epilogue = ["bias"]
[[kernel.workload]]
a = [6, 5]
b = [5, 7]
[[kernel.workload]]
name = "large"
a = [16, 16]
b = [16, 16]
"#;

fn registry() -> Registry {
    Registry::empty().with(Rows { name: "rows", version: 2, cost: 3.5 })
}

fn options(jobs: usize) -> Options {
    Options {
        arch: "x86_64".into(),
        prefix: "kg_test".into(),
        choose: model::Options::default(),
        code: CodePolicy::Compile,
        cuda: true,
        images: "images".into(),
        jobs,
        memo: None,
    }
}

fn run(file: &str, options: &Options) -> Result<Generated, Vec<GenerateError>> {
    generate(&Spec::parse(SPEC, file).unwrap(), &BestRecords::new(), &registry(), options)
}

#[test]
fn every_workload_and_level_has_a_source_and_a_row() {
    let made = run("kernels.toml", &options(1)).unwrap();
    let names: Vec<&str> = made.sources.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "product_m6n7k5_nn_bias.x86-64-v3.c",
            "product_m6n7k5_nn_bias.x86-64.c",
            "large.x86-64-v3.c",
            "large.x86-64.c"
        ]
    );
    assert!(made.sources[0].flags.iter().any(|f| f == "-march=x86-64-v3"));
    assert!(made.sources[0].text.contains("// workload: matmul-f32-m6n7k5-nn-bias\n// template: rows v2"));
    assert_eq!(made.report.summary(), "2 workloads for x86-64-v3, x86-64: 4 analytic");
    assert!(made.rust.contains("pub fn product<Dev, A, B, Bias, C>("));
    assert!(made.rust.contains("pub mod large {"));
    let row = &made.report.rows[2];
    assert_eq!((row.name.as_str(), row.target.as_str(), row.time_us), ("large", "x86-64-v3", 3.5));
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_on_the_folder_of_the_spec() {
    let (one, many) = (run("/home/a/kernels.toml", &options(1)).unwrap(), run("b/kernels.toml", &options(7)).unwrap());
    assert_eq!((one.sources, one.header, one.rust), (many.sources, many.header, many.rust));
}

#[test]
fn how_often_a_network_runs_a_workload_changes_no_byte() {
    let counted = SPEC.replace("name = \"large\"", "name = \"large\"\ncount = 9");
    let spec = Spec::parse(&counted, "kernels.toml").unwrap();
    assert_eq!(spec.kernels[0].workloads[1].count, 9);
    let counted = generate(&spec, &BestRecords::new(), &registry(), &options(1)).unwrap();
    let plain = run("kernels.toml", &options(1)).unwrap();
    assert_eq!((counted.sources, counted.header, counted.rust), (plain.sources, plain.header, plain.rust));
}

#[test]
fn wrappers_without_code_need_no_template() {
    for code in [CodePolicy::Absent("no tools here".into()), CodePolicy::Unresolved("missing_symbol".into())] {
        let options = Options { code, ..options(1) };
        let spec = Spec::parse(SPEC, "kernels.toml").unwrap();
        let made = generate(&spec, &BestRecords::new(), &Registry::empty(), &options).unwrap();
        assert!(made.sources.is_empty() && made.rust.contains("pub fn product_dyn<'a, Dev"));
    }
    let foreign = Options { arch: "riscv64".into(), ..options(1) };
    let made = run("kernels.toml", &foreign).unwrap();
    assert!(made.rust.contains("kernels are not emitted for the architecture riscv64"));
}

#[test]
fn a_workload_that_nothing_runs_is_named_with_its_line() {
    let spec = "schema = 1\n[[kernel]]\nname = \"c\"\nop = \"conv2d\"\n[[kernel.workload]]\ninput = [1, 4, 8, 8]\nweight = [4, 4, 3, 3]\n";
    let spec = Spec::parse(spec, "kernels.toml").unwrap();
    let errors = generate(&spec, &BestRecords::new(), &registry(), &options(2)).unwrap_err();
    assert_eq!(errors.len(), 3, "one a level");
    let text = errors[0].to_string();
    assert!(text.starts_with("kernels.toml:5: no template can run conv2d-nchw-f32-n1c4h8w8"), "{text}");
}

#[test]
fn a_build_compiles_once_and_removes_what_is_no_longer_made() {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        eprintln!("[SKIP] compiles for x86-64 Linux");
        return;
    }
    let folder = std::env::temp_dir().join(format!("kernel-gen-build-{}", std::process::id()));
    let triple = "x86_64-unknown-linux-gnu";
    let compiler = Compiler::find(triple, triple).unwrap();
    let made = run("kernels.toml", &options(2)).unwrap();
    let (nowhere, supply_options) = (Environment::new([], &folder), SupplyOptions::default());
    let cuda = CudaSupply { packaged: None, environment: &nowhere, options: &supply_options };
    let built = build(&made, Some(&compiler), cuda, &folder, "kg_test", 2, None).unwrap();
    let library = built.library.unwrap();
    assert!(library.ends_with("libkg_test.a") && library.exists());
    let ends_in = |end: &str| {
        let files = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path());
        files.filter(|f| f.to_string_lossy().ends_with(end)).collect::<Vec<_>>()
    };
    let stamps = || ends_in(".o").iter().map(|f| std::fs::metadata(f).unwrap().modified().unwrap()).collect::<Vec<_>>();
    // Small sources of one level are compiled together.
    let (objects, first) = (ends_in(".o"), stamps());
    let joint = ends_in(".c").into_iter().filter(|f| f.file_name().unwrap().to_string_lossy().starts_with("joint."));
    let held: usize = joint.map(|f| std::fs::read_to_string(f).unwrap().matches("// workload: ").count()).sum();
    assert!(objects.len() < made.sources.len() && held > 1, "{objects:?}, {held} kernels are in joint files");
    build(&made, Some(&compiler), cuda, &folder, "kg_test", 2, None).unwrap();
    assert_eq!(stamps(), first, "nothing is compiled again");
    let mut fewer = made.clone();
    fewer.sources.retain(|s| s.name.starts_with("large"));
    build(&fewer, Some(&compiler), cuda, &folder, "kg_test", 2, None).unwrap();
    assert!(!folder.join("product_m6n7k5_nn_bias.x86-64.c").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn programs_may_hold_two_crates_with_a_kernel_in_common() {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("[SKIP] not an x86-64 machine: the kernels are for x86-64");
        return;
    }
    let folder = Temporary::new().unwrap();
    let triple = "x86_64-unknown-linux-gnu";
    let compiler = Compiler::find(triple, triple).unwrap();
    let third = format!("{SPEC}[[kernel.workload]]\nname = \"third\"\na = [8, 8]\nb = [8, 8]\n");
    let spec = Spec::parse(&third, "kernels.toml").unwrap();
    let made = generate(&spec, &BestRecords::new(), &registry(), &options(2)).unwrap();
    assert!(made.sources.len() > 2, "one is in both");
    let (nowhere, supply_options) = (Environment::new([], folder.path()), SupplyOptions::default());
    let cuda = CudaSupply { packaged: None, environment: &nowhere, options: &supply_options };
    // Each has a kernel that the other has not, and they share the rest.
    let (mut libraries, mut calls) = (vec![], String::new());
    for (name, left_out) in [("first", 0), ("second", made.sources.len() - 1)] {
        let mut part = made.clone();
        part.sources.remove(left_out);
        let built = build(&part, Some(&compiler), cuda, &folder.path().join(name), name, 2, None).unwrap();
        libraries.push(built.library.unwrap());
        let own = if left_out == 0 { made.sources.last() } else { made.sources.first() };
        let symbol = own.unwrap().prototypes.split_once("void ").unwrap().1.split('(').next().unwrap().to_string();
        calls += &format!("void {symbol}(void);\nvoid (*use_{name})(void) = {symbol};\n");
    }
    let program = folder.path().join("main.c");
    std::fs::write(&program, format!("{calls}int main(void) {{ return 0; }}\n")).unwrap();
    let files: Vec<&Path> = std::iter::once(&program).chain(&libraries).map(|f| f.as_path()).collect();
    compiler.executable(&files, &[], &folder.path().join("main")).unwrap();
}

#[test]
fn a_kernel_may_see_a_dense_tensor_under_another_shape() {
    // The pointwise template lays all rows of an image into one.
    let spec = "schema = 1\n[targets]\ncpu = [\"x86-64-v3\"]\n[[kernel]]\nname = \"c\"\nop = \"conv2d\"\n\
                [[kernel.workload]]\ninput = [1, 16, 6, 6]\nweight = [16, 16, 1, 1]\n";
    let spec = Spec::parse(spec, "kernels.toml").unwrap();
    let made = generate(&spec, &BestRecords::new(), &Registry::builtin(), &options(1)).unwrap();
    assert!(made.sources.iter().any(|s| s.text.contains("// template: conv2d_pointwise")));
}

/// The small spec for GPUs as well.
fn gpu_spec(archs: &str) -> Spec {
    let text = SPEC.replace("[targets]", &format!("[targets]\ncuda = [{archs}]"));
    Spec::parse(&text, "kernels.toml").unwrap()
}

#[test]
fn architectures_get_sources_wrappers_and_rows_the_best_first() {
    let spec = gpu_spec("\"sm_80\", \"sm_90a\"");
    let made = generate(&spec, &BestRecords::new(), &Registry::builtin(), &options(2)).unwrap();
    let large: Vec<_> = made.cuda.iter().filter(|s| s.name.starts_with("large")).collect();
    assert_eq!(large.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["large.sm_90a", "large.sm_80"]);
    let source = large[0];
    assert!(source.text.contains("// workload: matmul-f32-m16n16k16-nn-bias\n") && source.text.contains("__global__"));
    // Packaged code is found by the source: nothing of the crate that asks for it may be in it.
    let other = Options { prefix: "another_crate".into(), images: "elsewhere".into(), ..options(1) };
    let others = generate(&spec, &BestRecords::new(), &Registry::builtin(), &other).unwrap();
    assert_eq!(made.cuda, others.cuda);
    assert!(made.rust.contains("\"/images/large.sm_90a.kgi\""), "{}", made.rust);
    let targets: Vec<&str> = made.report.rows.iter().take(4).map(|r| r.target.as_str()).collect();
    assert_eq!(targets, ["x86-64-v3", "x86-64", "sm_90a", "sm_80"]);
    let none = Options { cuda: false, ..options(1) };
    let none = generate(&spec, &BestRecords::new(), &Registry::builtin(), &none).unwrap();
    assert!(none.cuda.is_empty() && !none.rust.contains("sm_80"));
}

#[test]
fn short_kernels_begin_before_what_is_in_front_of_them_has_ended() {
    let kernel = |name: &str, m: i64, n: i64, dtype: &str| {
        format!(
            "[[kernel]]\nname = \"{name}\"\nop = \"matmul\"\ndtype = \"{dtype}\"\n[[kernel.workload]]\nname = \"{name}_one\"\n\
             a = [{m}, 512]\nb = [512, {n}]\n"
        )
    };
    // A row by a matrix; a product that takes longer than what a launch costs; one of a template that loses by it.
    let text = format!(
        "schema = 1\n[targets]\ncuda = [\"sm_80\", \"sm_90a\"]\n{}{}{}",
        kernel("brief", 1, 1024, "f16"),
        kernel("lengthy", 8192, 4096, "f16"),
        kernel("parts", 512, 512, "f32"),
    );
    let spec = Spec::parse(&text, "kernels.toml").unwrap();
    let made = generate(&spec, &BestRecords::new(), &Registry::builtin(), &options(2)).unwrap();
    let waits = |name: &str| {
        let source = made.cuda.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no {name}"));
        source.text.contains("griddepcontrol.wait")
    };
    let all = ["brief_one.sm_90a", "brief_one.sm_80", "lengthy_one.sm_90a", "parts_one.sm_90a"];
    assert_eq!(all.map(waits), [true, false, false, false]);
    assert_eq!(made.rust.matches("overlap: Some(&[1])").count(), 1, "{}", made.rust);
}

#[test]
fn an_architecture_whose_code_runs_nowhere_else_is_not_enough() {
    let spec = gpu_spec("\"sm_90a\"");
    let errors = generate(&spec, &BestRecords::new(), &Registry::builtin(), &options(1)).unwrap_err();
    assert!(errors[0].to_string().contains("add a portable one"), "{}", errors[0]);
}

#[test]
fn without_a_compiler_the_source_is_in_the_bundle_and_that_is_said() {
    let folder = std::env::temp_dir().join(format!("kernel-gen-build-cuda-{}", std::process::id()));
    let spec = gpu_spec("\"sm_80\"");
    let no_c = Options { code: CodePolicy::Absent("no C here".into()), ..options(1) };
    let made = generate(&spec, &BestRecords::new(), &Registry::builtin(), &no_c).unwrap();
    let (nowhere, supply_options) = (Environment::new([], &folder), SupplyOptions::default());
    let cuda = CudaSupply { packaged: None, environment: &nowhere, options: &supply_options };
    let built = build(&made, None, cuda, &folder, "kg_test", 1, None).unwrap();
    assert!(built.warnings[0].contains("2 kernel source(s) are embedded"), "{:?}", built.warnings);
    assert!(built.cuda.contains("embedded as source"), "{}", built.cuda);
    let bundle = std::fs::read(folder.join("large.sm_80.kgi")).unwrap();
    assert!(bundle.starts_with(b"KGIMAGE1\x01\0\0\0") && bundle.ends_with(made.cuda[1].text.as_bytes()));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The C symbols of the phases that a source defines.
fn symbols(made: &Generated) -> std::collections::BTreeSet<String> {
    let prototypes = made.header.lines().filter(|l| l.starts_with("void "));
    prototypes.filter_map(|l| l["void ".len()..].split_once('(')).map(|(name, _)| name.to_string()).collect()
}

#[test]
fn functions_of_two_revisions_share_a_name_only_if_they_are_the_same() {
    const PACKED: &str = "schema = 1\n[targets]\ncpu = [\"x86-64-v3\"]\n[[kernel]]\nname = \"product\"\nop = \"matmul\"\n\
        epilogue = [\"bias\"]\n[[kernel.workload]]\nname = \"one\"\na = [64, 64]\nb = [64, 64]\n\
        [[kernel.workload]]\nname = \"two\"\na = [64, 64]\nb = [64, 32]\n";
    let made = |text: &str, file: &str| {
        let spec = Spec::parse(text, file).unwrap();
        generate(&spec, &BestRecords::new(), &Registry::builtin(), &options(1)).unwrap()
    };
    let first = made(PACKED, "kernels.toml");
    let names = symbols(&first);
    assert!(names.iter().any(|n| n.contains("_pack_x86_64_v3_")), "a weight is packed: {names:?}");
    // Where the spec lies is nothing that is computed.
    assert_eq!(symbols(&made(PACKED, "elsewhere/other.toml")), names);
    // Each of these is called as before and computes something else.
    for (from, to) in [
        ("[\"bias\"]", "[\"bias\", \"relu\"]"),
        ("a = [64, 64]\nb = [64, 64]", "a = [64, 48]\nb = [48, 64]"),
        ("op = \"matmul\"", "op = \"matmul\"\ntrans_a = true"),
    ] {
        let other = made(&PACKED.replace(from, to), "kernels.toml");
        let both: Vec<&Source> = first.sources.iter().chain(&other.sources).collect();
        for name in names.intersection(&symbols(&other)) {
            let mut texts = both.iter().filter(|s| s.text.contains(&format!("{name}("))).map(|s| code_of(&s.text));
            let one = texts.next().unwrap();
            assert!(texts.all(|t| t == one), "{name} is two functions with {to}");
        }
        let changed = |g: &Generated| symbols(g).into_iter().find(|n| n.contains("_one_x86_64_v3_"));
        assert_ne!(changed(&first), changed(&other), "{to}");
    }
}

#[test]
fn workloads_of_equal_weights_share_what_packs_them() {
    const LAYERS: &str = "schema = 1\n[targets]\ncpu = [\"x86-64\"]\ncuda = [\"sm_80\"]\n\
        [[kernel]]\nname = \"plain\"\nop = \"conv2d\"\n[[kernel.workload]]\nname = \"first\"\ninput = [1, 64, 8, 8]\n\
        weight = [64, 64, 3, 3]\npadding = [1, 1]\n[[kernel]]\nname = \"ends\"\nop = \"conv2d\"\nepilogue = [\"relu\"]\n\
        [[kernel.workload]]\nname = \"second\"\ninput = [1, 64, 8, 8]\nweight = [64, 64, 3, 3]\npadding = [1, 1]\n";
    let spec = Spec::parse(LAYERS, "kernels.toml").unwrap();
    let made =
        generate(&spec, &BestRecords::new(), &Registry::builtin(), &Options { cuda: true, ..options(2) }).unwrap();
    let [packs, mains]: [Vec<&Source>; 2] = [true, false].map(|packs| {
        let sources = made.sources.iter();
        sources.filter(|s| s.text.starts_with("// packs") == packs).collect()
    });
    assert_eq!((packs.len(), mains.len()), (1, 2), "{:?}", made.sources.iter().map(|s| &s.name).collect::<Vec<_>>());
    let symbol = packs[0].name.strip_suffix(".c").unwrap();
    assert_eq!(made.header.matches(symbol).count(), 1, "{}", made.header);
    assert_eq!(made.rust.matches(&format!("fn {symbol}_p0(")).count(), 2, "both wrappers call it");
    let gpu_packs: Vec<_> = made.cuda.iter().filter(|s| s.text.starts_with("// packs")).collect();
    assert_eq!((gpu_packs.len(), made.cuda.len()), (1, 3));
    assert_eq!(made.rust.matches(&gpu_packs[0].image()).count(), 2);
}

/// Everything that could leave a comment or a literal, as a device's name.
fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = (0..0x20u8).chain([0x7f]).map(|c| format!("x{}int evil;", char::from(c))).collect();
    names.extend(["\u{85}", "\u{2028}", "\u{2029}"].map(|c| format!("x{c}int evil;")));
    names.extend(["x\\", "x??/", "*/ int evil; /*", "\"); int evil; (\"", "{}\\u{22}"].map(String::from));
    names
}

/// A source without the comments of its top, for a compiler that ends a line wherever any language does and knows trigraphs
/// and continued lines.
fn code_of(source: &str) -> String {
    let joined = source.replace("??/", "\\").replace("\\\n", "").replace("\\\r", "");
    let lines = joined.split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']);
    lines.filter(|l| !l.starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// A record of a device for a workload by a template's config.
fn record_of(
    template: &dyn crate::templates::Template,
    workload: &Workload,
    target: &Target,
    config: crate::space::Config,
    device: &str,
) -> crate::records::Record {
    crate::records::Record {
        workload: workload.key(),
        target: target.name.clone(),
        device: device.into(),
        threads: 1,
        template: template.name().into(),
        template_version: template.version(),
        space: template.space(workload, target).unwrap().fingerprint(),
        config,
        time_us: 1.0,
        gflops: 1.0,
        core_gflops: None,
        floor_us: None,
        spread: None,
        max_error: 0.0,
        verified: true,
        generator: "0.1.0".into(),
    }
}

#[test]
fn text_of_records_and_paths_is_no_code_in_any_source() {
    const BOTH: &str = "schema = 1\n[targets]\ncpu = []\ncuda = [\"sm_80\"]\n[[kernel]]\nname = \"product\"\nop = \"matmul\"\n\
        [[kernel.workload]]\na = [6, 5]\nb = [5, 7]\n";
    let made = |device: &str, file: &str| {
        let spec = Spec::parse(BOTH, file).unwrap();
        let workload = &spec.kernels[0].workloads[0].workload;
        let mut records = BestRecords::new();
        let registry = Registry::builtin();
        for target in ["x86-64", "sm_80"] {
            let of = Target::find(target).unwrap();
            let options = model::Options::default();
            let choice = model::choose(&registry, workload, of, &BestRecords::new(), &options).unwrap();
            let template = registry.find(&choice.template).unwrap();
            records.insert(crate::records::Record {
                generator: device.into(),
                ..record_of(template, workload, of, choice.config, device)
            });
        }
        let made = generate(&spec, &records, &registry, &options(1)).unwrap();
        assert_eq!(
            made.report.rows.iter().filter(|r| r.origin_detail.contains("record ")).count(),
            2,
            "{:?}",
            made.report.rows
        );
        made
    };
    let usual = made("device", "kernels.toml");
    for name in hostile_names() {
        let forged = made(&name, &name);
        let texts = |g: &Generated| -> Vec<String> {
            let cuda = g.cuda.iter().map(|s| code_of(&s.text));
            let c = g.sources.iter().map(|s| code_of(&s.text));
            c.chain(cuda).chain([code_of(&g.header)]).collect()
        };
        assert_eq!(texts(&forged), texts(&usual), "{name:?}");
        // In Rust the name stands in literals: outside of them nothing changes.
        let rust = |g: &Generated| code_of(&without_literals(&g.rust));
        assert_eq!(rust(&forged), rust(&usual), "{name:?}");
    }
}

/// Rust without what stands between quotation marks.
fn without_literals(text: &str) -> String {
    let (mut out, mut inside, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' if !escaped => inside = !inside,
            c if !inside => out.push(c),
            _ => {}
        }
        escaped = inside && c == '\\' && !escaped;
    }
    out
}

/// A template whose kernels the verifier refuses: their reduction is a parallel loop.
struct Racing;

impl crate::templates::Template for Racing {
    fn name(&self) -> &str {
        "racing"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        rows().applies(w, t)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<crate::space::Space, crate::templates::TemplateError> {
        rows().space(w, t)
    }

    fn default_config(
        &self,
        w: &Workload,
        t: &Target,
    ) -> Result<crate::space::Config, crate::templates::TemplateError> {
        rows().default_config(w, t)
    }

    fn cost(&self, _: &Workload, _: &Target, _: &crate::space::Config) -> f64 {
        0.5
    }

    fn schedule(
        &self,
        w: &Workload,
        t: &Target,
        config: &crate::space::Config,
    ) -> Result<crate::templates::Scheduled, crate::templates::TemplateError> {
        let mut made = rows().schedule(w, t, config)?;
        // All iterations of the reduction add to one element at the same time.
        let kernel = &mut made.schedule.kernel;
        let k = crate::ir::visit::loops(&kernel.body).iter().map(|l| l.var).find(|v| kernel.var(*v).name == "k");
        let k = crate::ir::visit::find_loop_mut(&mut kernel.body, k.expect("a product has this loop"));
        k.expect("it is there").kind = crate::ir::LoopKind::Parallel;
        Ok(made)
    }
}

fn rows() -> Rows {
    Rows { name: "rows", version: 2, cost: 3.5 }
}

#[test]
fn a_choice_that_is_refused_gives_way_to_the_next_with_a_warning_that_names_both() {
    let spec = Spec::parse(SPEC, "kernels.toml").unwrap();
    let both = Registry::empty().with(Racing).with(rows());
    let made = generate(&spec, &BestRecords::new(), &both, &options(1)).unwrap();
    assert!(made.report.rows.iter().all(|r| r.template == "rows v2"), "{:?}", made.report.rows);
    let parts = [
        "racing v1 with rows=[-1,1] cannot be used: the kernel is not valid",
        "rows v2 with rows=[-1,1] takes its place",
    ];
    let names_both = |w: &String| parts.iter().all(|part| w.contains(part));
    assert!(made.report.warnings.iter().any(names_both), "{:?}", made.report.warnings);
    // A build that passes nothing over says nothing, and one with nothing else to choose fails.
    assert!(run("kernels.toml", &options(1)).unwrap().report.warnings.is_empty());
    let errors = generate(&spec, &BestRecords::new(), &Registry::empty().with(Racing), &options(1)).unwrap_err();
    assert!(errors[0].to_string().contains("racing v1 with rows=[-1,1] on"), "{}", errors[0]);
    // What `check` does is the same.
    let targets = [Target::find("x86-64-v3").unwrap()];
    for DryRun { tried, .. } in dry_run(&spec, &targets, &BestRecords::new(), &both, &options(2)) {
        let tried = tried.unwrap();
        assert_eq!(tried.choice.template, "rows");
        assert!(tried.choice.unusable.iter().all(|p| p.choice.starts_with("racing v1")));
        assert!(!tried.warnings.is_empty());
    }
}

#[test]
fn a_record_that_is_refused_warns_and_gives_way_unless_fallback_is_denied() {
    let spec = Spec::parse(SPEC, "kernels.toml").unwrap();
    let target = Target::find("x86-64-v3").unwrap();
    let workload = &spec.kernels[0].workloads[1].workload;
    let space = crate::templates::Template::space(&Racing, workload, target).unwrap();
    let mut records = BestRecords::new();
    records.insert(crate::records::Record {
        workload: workload.key(),
        target: target.name.clone(),
        device: "CPU".into(),
        threads: 1,
        template: "racing".into(),
        template_version: 1,
        space: space.fingerprint(),
        config: space.get(0).unwrap(),
        time_us: 1.5,
        gflops: 43.7,
        core_gflops: None,
        floor_us: None,
        spread: None,
        max_error: 0.0,
        verified: true,
        generator: "0.1.0".into(),
    });
    let both = Registry::empty().with(rows()).with(Racing);
    let tried = try_workload((workload, None), target, &records, &both, &model::Options::default()).unwrap();
    assert_eq!(tried.choice.template, "rows");
    assert!(tried.warnings[0].contains("(record of this target, 1.5 us on CPU"), "{}", tried.warnings[0]);
    let deny = model::Options { deny_fallback: true, ..model::Options::default() };
    let error = try_workload((workload, None), target, &records, &both, &deny).unwrap_err();
    assert!(error.to_string().contains("racing v1"), "{error}");
}

#[test]
fn what_earlier_runs_made_changes_no_byte_and_serves_the_same_generator_only() {
    const BOTH: &str = "schema = 1\n[targets]\ncpu = [\"x86-64-v3\"]\ncuda = [\"sm_90a\", \"sm_80\"]\n[[kernel]]\nname = \"product\"\n\
        op = \"matmul\"\ndtype = \"f16\"\n[[kernel.workload]]\nname = \"small\"\na = [64, 64]\nb = [64, 128]\n\
        [[kernel.workload]]\nname = \"large\"\na = [256, 256]\nb = [256, 256]\n";
    let (spec, registry) = (Spec::parse(BOTH, "kernels.toml").unwrap(), Registry::builtin());
    let folder = Temporary::new().unwrap();
    let with = |memo: Option<Memo>, records: &BestRecords| {
        let options = Options { memo, ..options(2) };
        let made = generate(&spec, records, &registry, &options).unwrap();
        let Generated { sources, cuda, header, rust, report, files } = made;
        // A hash: who reads of a failure does not want all code.
        fnv1a(format!("{sources:?}\n{cuda:?}\n{header}\n{rust}\n{report:?}\n{files:?}").as_bytes())
    };
    let (program, other) = (
        || Some(Memo::open(Cache::at(folder.path().join("memo")), 7)),
        || Some(Memo::open(Cache::at(folder.path().join("memo")), 8)),
    );
    let mut records = BestRecords::new();
    let alone = with(None, &records);
    assert_eq!([with(program(), &records), with(program(), &records)], [alone, alone]);
    // A record changes what is chosen for its workload, and teaches for others of its kind.
    let workload = &spec.find("large").unwrap();
    let target = Target::find("sm_90a").unwrap();
    let template = registry.find("mma_gemm").unwrap();
    records.insert(record_of(template, workload, target, template.default_config(workload, target).unwrap(), "GPU"));
    let recorded = with(None, &records);
    assert_ne!(recorded, alone);
    assert_eq!([with(program(), &records), with(program(), &records)], [recorded, recorded]);
    // Another device's record does not count beside the first by name, until records of another kind make that the main device. A time
    // that changes by less than is printed is in the program all the same.
    let of_first = records.iter().next().unwrap().clone();
    let config = registry.find("mma_gemm").unwrap().space(workload, target).unwrap().get(0).unwrap();
    records.insert(crate::records::Record { device: "Later".into(), config, ..of_first.clone() });
    let both = with(program(), &records);
    assert_eq!(both, with(None, &records));
    for n in [8, 16] {
        let (workload, device) = (format!("matmul-f32-m{n}n8k8-nn"), "Later".to_string());
        records.insert(crate::records::Record { workload, device, ..of_first.clone() });
    }
    let main = with(program(), &records);
    assert_eq!(main, with(None, &records));
    assert_ne!(main, both);
    records.insert(crate::records::Record { time_us: 1.01, device: "Later".into(), ..of_first.clone() });
    let later = with(program(), &records);
    records.insert(crate::records::Record { time_us: 1.012, device: "Later".into(), ..of_first });
    assert_eq!(with(program(), &records), with(None, &records));
    assert_ne!(with(program(), &records), later);
    // Programs of the same sources share results; with templates of a user's each program has its own.
    let all = || std::fs::read_dir(folder.path().join("memo")).unwrap().map(|f| f.unwrap().path());
    let records = BestRecords::new();
    let before = all().count();
    assert_eq!(
        [with(program(), &records), with(other(), &records), all().count() as u64],
        [alone, alone, before as u64]
    );
    let own = Registry::builtin().with(Rows { name: "rows", version: 2, cost: 3.5 });
    for (memo, made) in [(program(), true), (program(), false), (other(), true)] {
        let before = all().count();
        generate(&spec, &records, &own, &Options { memo, ..options(2) }).unwrap();
        assert_eq!(all().count() > before, made);
    }
    // What was made is taken as it is; what is torn is made again.
    let cache = Cache::at(folder.path().join("memo"));
    let keys = all().filter_map(|file| String::get(&mut &std::fs::read(file).unwrap()[..]));
    let mut made: Vec<String> = keys.filter(|key| key.starts_with("made\nsources") && key.contains("sm_90a")).collect();
    made.sort();
    let first: Made = cache.get(&made[0]).unwrap();
    made.iter().for_each(|key| cache.put(key, &first));
    assert_ne!(with(program(), &records), alone);
    for file in all() {
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    }
    assert_eq!(with(program(), &records), alone);
}
