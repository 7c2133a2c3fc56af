//! The workloads that the README quotes, beside cuBLAS and cuDNN in the same process.

use crate::families::{buffers, target_of};
use crate::gpu::{Gpu, Guarded};
use crate::kernel::Kernel;
use crate::peers::Peers;
use crate::{Options, prepare};
use anyhow::{Context, Result, anyhow, ensure};
use kernel_gen::ir::DType;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::templates::cuda::{conv2d_hwcn, conv2d_tensorcore};
use kernel_gen::toolchain::values;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Math, Matmul, Op, Slices, Workload};

/// Which config of a space.
enum Choice {
    /// What the template chooses without a record.
    Default,
    /// The one at an index.
    Index(u64),
    /// The one that a tutorial says.
    Written(Config),
}

/// A line of the table: a workload, the template that runs it, and its config.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) workload: Workload,
    pub(crate) template: String,
    choice: Choice,
}

/// The workload whose key and template are named, else the lines of the table.
pub(crate) fn rows_asked(options: &Options) -> Result<Vec<Row>> {
    let Some(key) = options.text("--key") else { return Ok(rows()) };
    let workload = Workload::from_key(key).map_err(|e| anyhow!("{e}"))?;
    let template = options.text("--template").context("--key needs --template")?.to_string();
    Ok(vec![Row { name: key.to_string(), workload, template, choice: Choice::Default }])
}

pub(crate) fn rows() -> Vec<Row> {
    let f16 = |op: Op| Workload::f32(op).with_dtype(DType::F16);
    let row = |name: &str, workload, template: &str| {
        let (name, template) = (name.to_string(), template.to_string());
        Row { name, workload, template, choice: Choice::Default }
    };
    let product = |name, n: i64| row(name, f16(Op::Matmul(Matmul::new(n, n, n))), "wgmma_gemm");
    let strict = |op: Op| Workload { math: Math::Strict, ..Workload::f32(op) };
    let strict_product = |name, n: i64| row(name, strict(Op::Matmul(Matmul::new(n, n, n))), "simt_gemm");
    let batch_256 = |layout| Conv2d { layout, ..Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1) };
    let one = Conv2d::nchw(1, 512, 7, 7, 512, 3, 1, 1);
    let fused = |name, channels, side| {
        let c = Conv2d::nchw(64, channels, side, side, channels, 3, 1, 1);
        row(name, Workload::f32(Op::Conv2d(c)), "winograd_fused")
    };
    vec![
        product("matmul 1024, f16", 1024),
        product("matmul 4096, f16", 4096),
        product("matmul 8192, f16", 8192),
        strict_product("matmul 512, f32 strict", 512),
        strict_product("matmul 1024, f32 strict", 1024),
        strict_product("matmul 4096, f32 strict", 4096),
        row(
            "conv b256 256x14x14 -> 512, HWCN f32 strict",
            strict(Op::Conv2d(batch_256(ConvLayout::Hwcn))),
            "simt_conv2d",
        ),
        fused("conv b64 128x28x28 -> 128, NCHW f32", 128, 28),
        fused("conv b64 256x14x14 -> 256, NCHW f32", 256, 14),
        row("conv b256 256x14x14 -> 512, NHWC f16", f16(Op::Conv2d(batch_256(ConvLayout::Nhwc))), "wgmma_conv2d"),
        Row {
            name: "conv b256 256x14x14 -> 512, NHWC16n16c f16 (tutorial as written)".into(),
            workload: f16(Op::Conv2d(batch_256(ConvLayout::NhwcNc(16)))),
            template: "conv2d_tensorcore".into(),
            choice: Choice::Written(conv2d_tensorcore::tutorial()),
        },
        row(
            "conv b256 256x14x14 -> 512, HWCN f32",
            Workload::f32(Op::Conv2d(batch_256(ConvLayout::Hwcn))),
            "conv2d_hwcn",
        ),
        Row {
            name: "conv b256 256x14x14 -> 512, HWCN f32 (tutorial as written)".into(),
            workload: Workload::f32(Op::Conv2d(batch_256(ConvLayout::Hwcn))),
            template: "conv2d_hwcn".into(),
            choice: Choice::Written(conv2d_hwcn::tutorial()),
        },
        row("conv n1 512x7x7 -> 512, NCHW f32 (default)", Workload::f32(Op::Conv2d(one)), "conv2d_no_batching"),
        Row {
            name: "conv n1 512x7x7 -> 512, NCHW f32 (tutorial's best)".into(),
            workload: Workload::f32(Op::Conv2d(one)),
            template: "conv2d_no_batching".into(),
            // The config that the tutorial's log names the best of its run.
            choice: Choice::Index(4_881_186),
        },
    ]
}

/// Elements of the output that are compared with an `f64` sum of their own.
const PROBES: usize = 512;

