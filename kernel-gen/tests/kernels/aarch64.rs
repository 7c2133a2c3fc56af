//! The C of every CPU template for 64-bit Arm, compiled by a cross compiler and run by an emulator: results stay within
//! the derived bound of the `f64` reference. Nothing is said about speed.
//!
//! The tools are `aarch64-linux-gnu-gcc` and `qemu-aarch64`, or what `KERNEL_GEN_TEST_AARCH64_CC` and
//! `KERNEL_GEN_TEST_AARCH64_RUN` name; `tests/aarch64.sh` fetches them. Where they are missing the test says so.

use kernel_gen::emit::c::{self, COptions, CSource, Isa};
use kernel_gen::ir::{BufferId, DType, Kernel};
use kernel_gen::lower::lower_for;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::toolchain::FLAGS;
use kernel_gen::toolchain::values::{decode, encode};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::special::Reach;
use kernel_gen::workload::{Conv2d, ConvLayout, DepthwisePointwise, Epilogue, Matmul, Workload};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// A tool by its variable or its usual name, if it is there.
fn tool(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var(variable).unwrap_or_else(|_| name.to_string());
    which::which(named).ok()
}

/// Shapes that every template has something to do for: whole vectors and short ones, strides, padding, 16-bit storage.
fn workloads() -> Vec<Workload> {
    let conv = |c: Conv2d| Workload::f32(c).with_epilogue(&[Epilogue::Bias, Epilogue::Relu6]);
    let pair = |c: Conv2d, co| {
        let between = [Epilogue::Bias, Epilogue::Relu6];
        Workload::f32(DepthwisePointwise::new(c, co).with_between(&between)).with_epilogue(&[Epilogue::Bias])
    };
    let dense = Conv2d::nchw(1, 6, 11, 9, 20, 3, 1, 1);
    let thin = Conv2d::nchw(2, 5, 13, 14, 5, 3, 1, 1).depthwise(1);
    vec![
        conv(dense),
        conv(Conv2d { layout: ConvLayout::Nhwc, stride: [2, 2], ..dense }),
        conv(Conv2d { layout: ConvLayout::NchwC(16), ci: 16, co: 32, dilation: [1, 2], ..dense }),
        conv(Conv2d { groups: 2, ..dense }).with_dtype(DType::Bf16),
        conv(Conv2d::nchw(2, 7, 6, 7, 18, 1, 1, 0)),
        conv(thin),
        conv(Conv2d { stride: [2, 2], ..thin }),
        conv(Conv2d { stride: [3, 3], padding: [0, 2, 1, 0], ..thin }),
        conv(Conv2d { layout: ConvLayout::Nhwc, ..thin }).with_dtype(DType::F16),
        pair(thin, 12),
        pair(Conv2d { stride: [2, 2], h: 8, ..thin }, 21),
        pair(Conv2d { n: 1, ..thin }, 9).with_dtype(DType::F16),
        Workload::f32(Matmul::new(13, 35, 17)).with_epilogue(&[Epilogue::Gelu]),
        Workload::f32(Matmul { batch: 2, trans_b: true, ..Matmul::new(1, 20, 31) }),
        Workload::f32(Matmul { trans_a: true, ..Matmul::new(9, 8, 10) }).with_dtype(DType::F16),
        Workload::from_key("matmul_nbits-f16-m3n7k72-w4-z-g32-bias").expect("a key"),
        Workload::from_key("where-f16-c3x37-a3x37-b3x37").expect("a key"),
        Workload::from_key("less-f32-a3x37-b3x37").expect("a key"),
    ]
}

fn bytes(kernel: &Kernel, buffer: BufferId) -> i64 {
    let b = kernel.buffer(buffer);
    b.shape.iter().product::<i64>() * b.dtype.bytes() as i64
}

/// Emits a kernel for the target; gives its source and adds it to the others, whose functions it shares.
fn emit(kernel: &Kernel, symbol: &str, setup: &mut Setup) -> CSource {
    let target = setup.target;
    let lowered = lower_for(kernel.clone(), target).unwrap_or_else(|e| panic!("{symbol}: {e}"));
    let options =
        COptions { isa: Isa::from_name(&target.name).expect("a level"), symbol: symbol.into(), comment: String::new() };
    let source = c::emit(&lowered, &options).unwrap_or_else(|e| panic!("{symbol}: {e}\n{kernel}"));
    // What other kernels bring along must not be what this one lacks.
    let lacks = |word: &str, by: &str| source.source.contains(word) && !source.source.contains(by);
    for (ty, of) in [("f32x4", "float"), ("i32x4", "int32_t"), ("f64x2", "double"), ("i64x2", "int64_t")] {
        assert!(!lacks(ty, &format!("typedef {of} {ty} ")), "{symbol} does not say what {ty} is:\n{}", source.source);
    }
    let of_arm = ["vcvt_", "vdotq_", "vusdotq_", "vld1", "vst1", "vfma"].iter().any(|name| lacks(name, "<arm_neon.h>"));
    assert!(!of_arm, "{symbol} does not include <arm_neon.h>");
    let mut own = source.source.clone();
    for helper in &source.helpers {
        if !setup.helpers.insert(helper.clone()) {
            own = own.replacen(helper.as_str(), "", 1);
        }
    }
    setup.kernels += &own;
    source
}

