//! The spec: what a crate wants generated, `kernels.toml`.
//!
//! ```toml
//! schema = 1                        # the version of this format
//! threads = 2                       # optional: threads that CPU kernels run on; picks among records of several numbers,
//!                                   # those of most threads if left out
//! fallback = "allow"                # allow | deny: whether a workload without a tuned record may be built
//!
//! [targets]                         # optional
//! cuda = ["sm_90a", "sm_80"]        # none if left out
//! cpu = ["x86-64-v3", "x86-64-v4"]  # all levels if left out; the portable level is always there
//!
//! [[kernel]]
//! name = "conv2d_nchw"              # the function that is generated
//! op = "conv2d"                     # or another operator of docs/spec.md
//! layout = "NCHW"                   # convolutions: NCHW (default) | NHWC | HWCN | NCHW16c | NHWC16n16c
//! trans_a = false                   # products: whether a matrix is stored transposed
//! trans_b = false
//! dtype = "f32"                     # f32 (default) | f16 | bf16
//! out_dtype = "f32"                 # the inputs' type if left out
//! math = "fp32"                     # strict | fp32 (default) | tf32
//! epilogue = ["bias", "relu"]       # bias, scale, residual_add, multiply and activations; none if left out
//!
//! [[kernel.workload]]               # a convolution; shapes in the order of the layout
//! name = "layer4_conv"              # optional, unless shapes alone do not tell it from another
//! count = 2                         # how often the network runs it (1 if left out): weighs tuning and reports only
//! input = [1, 512, 7, 7]
//! weight = [512, 512, 3, 3]
//! stride = [1, 1]                   # vertical, horizontal; these four may be left out
//! padding = [1, 1]                  # or [top, left, bottom, right]; 0 if left out
//! dilation = [1, 1]
//! groups = 1
//! into = { of = 1024, at = 512 }    # optional: the output is channels 512.. of a tensor of 1024; `from` says it of the input
//!
//! [[kernel.workload]]               # a product; shapes as stored, with the batch first for batch_matmul
//! a = [512, 256]
//! b = [256, 128]
//!
//! [[network]]                       # a model file: its workloads, and the code that runs them in order
//! name = "classifier"               # the module that is generated
//! model = "model.onnx"              # counts from the spec's folder
//! inputs = { image = [1, 3, 224, 224] }  # where the file leaves extents open; ["1..8", 3, 224, 224] for 1 to 8 images, a list of
//!                                        # shapes for a plan each
//!
//! [[extern]]                        # C code of your own, compiled and wrapped along
//! name = "my_kernels"
//! source = "src/mine.c"
//! header = "src/mine.h"
//!
//! [[extern]]                        # CUDA code of your own
//! name = "my_gpu_kernels"
//! source = "src/mine.cu"
//! header = "src/mine_gpu.h"
//!
//! [extern.launch.scale]             # how each kernel of the header is launched
//! grid = [4]                        # blocks along x, y, z
//! block = [256]                     # threads of a block along x, y, z
//! shared = 0                        # bytes of dynamic shared memory of a block; 0 if left out
//! ```
//!
//! A `depthwise_pointwise` is a depthwise convolution and the 1x1 convolution of its result in one kernel, in NCHW. Its
//! workloads are those of a `depthwise_conv2d` with the weight of the second convolution, `pointwise = [co, ci, 1, 1]`; its
//! kernel may say in `depthwise_epilogue` what stands between the two: `bias`, then one of `relu`, `relu6` and `gelu`.
//! `epilogue` comes after the second, as everywhere.
//!
//! ```toml
//! [[kernel]]
//! name = "separable"
//! op = "depthwise_pointwise"
//! depthwise_epilogue = ["bias", "relu6"]
//! epilogue = ["bias", "relu6"]
//!
//! [[kernel.workload]]
//! input = [1, 32, 112, 112]
//! weight = [32, 1, 3, 3]
//! pointwise = [64, 32, 1, 1]
//! padding = [1, 1]
//! ```
//! The call takes `x, dw, dw_bias, w, bias, y`: of the two weights `w`, the pointwise one, is packed.
//!
//! With `layout = "NCHW16c"` images are `[n, c / 16, h, w, 16]` at the call, on both sides, and weights stay `[co, ci, kh, kw]`: a
//! chain of such layers keeps its activations blocked. `block_channels` and `unblock_channels` of the runtime lead in and out.
//!
//! [`Spec::parse`] reads the whole file whatever it finds and reports everything that is wrong, each with its line.
//! What it returns is complete and valid: every workload passed [`Workload::validate`], every name is a Rust
//! identifier that no other name collides with.

