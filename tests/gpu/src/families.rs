//! Every CUDA template on random workloads with random configs, against the `f64` reference; with `--repeats`, each run
//! again and compared bit for bit.

use crate::gpu::{Gpu, Guarded, POISON};
use crate::kernel::Kernel;
use crate::{Options, prepare};
use anyhow::{Context, Result, anyhow};
use kernel_gen::emit::cuda::CudaSource;
use kernel_gen::ir::DType;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Pack, Registry, Template};
use kernel_gen::toolchain::values;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::special::Reach;
use kernel_gen::workload::{
    Conv2d, ConvLayout, Dims, Math, Matmul, MatmulNbits, Op, Param, Reference, Role, Slices, Workload, operator_names,
};
use std::time::Instant;

/// The inputs of a workload, and what a method of a reach may make of them.
struct Known {
    seed: u64,
    reach: Reach,
    inputs: Vec<Vec<f64>>,
    reference: Reference,
}

/// The target that the suite checks on a device: the most specific one that it runs.
pub(crate) fn target_of(gpu: &Gpu) -> Result<&'static Target> {
    let (major, minor) = gpu.capability;
    let name = format!("sm_{major}{minor}");
    Target::find(&format!("{name}a")).or(Target::find(&name)).with_context(|| format!("no target data for {name}"))
}

