//! Generates the kernels of the lists whose features are on, each from its spec as a user's build would, and a table of
//! their layers for `src/layers.rs`.

use kernel_gen_build::kernel_gen::spec::Spec;
use kernel_gen_build::kernel_gen::workload::{Epilogue, Op, Workload};
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Features, each with its spec.
const LISTS: [(&str, &str); 7] = [
    ("resnet18", "../../specs/resnet18.toml"),
    ("resnet50", "../../specs/resnet50.toml"),
    ("vgg16", "../../specs/vgg16.toml"),
    ("inception_v3", "../../specs/inception_v3.toml"),
    ("mobilenet_v1", "../../specs/mobilenet_v1.toml"),
    ("matmul", "specs/matmul.toml"),
    ("skinny", "specs/skinny.toml"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    println!("cargo::rerun-if-env-changed=PEERS_THREADS");
    let threads = env::var("PEERS_THREADS").map_or(Ok(1), |text| text.parse::<u32>())?;
    let (mut modules, mut tables) = (String::new(), String::new());
    for (list, spec) in LISTS {
        if env::var_os(format!("CARGO_FEATURE_{}", list.to_uppercase())).is_none() {
            continue;
        }
        let mut classes = vec![(list.to_string(), PathBuf::from(spec), "fp32")];
        if env::var_os("CARGO_FEATURE_STRICT").is_some() {
            classes.push(strict_copy(list, Path::new(spec), &out)?);
        }
        for (module, spec, class) in classes {
            kernel_gen_build::configure()
                .spec(&spec)
                .tuned("../../specs/tuned")
                .module(&module)
                .threads(threads)
                .cuda(false)
                .quiet(true)
                .generate_or_exit();
            writeln!(modules, "kernel_gen_runtime::include_kernels!({module});")?;
            writeln!(tables, "(\"{list}\", \"{class}\", &self::{module}::report, vec![")?;
            let spec = Spec::load(&spec).map_err(|faults| format!("{faults:?}"))?;
            for (_, declared) in spec.workloads() {
                let name = declared.name.as_deref().ok_or("every layer of these specs has a name")?;
                if let Some(layer) = layer(&module, name, declared.count, &declared.workload) {
                    writeln!(tables, "    {layer},")?;
                }
            }
            writeln!(tables, "]),")?;
        }
    }
    fs::write(out.join("lists.rs"), format!("{modules}\nfn lists() -> Vec<List> {{ vec![{tables}] }}\n"))?;
    Ok(())
}

/// The same spec in the class `strict`, in a module of its own.
fn strict_copy(list: &str, spec: &Path, out: &Path) -> Result<(String, PathBuf, &'static str), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", spec.display());
    let text = fs::read_to_string(spec)?.replace("[[kernel]]\n", "[[kernel]]\nmath = \"strict\"\n");
    let copy = out.join(format!("{list}_strict.toml"));
    if fs::read_to_string(&copy).ok().as_deref() != Some(&text) {
        fs::write(&copy, text)?;
    }
    Ok((format!("{list}_strict"), copy, "strict"))
}

/// A call of the macro `layer!`; none for what no peer has as one operator.
fn layer(module: &str, name: &str, count: u32, workload: &Workload) -> Option<String> {
    let pair = |p: [i64; 2]| format!("[{}, {}]", p[0], p[1]);
    let ([x, w, y], op) = match &workload.op {
        Op::Conv2d(c) => (
            ["X", "W", "Y"],
            format!(
                "Op::Conv(Conv {{ n: {}, ci: {}, h: {}, w: {}, co: {}, kh: {}, kw: {}, stride: {}, padding: {:?}, \
                 dilation: {}, groups: {} }})",
                c.n,
                c.ci,
                c.h,
                c.w,
                c.co,
                c.kh,
                c.kw,
                pair(c.stride),
                c.padding,
                pair(c.dilation),
                c.groups
            ),
        ),
        Op::Matmul(m) => (
            ["A", "B", "C"],
            format!(
                "Op::Product(Product {{ batch: {}, m: {}, n: {}, k: {}, trans_a: {}, trans_b: {} }})",
                m.batch, m.m, m.n, m.k, m.trans_a, m.trans_b
            ),
        ),
        _ => return None,
    };
    let (mut operands, mut activation) = (vec![], "None");
    for step in &workload.epilogue {
        match step {
            Epilogue::Bias => operands.push("bias Bias"),
            Epilogue::ResidualAdd => operands.push("residual Residual"),
            Epilogue::Relu => activation = "Relu",
            Epilogue::Relu6 => activation = "Relu6",
            Epilogue::Gelu => activation = "Gelu",
            other => panic!("{name}: no peer has `{other}` in its epilogue"),
        }
    }
    let operands = operands.join(", ");
    Some(format!("layer!({module} {name} {count} [{x} {w} {y}] [{operands}] {op}, Activation::{activation})"))
}
