//! The C prototypes in the emitted header against the `extern` declarations in the emitted Rust: a linker compares
//! names only, so a difference in a parameter would be found by a crash.

use kernel_gen::generate::{CodePolicy, Generated, Options, generate};
use kernel_gen::model;
use kernel_gen::records::BestRecords;
use kernel_gen::spec::Spec;
use kernel_gen::templates::Registry;
use std::collections::BTreeMap;

/// One kernel of each operator, type and epilogue, so that every kind of parameter occurs.
const SPEC: &str = r#"
schema = 1
[[kernel]]
name = "conv"
op = "conv2d"
epilogue = ["scale", "residual_add", "relu"]
[[kernel.workload]]
input = [1, 16, 10, 10]
weight = [32, 16, 3, 3]
padding = [1, 1]
[[kernel]]
name = "half"
op = "matmul"
dtype = "f16"
out_dtype = "f32"
epilogue = ["bias", "gelu"]
[[kernel.workload]]
a = [24, 40]
b = [40, 48]
[[kernel]]
name = "depth"
op = "depthwise_conv2d"
dtype = "bf16"
[[kernel.workload]]
input = [1, 16, 9, 9]
weight = [16, 1, 3, 3]
"#;

fn generated() -> Generated {
    let options = Options {
        arch: "x86_64".into(),
        prefix: "kg_header".into(),
        choose: model::Options::default(),
        code: CodePolicy::Compile,
        cuda: false,
        images: String::new(),
        jobs: 2,
        memo: None,
    };
    let spec = Spec::parse(SPEC, "kernels.toml").unwrap();
    generate(&spec, &BestRecords::new(), &Registry::builtin(), &options).unwrap_or_else(|e| panic!("{}", e[0]))
}

/// The types of a function's parameters by its name.
type Signatures = BTreeMap<String, Vec<String>>;

/// The declarations of the generated Rust: `fn name(x: *const f32, ...);`.
fn externs(rust: &str) -> Signatures {
    let declarations = rust.lines().map(str::trim).filter(|l| l.starts_with("fn ") && l.ends_with(");"));
    let read = |line: &str| {
        let (name, params) = line["fn ".len()..].trim_end_matches(");").split_once('(')?;
        let types = params.split(", ").map(|p| p.split_once(": ").map(|(_, ty)| ty.to_string()));
        Some((name.to_string(), types.collect::<Option<Vec<_>>>()?))
    };
    declarations.map(|l| read(l).unwrap_or_else(|| panic!("an unusual declaration: {l}"))).collect()
}

/// The prototypes of the header, their types in Rust's words: `void name(const float *restrict x, ...);`.
fn prototypes(header: &str) -> Signatures {
    let rust_type = |param: &str| {
        let words: Vec<&str> = param.split_whitespace().collect();
        let constant = words[0] == "const";
        let element = match words[usize::from(constant)..] {
            ["float", ..] => "f32",
            ["double", ..] => "f64",
            ["uint16_t", ..] => "u16",
            ["int64_t", ..] => "i64",
            ["int32_t", ..] => "i32",
            ["unsigned", "char", ..] => "u8",
            _ => panic!("an unusual parameter: {param}"),
        };
        match (param.contains('*'), constant) {
            (false, _) => element.to_string(),
            (true, true) => format!("*const {element}"),
            (true, false) => format!("*mut {element}"),
        }
    };
    let read = |line: &str| {
        let (name, params) = line["void ".len()..].trim_end_matches(");").split_once('(').unwrap();
        (name.to_string(), params.split(", ").map(rust_type).collect())
    };
    header.lines().filter(|l| l.starts_with("void ")).map(read).collect()
}

#[test]
fn the_header_and_the_externs_declare_the_same_functions() {
    let made = generated();
    let (externs, prototypes) = (externs(&made.rust), prototypes(&made.header));
    assert!(externs.len() >= 9, "three workloads, three levels: {externs:?}");
    assert_eq!(externs, prototypes);
    assert!(externs.values().flatten().any(|ty| ty == "*const u16"), "16-bit floats occur");
    // Every function is defined, under the very prototype that the header has.
    for line in made.header.lines().filter(|l| l.starts_with("void ")) {
        let definition = format!("{} {{", line.trim_end_matches(';'));
        assert!(made.sources.iter().any(|s| s.text.contains(&definition)), "{definition}");
    }
}

/// The same through a real C parser: what bindgen makes of the header.
#[cfg(feature = "bindgen")]
#[test]
fn bindgen_reads_the_externs_out_of_the_header() {
    if let Err(reason) = clang_sys::load() {
        eprintln!("[SKIP] needs libclang: {reason}");
        return;
    }
    let made = generated();
    let bindings = bindgen::builder()
        .header_contents("kernels.h", &made.header.replace("#include <stdint.h>", STDINT))
        .allowlist_function("kg_.*")
        .layout_tests(false)
        .formatter(bindgen::Formatter::None)
        .generate()
        .unwrap()
        .to_string();
    // One declaration a line, and no spaces but those between the words of a type.
    let text =
        bindings.replace(" ;", ";").replace("pub fn ", "\nfn ").replace("* const", "*const").replace("* mut", "*mut");
    let text = text.replace(" (", "(").replace(" ,", ",").replace(" : ", ": ").replace(";", ";\n");
    let text = text.replace(":: std:: os:: raw:: c_uchar", "u8").replace(":: std :: os :: raw :: c_uchar", "u8");
    assert_eq!(externs(&text), externs(&made.rust));
}

/// libclang may come without a compiler's headers; these are the types that kernels use.
#[cfg(feature = "bindgen")]
const STDINT: &str = "typedef unsigned short uint16_t;\ntypedef int int32_t;\ntypedef long long int64_t;";