/// A random workload, bent towards what a template is for. What it does not take is drawn again.
fn workload_for(template: &str, seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let mut w = sample::workload(&mut rng);
    let half = *rng.pick(&[DType::F16, DType::Bf16]);
    match template {
        "wgmma_window" => w = Workload { op: Op::Conv2d(sample::conv2d_rows_of_eight(&mut rng, 96)), dtype: half, ..w },
        "wgmma_gemm" | "wgmma_conv2d" => {
            let op = match template {
                "wgmma_gemm" if seed % 4 == 1 => Op::Conv2d(sample::pointwise_rows_of_eight(&mut rng, 600)),
                "wgmma_gemm" => Op::Matmul(sample::matmul_rows_of_eight(&mut rng, 600)),
                _ => Op::Conv2d(sample::conv2d_rows_of_eight(&mut rng, 160)),
            };
            let (dtype, math) = if seed.is_multiple_of(3) { (DType::F32, Math::Tf32) } else { (half, Math::Fp32) };
            w = match seed % 5 {
                3 => sample::on_tensor_cores(op, &mut rng),
                1 => sample::on_f8(op, &mut rng),
                _ => Workload { op, dtype, math, ..w },
            };
        }
        "plain_cuda" if seed % 4 == 1 => w = sample::f8(&mut rng),
        "plain_cuda" if seed.is_multiple_of(2) => w = sample::quantised(&mut rng),
        "mma_gemm" => {
            w = Workload { op: Op::Matmul(sample::matmul_rows_of_eight(&mut rng, 600)), dtype: half, ..w };
            match seed % 6 {
                0 => w.op = sample::of_operator("broadcast_matmul", &mut rng).op,
                3 => w.op = Op::Matmul(sample::matmul(&mut rng)),
                2 => w = sample::on_words(w.op, &mut rng),
                _ => {}
            }
        }
        "mma_planes" | "simt_planes" => {
            let names = ["conv_transpose2d", "conv1d", "conv_transpose1d", "conv3d", "conv_transpose3d"];
            w.op = match names.get(seed as usize / 2 % 6) {
                // A third of them are as large as networks' are.
                Some(name) if seed.is_multiple_of(3) => sample::of_network_size(name, &mut rng).op,
                Some(name) => sample::of_operator(name, &mut rng).op,
                None => Op::Conv2d(Conv2d { layout: ConvLayout::Nchw, ..sample::conv2d(&mut rng) }),
            };
            w.dtype = if template == "mma_planes" { half } else { DType::F32 };
            w.math = if template == "mma_planes" { Math::Fp32 } else { Math::Strict };
        }
        "mma_conv2d" => {
            w = Workload { op: Op::Conv2d(sample::conv2d_rows_of_eight(&mut rng, 160)), dtype: half, ..w };
            if seed.is_multiple_of(3) {
                // Channels of whole words only.
                conv(&mut w, |c| *c = Conv2d { ci: c.ci - 2, co: c.co + 1, ..*c });
            }
            if seed % 5 == 1 {
                // Groups that have as many channels each.
                conv(&mut w, |c| *c = Conv2d { groups: 3, ci: 3 * c.ci, co: 3 * c.co, n: 1, ..*c });
            }
            if seed % 4 == 3 {
                // Pieces of 16, 8, 4 and of single bytes.
                conv(&mut w, |c| *c = Conv2d { ci: c.ci - [0, 4, 5][seed as usize / 4 % 3], ..*c });
                w = sample::on_words(w.op, &mut rng);
            }
        }
        "via_nhwc_wgmma_gemm" | "via_nhwc_wgmma_conv2d" | "via_nhwc_mma_conv2d" => {
            let c = match template {
                "via_nhwc_wgmma_gemm" => sample::pointwise_rows_of_eight(&mut rng, 600),
                _ => sample::conv2d_rows_of_eight(&mut rng, 160),
            };
            let layout = [ConvLayout::Nchw, ConvLayout::Hwcn][seed as usize % 2];
            w = Workload { op: Op::Conv2d(Conv2d { layout, ..c }), dtype: half, ..w };
        }
        "attention_mma" | "attention_wgmma" | "attention_simt" => {
            let dtype = if template == "attention_simt" { DType::F32 } else { half };
            w = Workload { op: Op::Attention(sample::attention(&mut rng, 600)), dtype, ..w }
        }
        "pointwise_rows" => {
            // Rows of whole pieces; several tiles of columns, also an odd number; bf16 and f16 into either or f32.
            let (rows, depth, columns) = (rng.between(1, 9000), 8 * rng.between(1, 64), rng.between(1, 192));
            w.op = match seed % 3 {
                0 => Op::Matmul(Matmul { trans_b: seed % 2 == 1, ..Matmul::new(rows, columns, depth) }),
                _ => {
                    let c = Conv2d::nchw(rng.between(1, 5), depth, rng.between(1, 40), 29, columns, 1, 1, 0);
                    Op::Conv2d(Conv2d { layout: ConvLayout::Nhwc, ..c })
                }
            };
            w.dtype = half;
        }
        "split_product" | "split_bf16" | "split_halves" => {
            let layout = [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn][seed as usize / 3 % 3];
            // Depths of all sizes, also below eight.
            let depth = |n: i64| n - seed as i64 / 2 % 8;
            w.op = match seed % 3 {
                0 => {
                    let m = sample::matmul_rows_of_eight(&mut rng, 600);
                    Op::Matmul(Matmul { k: depth(m.k), batch: 1, ..m })
                }
                _ => {
                    let c = sample::conv2d_rows_of_eight(&mut rng, 160);
                    Op::Conv2d(Conv2d { layout, ci: depth(c.ci), ..c })
                }
            };
            (w.dtype, w.out_dtype) = (DType::F32, DType::F32);
            w.math = [Math::Fp32, Math::Tf32][seed as usize / 4 % 2];
        }
        "conv2d_stem" => {
            // Few channels, and outputs of several tiles of sixteen.
            conv(&mut w, |c| {
                let layout = [ConvLayout::Nhwc, ConvLayout::Nchw][seed as usize % 4 / 3];
                *c = Conv2d { layout, groups: 1, ci: 1 + c.ci % 16, w: 2 * c.w, co: 3 * c.co, ..*c };
            });
            w.dtype = half;
        }
        "gemv_cuda" => {
            let m = sample::matmul(&mut rng);
            let (rows, k) = (1 + m.m % 8, m.k * [1, 4, 8, 64][seed as usize % 4]);
            w.op = match seed / 4 % 2 {
                0 => {
                    let few = sample::few_bits(&mut rng);
                    Op::MatmulNbits(MatmulNbits { k: (few.k + 31) / 32 * 32, n: 5 * few.n, ..few })
                }
                _ => Op::Matmul(Matmul { m: rows, k, n: 5 * m.n, trans_a: m.trans_a && rows == 1, ..m }),
            };
        }
        "conv2d_tensorcore" => {
            w = Workload { op: Op::Conv2d(sample::conv2d_tiles(&mut rng)), dtype: half, ..w };
        }
        "simt_integers" => {
            let m = sample::matmul_rows_of_eight(&mut rng, 600);
            w = sample::without_zero_points(Matmul { trans_a: false, trans_b: true, ..m }, &mut rng);
        }
        "simt_gemm" => {
            // Rows of whole vectors, and of any size.
            let m = if seed.is_multiple_of(3) {
                sample::matmul(&mut rng)
            } else {
                sample::matmul_rows_of_eight(&mut rng, 600)
            };
            w = Workload { op: Op::Matmul(m), dtype: DType::F32, math: Math::Strict, ..w };
            if seed % 6 == 1 {
                w.op = sample::of_operator("broadcast_matmul", &mut rng).op;
            }
        }
        "simt_conv2d" => {
            (w.dtype, w.math) = (DType::F32, Math::Strict);
            let layout = [ConvLayout::Hwcn, ConvLayout::Nhwc][seed as usize % 2];
            conv(&mut w, |c| *c = Conv2d { layout, groups: 1, n: 1 + 7 * c.n, ..*c });
            if !seed.is_multiple_of(3) {
                // Images and channels of whole vectors.
                conv(&mut w, |c| *c = Conv2d { n: 4 * c.n, co: 4 * c.co, ..*c });
            }
            if seed % 4 == 3 {
                // Taps that last whole steps, in NHWC, and groups.
                let groups = 1 + seed as i64 / 4 % 2;
                conv(&mut w, |c| {
                    *c = Conv2d { groups, ci: 8 * groups * c.ci, co: groups * c.co, n: 1 + c.n / 8, ..*c }
                });
            }
        }
        "conv2d_no_batching" => conv(&mut w, |c| *c = Conv2d { layout: ConvLayout::Nchw, groups: 1, ..*c }),
        "splitk_direct" => {
            // Every layout in f32 and, likewise often, in 16 bits, which stay so or become f32.
            let layout = [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn][seed as usize % 3];
            conv(&mut w, |c| *c = Conv2d { layout, groups: 1, ..*c });
            w.dtype = [DType::F32, half][seed as usize / 3 % 2];
            w.out_dtype = [w.dtype, DType::F32][seed as usize / 6 % 2];
        }
        "splitk_pair" => w.op = Op::DepthwisePointwise(sample::pair(&mut rng)),
        "conv2d_hwcn" => conv(&mut w, |c| *c = Conv2d { layout: ConvLayout::Hwcn, groups: 1, ..*c }),
        "winograd_conv2d" => {
            w.dtype = DType::F32;
            conv(&mut w, |c| {
                let (layout, padding) = (ConvLayout::Nchw, c.padding.map(|p| p % 3));
                let one = Conv2d { layout, groups: 1, kh: 3, kw: 3, stride: [1, 1], dilation: [1, 1], padding, ..*c };
                *c = Conv2d { n: 4 * one.n, ..one };
            });
        }
        "winograd_fused" => {
            w.dtype = DType::F32;
            conv(&mut w, |c| {
                let (layout, padding) = (ConvLayout::Nchw, c.padding.map(|p| p % 3));
                let one = Conv2d { layout, groups: 1, kh: 3, kw: 3, stride: [1, 1], dilation: [1, 1], padding, ..*c };
                // Several steps of input channels, and blocks of which most are not full.
                *c = Conv2d { n: 3 * one.n, ci: 3 * one.ci, co: 3 * one.co, ..one };
            });
        }
        "depthwise_cuda" => conv(&mut w, |c| {
            *c = Conv2d { layout: ConvLayout::Nchw, ci: c.ci.max(2), ..*c }.depthwise(1 + seed as i64 % 2);
        }),
        "depthwise_direct" => {
            w = Workload { op: Op::Conv2d(sample::depthwise(&mut rng)), ..w };
            w.dtype = *rng.pick(&[half, DType::F32]);
        }
        "columns_cuda" => {
            let name = *rng.pick(&["reduce_sum", "reduce_mean", "reduce_max", "reduce_l1", "reduce_prod"]);
            w = sample::of_operator(name, &mut rng);
            if let Op::Reduce(of) = &mut w.op {
                let columns = *rng.pick(&[1, 2, 8]) * rng.between(1, 300);
                let most = *rng.pick(&[50, 12_544]);
                let shape = [rng.between(1, 5), rng.between(1, most), columns];
                (of.input, of.combined) = (Dims::new(&shape).expect("three"), Dims::new(&[0, 1, 0]).expect("three"));
            }
        }
        "rows_cuda" => {
            let names = [
                "softmax",
                "log_softmax",
                "layer_norm",
                "rms_norm",
                "group_norm",
                "reduce_sum",
                "reduce_mean",
                "reduce_max",
            ];
            w = sample::of_operator(names[seed as usize % names.len()], &mut rng);
            if let Op::RowWise(rows) = &mut w.op {
                // Rows of all lengths, also of many warps.
                (rows.rows, rows.columns) = (rng.between(1, 40), *rng.pick(&[1, 4, 8]) * rng.between(1, 5000));
            }
            w.dtype = *rng.pick(&[half, DType::F32]);
        }
        // Every operator in turn.
        "plain_cuda" | "sketch_cuda" | "elements_cuda" => {
            let names: Vec<&str> = operator_names().collect();
            w = sample::of_operator(names[seed as usize % names.len()], &mut rng);
        }
        _ => {}
    }
    if w.dtype == DType::F32 {
        w.out_dtype = DType::F32;
    }
    w
}