mod externs;
mod kernel;
mod launch;
mod names;
mod network;
mod synonyms;

pub use externs::ExternSpec;
pub use kernel::{KernelSpec, WorkloadSpec};
pub use launch::ExternLaunch;
pub use network::NetworkSpec;

use crate::diagnostic::{self, Diagnostic, Report, Table};
use crate::target::Target;
use crate::workload::Workload;
use std::path::Path;

/// The version of the format that this generator reads.
pub const SCHEMA: i64 = 1;

/// Most threads that a spec can ask for.
const MAX_THREADS: i64 = 1024;

/// A whole spec.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// The file, as the user named it.
    pub file: String,
    /// What code is made for.
    pub targets: Targets,
    /// Threads that CPU kernels are scheduled for, if the user says; never what this machine happens to have.
    pub threads: Option<i64>,
    /// Whether the analytic fallback may stand in for a missing record.
    pub fallback: Fallback,
    /// The operators, in the order of the file.
    pub kernels: Vec<KernelSpec>,
    /// The user's own code.
    pub externs: Vec<ExternSpec>,
    /// The networks, whose workloads are among the kernels.
    pub networks: Vec<NetworkSpec>,
}

/// What code is made for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Targets {
    /// CPU levels that the user listed; `None` for all.
    pub cpu: Option<Vec<&'static Target>>,
    /// CUDA architectures.
    pub cuda: Vec<&'static Target>,
}

impl Targets {
    /// The CPU levels to make code for when compiling for an architecture (as Rust calls it), best first. The portable
    /// level is always among them; an architecture without target files has none.
    pub fn cpu_levels(&self, arch: &str) -> Vec<&'static Target> {
        let wanted = |t: &Target| match &self.cpu {
            None => true,
            Some(listed) => t.cpu().is_some_and(|c| c.level == 0) || listed.iter().any(|l| l.name == t.name),
        };
        Target::cpu_levels(arch).into_iter().filter(|t| wanted(t)).collect()
    }

    /// The levels that only workloads on integers are compiled for, likewise.
    pub fn integer_levels(&self, arch: &str) -> Vec<&'static Target> {
        let wanted = |t: &Target| self.cpu.as_ref().is_none_or(|listed| listed.iter().any(|l| l.name == t.name));
        Target::integer_levels(arch).into_iter().filter(|t| wanted(t)).collect()
    }
}

/// What happens where no tuned record fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fallback {
    /// The analytic choice is used, and reported.
    #[default]
    Allow,
    /// It is an error.
    Deny,
}

impl Spec {
    /// Reads a spec. `file` is its name in diagnostics.
    pub fn parse(text: &str, file: &str) -> Result<Spec, Vec<Diagnostic>> {
        let mut report = Report::new(file, text);
        let document = diagnostic::parse(text, &mut report);
        // What a syntax error leaves behind is not what the user meant: complaints about it would only confuse.
        if !report.is_clean() {
            return report.finish(None);
        }
        let mut root = Table::root(&document, "the spec");
        let spec = read(&mut root, &mut report, file);
        root.finish(&mut report);
        report.finish(spec)
    }

    /// Reads a spec from a file.
    pub fn load(path: &Path) -> Result<Spec, Vec<Diagnostic>> {
        let file = path.display().to_string();
        let fault =
            |cause: String, help: &str| vec![Diagnostic { file: file.clone(), line: 1, cause, help: help.into() }];
        let bytes = std::fs::read(path).map_err(|e| {
            fault(format!("cannot be read ({e})"), "check the path; it counts from the package's folder")
        })?;
        let text = String::from_utf8(bytes).map_err(|_| fault("is not UTF-8 text".into(), "save it as UTF-8"))?;
        Spec::parse(&text, &file)
    }