/// C that runs a kernel on named buffers, parallel phases in two shares.
fn call(source: &CSource, arguments: &[String]) -> String {
    let mut out = format!("    unsigned char *ws = room({});\n", source.workspace_bytes + 2 * source.worker_bytes);
    for phase in &source.phases {
        let half = if phase.parallel { phase.extent / 2 } else { 0 };
        for (worker, from, to) in [(0, 0, half), (1, half, phase.extent)] {
            if from < to {
                let _ = writeln!(out, "    {}({}, ws, {worker}, {from}, {to});", phase.symbol, arguments.join(", "));
            }
        }
    }
    out
}

/// One kernel to run, and what it must give.
struct Case {
    what: String,
    workload: Workload,
    inputs: Vec<Vec<f64>>,
    reach: Reach,
}

/// The body of a case: buffers from the input in order, packed where the kernel wants it, and the output written.
fn body(
    template: &dyn Template,
    case: &Case,
    config: &kernel_gen::space::Config,
    at: usize,
    setup: &mut Setup,
) -> String {
    let scheduled =
        template.schedule(&case.workload, setup.target, config).unwrap_or_else(|e| panic!("{}: {e}", case.what));
    let params = case.workload.params();
    let mut names: Vec<String> = params.iter().map(|p| p.name.to_string()).collect();
    let mut out = String::new();
    for p in &params[..params.len() - 1] {
        let _ = writeln!(out, "  void *{} = take(in, {});", p.name, p.bytes());
    }
    for pack in &scheduled.packs {
        let source = emit(&pack.kernel, &format!("case{at}_pack_{}", pack.param), setup);
        let packed = format!("packed_{}", pack.param);
        let _ = writeln!(out, "  void *{packed} = room({});\n  {{", bytes(&pack.kernel, pack.kernel.params[1]));
        let _ = writeln!(out, "{}  }}", call(&source, &[pack.param.clone(), packed.clone()]));
        names.iter_mut().filter(|n| **n == pack.param).for_each(|n| n.clone_from(&packed));
    }
    let source = emit(&scheduled.schedule.kernel, &format!("case{at}"), setup);
    let y = &params[params.len() - 1];
    let _ = writeln!(out, "  void *{} = room({});\n  {{", y.name, y.bytes());
    let _ = writeln!(out, "{}  }}\n  give(out, {}, {});", call(&source, &names), y.name, y.bytes());
    out
}

struct Setup<'a> {
    target: &'a Target,
    /// The kernels, one behind the other: a compiler reads the intrinsics of Arm as long as it compiles most of them.
    kernels: String,
    /// The functions that they share.
    helpers: BTreeSet<String>,
}

const HELPERS: &str = "#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *room(size_t n) {
  void *p = aligned_alloc(64, (n + 64) / 64 * 64);
  if (!p) abort();
  return memset(p, 0xff, n);
}
static void *take(FILE *f, size_t n) {
  void *p = room(n);
  if (fread(p, 1, n, f) != n) abort();
  return p;
}
static void give(FILE *f, const void *p, size_t n) {
  if (fwrite(p, 1, n, f) != n) abort();
}
";