fn conv(w: &mut Workload, change: impl FnOnce(&mut Conv2d)) {
    if let Op::Conv2d(c) = &mut w.op {
        change(c);
    }
}

/// The lines of an error that say something; a whole kernel may follow them.
fn brief(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().take(4).collect::<Vec<_>>().join("\n")
}

/// One kernel to check.
struct Case {
    workload: Workload,
    slices: Slices,
    config: Config,
    seed: u64,
    source: CudaSource,
    packs: Vec<Pack>,
}

/// Workloads that a template takes, each with its default and some random configs.
///
/// A config of the space that gives no kernel is a fault of the template; it is reported and counted, and the others go on.
fn cases(template: &dyn Template, target: &Target, options: &Options) -> Result<(Vec<Case>, Vec<String>)> {
    let (count, configs) = (options.number("--workloads", 40)? as usize, options.number("--configs", 20)? as usize);
    let first = options.number("--seed", 1)?;
    let fits = |seed: &u64| {
        let w = workload_for(template.name(), *seed);
        w.validate().is_ok() && w.macs() < 40_000_000 && template.applies(&w, target).is_ok()
    };
    let seeds: Vec<u64> = (first..first + 100_000).filter(fits).take(count).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let prepare = || -> Result<(Vec<Case>, Vec<String>)> {
        let (mut out, mut refused) = (vec![], vec![]);
        loop {
            let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(seed) = seeds.get(i).copied() else { return Ok((out, refused)) };
            let workload = workload_for(template.name(), seed);
            let space = template.space(&workload, target).map_err(|e| anyhow!("{e}"))?;
            let default = template.default_config(&workload, target).map_err(|e| anyhow!("{e}"))?;
            let default = space.normalise(&default).map_err(|e| anyhow!("{}: {e}", workload.key()))?;
            let slices = match options.flag("--slices") {
                true => sample::slices(&workload, &mut Rng::new(seed)),
                false => Slices::default(),
            };
            if options.flag("--slices") && !has_slices(template, &workload, slices, target, &default) {
                continue;
            }
            let random = space.sample(seed).map(|(_, config)| config).take(configs);
            for config in [default].into_iter().chain(random) {
                match prepare::source_and_packs(template, &workload, slices, target, &config) {
                    Ok((source, packs)) => {
                        out.push(Case { workload: workload.clone(), slices, config, seed, source, packs })
                    }
                    Err(error) => {
                        let what = format!("{} {} with {config} (seed {seed})", template.name(), workload.key());
                        refused.push(format!("{what}: {}", brief(&error)));
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(prepare)).collect();
        let (mut cases, mut refused) = (vec![], vec![]);
        for thread in all {
            let (some, none) = thread.join().expect("preparing does not panic")?;
            cases.extend(some);
            refused.extend(none);
        }
        cases.sort_by_key(|c: &Case| c.seed);
        Ok((cases, refused))
    })
}

/// Whether a workload has slices, and the template's kernel can be laid into larger tensors.
fn has_slices(template: &dyn Template, w: &Workload, slices: Slices, target: &Target, config: &Config) -> bool {
    let made = template.schedule(w, target, config).map(|made| made.schedule.kernel);
    !slices.is_empty() && made.is_ok_and(|mut kernel| slices.lay(w, &mut kernel).is_ok())
}

/// The byte that fills memory around a slice: a large number in every type, so that a kernel that reads it gives a wrong result.
const BESIDE: u8 = 0x74;

/// The memory of a tensor of which the workload's is a slice.
fn whole(slices: Slices, w: &Workload, index: usize, dense: Vec<u8>) -> Vec<u8> {
    let (param, larger) = (&w.params()[index], &slices.params(w)[index]);
    if param.role != Role::Input || slices.from.is_none() {
        return dense;
    }
    let mut out = vec![BESIDE; larger.bytes() as usize];
    let size = param.dtype.bytes();
    for (at, element) in slices.places(w, param).zip(dense.chunks(size)) {
        out[at as usize * size..][..size].copy_from_slice(element);
    }
    out
}

/// The workload's part of a larger output, beside which nothing may be written.
fn part(slices: Slices, w: &Workload, mut whole: Vec<u8>) -> Result<Vec<u8>> {
    let output = &w.params().pop().context("every workload has an output")?;
    let size = output.dtype.bytes();
    let mut out = vec![];
    for at in slices.places(w, output) {
        let element = &mut whole[at as usize * size..][..size];
        out.extend_from_slice(element);
        element.fill(POISON);
    }
    match whole.iter().position(|byte| *byte != POISON) {
        Some(at) => anyhow::bail!("the kernel wrote beside its slice, at byte {at}"),
        None => Ok(out),
    }
}

/// The inputs of a workload with these parameters on the device, which are given as bytes, and its poisoned output.
pub(crate) fn buffers(gpu: &Gpu, params: &[Param], inputs: &[Vec<u8>]) -> Result<Vec<Guarded>> {
    let output = params.last().context("every workload has an output")?;
    let mut all = inputs.iter().map(|bytes| gpu.upload(bytes)).collect::<Result<Vec<_>>>()?;
    all.push(gpu.poisoned(output.bytes() as usize)?);
    Ok(all)
}

/// Runs the suite; whether everything was right.
pub(crate) fn run(gpu: &Gpu, options: &Options) -> Result<bool> {
    let device = target_of(gpu)?;
    let target = match options.text("--target") {
        Some(name) => prepare::older(name, device)?,
        None => device,
    };
    let compiler = prepare::compiler(device)?;
    println!("kernels for {}, compiled for {} by {}\n", target.name, device.name, compiler.name());
    let registry = Registry::builtin();
    if let Some(only) = options.text("--only").filter(|only| registry.find(only).is_none()) {
        anyhow::bail!("there is no template `{only}` in this build");
    }
    let repeats = options.number("--repeats", 1)?;
    let mut rows = vec![];
    let mut all_right = true;
    for template in registry.iter() {
        if options.text("--only").is_some_and(|only| only != template.name()) {
            continue;
        }
        let begun = Instant::now();
        let (cases, refused) = match cases(template, target, options) {
            Ok((cases, refused)) if cases.is_empty() && refused.is_empty() => continue,
            Ok(cases) => cases,
            Err(error) => {
                println!("FAILED {}: {error:#}", template.name());
                all_right = false;
                continue;
            }
        };
        refused.iter().take(3).for_each(|text| println!("FAILED {text}"));
        let prepared = begun.elapsed().as_secs_f64();
        let sources: Vec<CudaSource> = cases.iter().map(|c| c.source.clone()).collect();
        let artifacts = prepare::compile(&compiler, device, &sources);
        let compiled = begun.elapsed().as_secs_f64() - prepared;
        let (mut failures, mut spilled, mut worst) = (refused.len(), 0, 0.0f64);
        let mut known: Option<Known> = None;
        for (case, artifact) in cases.iter().zip(artifacts) {
            let what =
                || format!("{} {} with {} (seed {})", template.name(), case.workload.key(), case.config, case.seed);
            let reach = template.reach(&case.workload, &case.config);
            if known.as_ref().is_none_or(|k| (k.seed, k.reach) != (case.seed, reach)) {
                let inputs = sample::uneven_inputs(&case.workload, &mut Rng::new(case.seed));
                let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
                let reference = reach.reference(&case.workload, &views);
                known = Some(Known { seed: case.seed, reach, inputs, reference });
            }
            let Some(Known { inputs, reference, .. }) = &known else { continue };
            let checked = || -> Result<f64> {
                let artifact = artifact?;
                spilled += usize::from(artifact.log.kernels.iter().any(|k| k.spills()));
                let inputs = prepare::packed(&case.workload, target, inputs, &case.packs)?;
                let (slices, w) = (case.slices, &case.workload);
                let inputs = inputs.into_iter().enumerate().map(|(i, data)| whole(slices, w, i, data));
                let mut buffers = buffers(gpu, &slices.params(w), &inputs.collect::<Vec<_>>())?;
                let kernel = Kernel::load(gpu, &case.source, &artifact)?;
                let bound = kernel.bind(gpu, &buffers)?;
                bound.launch(gpu)?;
                gpu.stream.synchronize()?;
                let last = buffers.len() - 1;
                for input in &buffers[..last] {
                    gpu.download(input)?;
                }
                let written = gpu.download(&buffers[last])?;
                for run in 2..=repeats {
                    buffers[last].poison(gpu)?;
                    bound.launch(gpu)?;
                    if gpu.download(&buffers[last])? != written {
                        anyhow::bail!("run {run} of {repeats} gave other bits than the first");
                    }
                }
                let output = values::decode(w.out_dtype, &part(slices, w, written)?);
                reference.check(output).map_err(|mismatch| anyhow!("{mismatch}"))
            };
            match checked() {
                Ok(share) => worst = worst.max(share),
                Err(error) => {
                    failures += 1;
                    if failures <= 3 {
                        println!("FAILED {}: {}", what(), brief(&error));
                    }
                    if gpu.stream.synchronize().is_err() {
                        println!("the context is lost; what follows cannot be checked\nFAILED");
                        return Ok(false);
                    }
                }
            }
        }
        let workloads = cases.iter().map(|c| c.seed).collect::<std::collections::BTreeSet<_>>().len();
        rows.push(format!(
            "| {} | {workloads} | {} | {failures} | {:.3} | {spilled} | {prepared:.1} | {compiled:.1} |",
            template.name(),
            cases.len(),
            worst,
        ));
        all_right &= failures == 0;
    }
    println!(
        "| template | workloads | kernels | wrong | worst error, share of its bound | with spills | s to generate | s to compile |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    rows.iter().for_each(|row| println!("{row}"));
    println!("{}", if all_right { "all right" } else { "FAILED" });
    Ok(all_right)
}