/// Compares some elements of the output with their definition; gives the largest error relative to the sum of the terms'
/// magnitudes.
fn probe(w: &Workload, inputs: &[Vec<f64>], output: &[f64]) -> Result<f64> {
    ensure!(w.epilogue.is_empty(), "the suite times workloads without an epilogue");
    let mut rng = Rng::new(99);
    let mut worst = 0.0f64;
    for _ in 0..PROBES {
        let at = rng.between(0, output.len() as i64 - 1);
        let (mut sum, mut magnitude) = (0.0, 0.0);
        let mut term = |x: f64, y: f64| {
            sum += x * y;
            magnitude += (x * y).abs();
        };
        match &w.op {
            Op::Matmul(m) => {
                let (i, j) = (at / m.n, at % m.n);
                for k in 0..m.k {
                    let a = if m.trans_a { k * m.m + i } else { i * m.k + k };
                    let b = if m.trans_b { j * m.k + k } else { k * m.n + j };
                    term(inputs[0][a as usize], inputs[1][b as usize]);
                }
            }
            Op::Conv2d(c) => {
                let (oh, ow) = (c.oh(), c.ow());
                let (n, o, y, x) = match c.layout {
                    ConvLayout::Nchw => (at / (c.co * oh * ow), at / (oh * ow) % c.co, at / ow % oh, at % ow),
                    ConvLayout::Nhwc => (at / (oh * ow * c.co), at % c.co, at / (ow * c.co) % oh, at / c.co % ow),
                    ConvLayout::Hwcn => (at % c.n, at / c.n % c.co, at / (ow * c.co * c.n), at / (c.co * c.n) % ow),
                    ConvLayout::NhwcNc(b) => {
                        let (block, within) = (at / (b * b), at % (b * b));
                        let (n, o) = (block / (c.co / b * ow * oh), block % (c.co / b));
                        let (y, x) = (block / (c.co / b * ow) % oh, block / (c.co / b) % ow);
                        (n * b + within / b, o * b + within % b, y, x)
                    }
                    ConvLayout::NchwC(_) => return Err(anyhow!("no probe for this layout")),
                };
                // A group's outputs read its own channels.
                let (per_group, first) = (c.ci_per_group(), o / c.co_per_group() * c.ci_per_group());
                for (ci, kh, kw) in
                    (0..per_group).flat_map(|ci| (0..c.kh).flat_map(move |kh| (0..c.kw).map(move |kw| (ci, kh, kw))))
                {
                    let h = y * c.stride[0] + kh * c.dilation[0] - c.padding[0];
                    let v = x * c.stride[1] + kw * c.dilation[1] - c.padding[1];
                    if h < 0 || h >= c.h || v < 0 || v >= c.w {
                        continue;
                    }
                    let channel = first + ci;
                    let source = match c.layout {
                        ConvLayout::Nchw => ((n * c.ci + channel) * c.h + h) * c.w + v,
                        ConvLayout::Nhwc => ((n * c.h + h) * c.w + v) * c.ci + channel,
                        ConvLayout::NhwcNc(b) => {
                            let block = ((n / b * c.h + h) * c.w + v) * (c.ci / b) + channel / b;
                            (block * b + n % b) * b + channel % b
                        }
                        _ => ((h * c.w + v) * c.ci + channel) * c.n + n,
                    };
                    let weight = match c.layout {
                        ConvLayout::Nchw => ((o * per_group + ci) * c.kh + kh) * c.kw + kw,
                        ConvLayout::NhwcNc(b) => {
                            let block = ((kh * c.kw + kw) * (per_group / b) + ci / b) * (c.co / b) + o / b;
                            (block * b + ci % b) * b + o % b
                        }
                        _ => ((kh * c.kw + kw) * per_group + ci) * c.co + o,
                    };
                    term(inputs[0][source as usize], inputs[1][weight as usize]);
                }
            }
            _ => return Err(anyhow!("no probe for {}", w.op_name())),
        }
        let error = (output[at as usize] - sum).abs() / magnitude.max(f64::MIN_POSITIVE);
        worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
    }
    Ok(worst)
}

/// Times every row; whether all were right.
pub(crate) fn run(gpu: &Gpu, options: &Options) -> Result<bool> {
    let target = target_of(gpu)?;
    let peers = Peers::open(gpu)?;
    let mut lines = vec![];
    let mut all_right = true;
    for row in rows() {
        if options.text("--only").is_some_and(|part| !row.name.contains(part)) {
            continue;
        }
        match measure(gpu, target, &peers, &row) {
            Ok(line) => lines.push(line),
            Err(error) => {
                all_right = false;
                println!("FAILED {}: {error:#}", row.name);
            }
        }
    }
    println!(
        "\n| workload | us | TFLOP/s | peer | us | TFLOP/s | peer / ours | max error | peer's | registers / spilled bytes | template and config |"
    );
    println!("|---|--:|--:|---|--:|--:|--:|--:|--:|--:|---|");
    lines.iter().for_each(|line| println!("{line}"));
    println!("{}", if all_right { "all right" } else { "FAILED" });
    Ok(all_right)
}

/// A workload's data on the device.
pub(crate) struct Data {
    inputs: Vec<Vec<f64>>,
    pub(crate) memory: Vec<Guarded>,
}