    /// Every workload with the kernel it belongs to, in the order of the file.
    pub fn workloads(&self) -> impl Iterator<Item = (&KernelSpec, &WorkloadSpec)> {
        self.kernels.iter().flat_map(|k| k.workloads.iter().map(move |w| (k, w)))
    }

    /// The workload called `name`.
    pub fn find(&self, name: &str) -> Option<&Workload> {
        self.workloads().find(|(_, w)| w.name.as_deref() == Some(name)).map(|(_, w)| &w.workload)
    }
}

fn read(root: &mut Table<'_, '_>, report: &mut Report, file: &str) -> Option<Spec> {
    root.require(report, "schema", &format!("schema = {SCHEMA}"));
    if let Some(schema) = root.integer(report, "schema").filter(|s| s.value != SCHEMA) {
        let cause = format!("schema {} is not known", schema.value);
        report.error(&schema.span, cause, format!("this generator reads schema = {SCHEMA}"));
    }
    let threads = root.integer(report, "threads");
    if let Some(t) = threads.as_ref().filter(|t| !(1..=MAX_THREADS).contains(&t.value)) {
        report.error(&t.span, format!("`threads` is {}", t.value), format!("use 1 to {MAX_THREADS}"));
    }
    let fallback = root.choice(report, "fallback", &[("allow", Fallback::Allow), ("deny", Fallback::Deny)]);
    let before = report.len();
    let targets = root.table(report, "targets").map(|mut t| read_targets(&mut t, report));
    // What is wrong with the list of targets is no reason to say that there are none.
    let cuda = (report.len() == before).then(|| targets.as_ref().map_or(&[][..], |t| &t.cuda));
    let mut names = names::Names::default();
    let kernels: Vec<Option<KernelSpec>> = root
        .tables(report, "kernel", "[[kernel]]")
        .into_iter()
        .map(|mut t| kernel::read(&mut t, report, &mut names))
        .collect();
    let externs: Vec<Option<ExternSpec>> = root
        .tables(report, "extern", "[[extern]]")
        .into_iter()
        .map(|mut t| externs::read(&mut t, report, &mut names, cuda))
        .collect();
    let mut kernels: Vec<KernelSpec> = kernels.into_iter().collect::<Option<_>>().unwrap_or_default();
    let on_cpus = cuda.is_some_and(<[_]>::is_empty);
    let mut networks = vec![];
    for mut table in root.tables(report, "network", "[[network]]") {
        if let Some((network, more)) = network::read(&mut table, report, &mut names, (file, on_cpus)) {
            networks.push(network);
            kernels.extend(more);
        }
    }
    if kernels.is_empty() && externs.is_empty() && report.is_clean() {
        let help = "add a [[kernel]] with a [[kernel.workload]], a [[network]], or an [[extern]]";
        report.error(&root.span(), "the spec asks for nothing", help);
    }
    Some(Spec {
        file: file.into(),
        targets: targets.unwrap_or_default(),
        threads: threads.map(|t| t.value),
        fallback: fallback.map(|f| f.value).unwrap_or_default(),
        kernels,
        externs: externs.into_iter().collect::<Option<_>>()?,
        networks,
    })
}

fn read_targets(table: &mut Table<'_, '_>, report: &mut Report) -> Targets {
    let (cpu, cuda): (Vec<&Target>, Vec<&Target>) = Target::all().iter().partition(|t| t.cpu().is_some());
    let mut list = |key: &'static str, all: &[&'static Target]| {
        let choices: Vec<(&str, &'static Target)> = all.iter().map(|t| (t.name.as_str(), *t)).collect();
        let found = table.choices(report, key, &choices)?;
        for (i, f) in found.value.iter().enumerate() {
            if found.value[..i].iter().any(|g| g.value.name == f.value.name) {
                report.error(&f.span, format!("`{key}` lists {} twice", f.value.name), "leave one out");
            }
        }
        Some(found.value.into_iter().map(|f| f.value).collect::<Vec<_>>())
    };
    let targets = Targets { cpu: list("cpu", &cpu), cuda: list("cuda", &cuda).unwrap_or_default() };
    table.finish(report);
    targets
}