fn run(mut command: Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn kernels_for_arm_run_in_an_emulator_and_equal_the_reference() {
    let cpu = ["conv2d_direct", "conv2d_pointwise", "matmul_packed", "depthwise_rows", "depthwise_pointwise", "plain"];
    on("aarch64", workloads().into_iter().chain(on_integers()), &cpu.map(|name| (name, true)));
    // These levels have code for integers alone.
    for level in ["aarch64-dotprod", "aarch64-i8mm"] {
        on(level, on_integers().into_iter(), &[("integers_cpu", true), ("winograd_integers", false)]);
    }
}

/// Products and convolutions of each pair of types, with zero points.
fn on_integers() -> Vec<Workload> {
    let keys = [
        "matmul-i8i8.i32-m7n19k24-nt",
        "matmul-u8zi8-m5n16k17-nn-bias.requantize",
        "matmul-i8zu8c.f32-m6n9k20-nn-dequantize",
        "conv2d-nhwc-u8zi8-n1c16h9w7-o20k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.requantize",
        "conv2d-nhwc-i8zi8-n2c8h6w5-o12k1x1-s1x1-p0.0.0.0-d1x1-g1-requantize",
        "conv2d-nchw-u8u8.i32-n1c5h8w9-o6k3x3-s2x2-p1.1.1.1-d1x1-g1",
        "conv2d-nhwc-u8zi8-n1c3h11w12-o8k7x7-s2x2-p3.3.3.3-d1x1-g1-bias.requantize",
    ];
    keys.map(|key| Workload::from_key(key).unwrap_or_else(|e| panic!("{key}: {e}"))).into()
}

/// All templates for a level on workloads; which of them have to be used, and which must not.
fn on(level: &str, workloads: impl Iterator<Item = Workload>, wanted: &[(&str, bool)]) {
    let Some(compiler) = tool("KERNEL_GEN_TEST_AARCH64_CC", "aarch64-linux-gnu-gcc") else {
        println!("[SKIP] no aarch64 compiler");
        return;
    };
    let Some(emulator) = tool("KERNEL_GEN_TEST_AARCH64_RUN", "qemu-aarch64") else {
        println!("[SKIP] no emulator of aarch64");
        return;
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(level);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder of temporary files");
    let target = Target::find(level).expect("a built-in target");
    let registry = Registry::builtin();
    let mut setup = Setup { target, kernels: String::new(), helpers: BTreeSet::new() };

    let (mut cases, mut calls, mut input, mut used) = (vec![], String::new(), vec![], BTreeSet::new());
    for (seed, workload) in workloads.enumerate() {
        workload.validate().unwrap_or_else(|e| panic!("{}: {e}", workload.key()));
        for template in registry.applicable(&workload, target) {
            let default = template.default_config(&workload, target).expect("it applies");
            let space = template.space(&workload, target).expect("it applies");
            // Of every other workload another config, too.
            let random = space.sample(seed as u64).next().filter(|_| seed % 2 == 0).map(|(_, config)| config);
            for config in [Some(default), random].into_iter().flatten() {
                let inputs = sample::uneven_inputs(&workload, &mut Rng::new(seed as u64 + 1));
                let what = format!("{} on {} with {config}", template.name(), workload.key());
                let reach = template.reach(&workload, &config);
                let case = Case { what, workload: workload.clone(), inputs, reach };
                let _ = writeln!(calls, "{{\n{}}}", body(template, &case, &config, cases.len(), &mut setup));
                for (p, values) in workload.params().iter().zip(&case.inputs) {
                    input.extend(encode(p.dtype, values));
                }
                used.insert(template.name().to_string());
                cases.push(case);
            }
        }
    }
    println!("{level}: {} kernels of {used:?}", cases.len());

    let main = format!(
        "{kernels}{HELPERS}int main(int count, char **files) {{\n  if (count != 3) return 2;\n  \
         FILE *in = fopen(files[1], \"rb\"), *out = fopen(files[2], \"wb\");\n  if (!in || !out) return 3;\n{calls}  \
         return fclose(out) == 0 ? 0 : 4;\n}}\n",
        kernels = setup.kernels,
    );
    std::fs::write(folder.join("main.c"), main).expect("the folder can be written to");
    std::fs::write(folder.join("input"), &input).expect("the folder can be written to");

    // Warnings are errors here as everywhere.
    let mut command = Command::new(&compiler);
    command
        .current_dir(&folder)
        .args(FLAGS)
        .args(Isa::from_name(level).expect("a level").flags())
        .args(["-Werror", "-static", "-o", "run"]);
    command.args(["main.c", "-lm"]);
    run(command);
    let mut command = Command::new(&emulator);
    command.current_dir(&folder).args(["./run", "input", "output"]);
    run(command);

    let output = std::fs::read(folder.join("output")).expect("the program wrote it");
    let mut rest = output.as_slice();
    for case in &cases {
        let y = case.workload.params().pop().expect("an output");
        let (mine, others) = rest.split_at(y.bytes() as usize);
        rest = others;
        let views: Vec<&[f64]> = case.inputs.iter().map(Vec::as_slice).collect();
        if let Err(mismatch) = case.reach.reference(&case.workload, &views).check(decode(y.dtype, mine)) {
            panic!("{}: {mismatch}", case.what);
        }
    }
    assert!(rest.is_empty(), "{} bytes too many", rest.len());
    assert!(wanted.iter().all(|(name, is_used)| used.contains(*name) == *is_used), "{used:?}");
    // What remains is looked at when something fails; a run that passed leaves nothing.
    let _ = std::fs::remove_dir_all(&folder);
}