impl Data {
    /// Seeded inputs and a poisoned output.
    pub(crate) fn new(gpu: &Gpu, w: &Workload) -> Result<Data> {
        let inputs = sample::inputs(w, &mut Rng::new(1));
        let memory = buffers(gpu, &w.params(), &prepare::plain(w, &inputs))?;
        Ok(Data { inputs, memory })
    }

    /// Runs a kernel once; the error of its output.
    pub(crate) fn run(&mut self, gpu: &Gpu, w: &Workload, kernel: &Kernel) -> Result<f64> {
        self.poison(gpu)?;
        kernel.bind(gpu, &self.memory)?.launch(gpu)?;
        self.error(gpu, w)
    }

    /// The same; an `Err` where it is too large.
    pub(crate) fn check(&mut self, gpu: &Gpu, w: &Workload, kernel: &Kernel) -> Result<f64> {
        let error = self.run(gpu, w, kernel)?;
        // A rounding of the result to its type, and what a sum in f32 of any order may lose.
        let rounding = if w.out_dtype == DType::F32 { 0.0 } else { 2f64.powi(-11) };
        ensure!(error <= rounding + w.reduction_length() as f64 * 2f64.powi(-23), "wrong: an error of {error:.2e}");
        Ok(error)
    }

    /// Forgets the output.
    fn poison(&mut self, gpu: &Gpu) -> Result<()> {
        self.memory.last_mut().context("an output")?.poison(gpu)
    }

    /// The error of the output, once what was queued is done.
    fn error(&self, gpu: &Gpu, w: &Workload) -> Result<f64> {
        gpu.stream.synchronize()?;
        let output = self.memory.last().context("an output")?;
        probe(w, &self.inputs, &values::decode(w.out_dtype, &gpu.download(output)?))
    }
}

/// Whether a library computes a workload in the layout that it has here, so that its results can be held against ours.
fn same_layout(w: &Workload) -> bool {
    !matches!(w.op, Op::Conv2d(Conv2d { layout: ConvLayout::Hwcn | ConvLayout::NhwcNc(_), .. }))
}

/// How many launches of a workload make one graph.
pub(crate) fn repeats(w: &Workload) -> usize {
    if w.flops() > 100_000_000_000 { 5 } else { 20 }
}

fn measure(gpu: &Gpu, target: &Target, peers: &Peers, row: &Row) -> Result<String> {
    let registry = Registry::builtin();
    let template = registry.find(&row.template).with_context(|| format!("there is no template {}", row.template))?;
    let w = &row.workload;
    let space = template.space(w, target).map_err(|e| anyhow!("{e}"))?;
    let config = match &row.choice {
        Choice::Default => template.default_config(w, target).map_err(|e| anyhow!("{e}"))?,
        Choice::Index(index) => space.get(*index).with_context(|| format!("config {index} is not in the space"))?,
        Choice::Written(config) => space.normalise(config).map_err(|e| anyhow!("{e}"))?,
    };
    let (source, packs) = prepare::source_and_packs(template, w, Slices::default(), target, &config)?;
    let compiler = prepare::compiler(target)?;
    let artifact = prepare::compile(&compiler, target, std::slice::from_ref(&source)).pop().context("one source")??;
    let kernel = Kernel::load(gpu, &source, &artifact)?;
    let mut data = Data::new(gpu, w)?;
    let mut plain = None;
    if !packs.is_empty() {
        let memory = buffers(gpu, &w.params(), &prepare::packed(w, target, &data.inputs, &packs)?)?;
        plain = Some(std::mem::replace(&mut data.memory, memory));
    }
    let error = data.check(gpu, w, &kernel)?;
    let repeats = repeats(w);
    let bound = kernel.bind(gpu, &data.memory)?;
    let ours = gpu.graph(repeats, || bound.launch(gpu))?;
    // Libraries take their parameters as they are; ours, which the graph reads, stay where they are until the end.
    let _packed = plain.map(|memory| std::mem::replace(&mut data.memory, memory));
    let peer = peers.fastest(gpu, w, &data.memory, repeats)?;
    let graphs: Vec<_> = std::iter::once(&ours).chain(peer.as_ref().map(|p| &p.graph)).collect();
    let times = gpu.time(&graphs, repeats)?;
    let rate = |us: f64| w.flops() as f64 / us * 1e-6;
    let theirs = match (&peer, times.get(1)) {
        (Some(peer), Some(us)) => format!("{} | {us:.1} | {:.1} | {:.2}", peer.name, rate(*us), us / times[0]),
        _ => "none | - | - | -".into(),
    };
    let their_error = match &peer {
        Some(peer) if same_layout(w) => {
            data.poison(gpu)?;
            peer.graph.launch()?;
            format!("{:.1e}", data.error(gpu, w)?)
        }
        _ => "-".into(),
    };
    let spills: u32 = artifact.log.kernels.iter().map(|k| k.spill_store_bytes).sum();
    let registers: Vec<String> = artifact.log.kernels.iter().map(|k| k.registers.to_string()).collect();
    let us = times[0];
    Ok(format!(
        "| {} | {us:.1} | {:.1} | {theirs} | {error:.1e} | {their_error} | {} / {spills} | {} {config} |",
        row.name,
        rate(us),
        registers.join(" "),
        row.template,
    ))
}
