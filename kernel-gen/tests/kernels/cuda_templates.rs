//! Every CUDA template on random workloads with random configs: the scheduled and the lowered kernel, run by the
//! interpreter in the declared precision, stay within the derived bound of the f64 reference, and the verifier passes
//! both.
//!
//! CI takes a sample. `KERNEL_GEN_WORKLOADS=300 cargo test --release -p kernel-gen --test kernels cuda_templates::` runs more;
//! `KERNEL_GEN_SEED` moves on to other workloads, `KERNEL_GEN_CONFIGS` takes more configs of each,
//! `KERNEL_GEN_TEMPLATE` names one template.

use crate::checked::{self, in_f32};
use crate::cuda_on_cpu;
use crate::kinds;
use crate::sweep::number;
use kernel_gen::analysis::verify::{Fault, check as faults_of, verify};
use kernel_gen::emit::cuda::{self, Arch, CudaOptions, CudaSource};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::{DType, Kernel};
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, Lowered, lower};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::toolchain::cuda::{self as toolchain, Environment, Found, Missing, Options, Request};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Dims, Math, Matmul, MatmulNbits, Op, Role, Workload, operator_names};
use std::collections::BTreeMap;

/// Every CUDA target of a generation of its own.
const VOLTA: &str = "sm_70";
const TARGETS: [&str; 4] = ["sm_75", "sm_80", "sm_86", "sm_90a"];

fn text(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}

/// The output of a kernel.
fn interpret(kernel: &Kernel, workload: &Workload, values: &Values) -> Result<Vec<f64>, String> {
    let params = workload.params();
    let mut outputs = interp::run(kernel, values, Mode::Declared).map_err(|e| e.to_string())?;
    let output = params.iter().find(|p| p.role == Role::Output).ok_or("an output")?;
    outputs.remove(output.name).ok_or("the output".into())
}

/// Schedules, verifies, lowers and emits; the kernel as scheduled and as lowered, and its source.
fn make(template: &dyn Template, workload: &Workload, target: &Target, config: &Config) -> Made {
    let what = || format!("{} on {} for {} with {config}", template.name(), workload.key(), target.name);
    let scheduled = template.schedule(workload, target, config).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let (kernel, lowered, source) = make_kernel(scheduled.schedule.kernel, target, &what);
    let packs = scheduled.packs.into_iter().map(|p| (p.param, make_kernel(p.kernel, target, &what).1)).collect();
    Made { kernel, lowered, source, packs }
}

/// What a template makes.
struct Made {
    kernel: Kernel,
    lowered: Lowered,
    source: CudaSource,
    /// What packs parameters, by their names.
    packs: Vec<(String, Lowered)>,
}

impl Made {
    /// The values of the kernel's parameters, packed as it wants them.
    fn values(&self, workload: &Workload, inputs: &[Vec<f64>]) -> Values {
        let mut values: Values =
            workload.params().iter().zip(inputs).map(|(p, data)| (p.name.to_string(), data.clone())).collect();
        for (param, pack) in &self.packs {
            let given = Values::from([(param.clone(), values[param].clone())]);
            let mut out = interp::run(pack.kernel(), &given, Mode::Declared).unwrap_or_else(|e| panic!("{e}"));
            values.insert(param.clone(), out.pop_first().expect("a kernel that packs has an output").1);
        }
        checked::in_words(workload, &self.kernel, &mut values);
        values
    }
}

/// Verifies, lowers and emits a kernel.
fn make_kernel(kernel: Kernel, target: &Target, what: &dyn Fn() -> String) -> (Kernel, Lowered, CudaSource) {
    let kernel = insert_barriers(kernel);
    let verified = verify(kernel.clone(), &target.limits())
        .unwrap_or_else(|faults| panic!("{}\n{}\n{kernel}", what(), text(&faults)));
    let lowered = lower(verified, &LowerOptions::of(target)).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let faults = faults_of(lowered.kernel(), &target.limits());
    assert!(faults.is_empty(), "{}, lowered\n{}\n{}", what(), text(&faults), lowered.kernel());
    let options = CudaOptions {
        arch: Arch::of(target).expect("a CUDA target"),
        symbol: "kernel".into(),
        comment: String::new(),
        min_blocks: None,
    };
    let source = cuda::emit(&lowered, &options).unwrap_or_else(|e| panic!("{}: {e}\n{}", what(), lowered.kernel()));
    (kernel, lowered, source)
}

fn check(template: &dyn Template, workload: &Workload, target: &Target, config: &Config, seed: u64) {
    let what = || format!("{} on {} for {} with {config} (seed {seed})", template.name(), workload.key(), target.name);
    let made = make(template, workload, target, config);
    let cost = template.cost(workload, target, config);
    assert!(cost > 0.0 && cost.is_finite(), "{}: cost {cost}", what());

    let inputs = sample::uneven_inputs(workload, &mut Rng::new(seed));
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let reference = template.reach(workload, config).reference(&in_f32(workload), &views);
    let values = made.values(workload, &inputs);
    for (stage, kernel) in [("scheduled", &made.kernel), ("lowered", made.lowered.kernel())] {
        let output =
            interpret(kernel, workload, &values).unwrap_or_else(|e| panic!("{}, {stage}: {e}\n{kernel}", what()));
        if let Err(mismatch) = reference.check(output) {
            panic!("{}, {stage}: {mismatch}\n{kernel}", what());
        }
    }
}

/// The templates for CUDA devices, or the one that is asked for.
fn cuda_templates(registry: &Registry) -> Vec<&dyn Template> {
    let only = std::env::var("KERNEL_GEN_TEMPLATE").ok();
    let [_, cuda] = kinds::by_kind(registry);
    cuda.into_iter().filter(|t| only.as_ref().is_none_or(|name| name == t.name())).collect()
}

/// The target of a seed.
pub(crate) fn target(seed: u64) -> &'static Target {
    Target::find(TARGETS[seed as usize % TARGETS.len()]).expect("a built-in target")
}

/// A random workload, bent towards what the template is for.
pub(crate) fn workload_for(template: &str, seed: u64) -> Workload {
    let mut workload = sample::workload(&mut Rng::new(seed));
    if template == "conv2d_tensorcore" || template == "plain_cuda" && seed.is_multiple_of(8) {
        let dtype = [DType::F16, DType::Bf16][seed as usize / 2 % 2];
        let op = Op::Conv2d(sample::conv2d_tiles(&mut Rng::new(seed)));
        return Workload { op, dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], ..workload };
    }
    if template == "plain_cuda" && seed % 8 == 3 {
        return sample::f8(&mut Rng::new(seed));
    }
    if let "wgmma_gemm" | "wgmma_conv2d" | "wgmma_window" = template {
        let (dtype, rng) = ([DType::F16, DType::Bf16][seed as usize / 2 % 2], &mut Rng::new(seed));
        let op = match template {
            "wgmma_gemm" if seed % 4 == 1 => Op::Conv2d(sample::pointwise_rows_of_eight(rng, 160)),
            "wgmma_gemm" => Op::Matmul(sample::matmul_rows_of_eight(rng, 160)),
            _ => Op::Conv2d(sample::conv2d_rows_of_eight(rng, 72)),
        };
        // Targets take turns, so that every one of them gets every kind.
        match (template, seed / TARGETS.len() as u64 % 3) {
            ("wgmma_window", _) => {}
            (_, 1) => return sample::on_tensor_cores(op, rng),
            (_, 2) => return sample::on_f8(op, rng),
            _ => {}
        }
        return Workload { op, dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], ..workload };
    }
    if let "mma_gemm" | "mma_conv2d" = template {
        // Pieces of 16 bytes, and of 2, 4 and 8; pixels of an odd number of channels are drawn again.
        let (dtype, rng) = ([DType::F16, DType::Bf16][seed as usize / 2 % 2], &mut Rng::new(seed));
        let op = match (template, seed % 3) {
            ("mma_gemm", 0) if seed.is_multiple_of(2) => sample::of_operator("broadcast_matmul", rng).op,
            ("mma_gemm", 0) => Op::Matmul(sample::matmul(rng)),
            ("mma_gemm", _) => Op::Matmul(sample::matmul_rows_of_eight(rng, 120)),
            (_, 0) => {
                let c = sample::conv2d(rng);
                let groups = 1 + seed as i64 / 6 % 3;
                // Of several groups each has as many channels.
                Op::Conv2d(Conv2d { layout: ConvLayout::Nhwc, groups, ci: c.ci * groups, co: c.co * groups, ..c })
            }
            _ => Op::Conv2d(sample::conv2d_rows_of_eight(rng, 56)),
        };
        if seed % 4 == 3 && !matches!(op, Op::BroadcastMatmul(_)) {
            return sample::on_words(op, rng);
        }
        return Workload { op, dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], ..workload };
    }
    if let "via_nhwc_wgmma_gemm" | "via_nhwc_wgmma_conv2d" | "via_nhwc_mma_conv2d" = template {
        let (dtype, rng) = ([DType::F16, DType::Bf16][seed as usize / 2 % 2], &mut Rng::new(seed));
        let c = match template {
            "via_nhwc_wgmma_gemm" => sample::pointwise_rows_of_eight(rng, 160),
            _ => sample::conv2d_rows_of_eight(rng, 72),
        };
        let layout = [ConvLayout::Nchw, ConvLayout::Hwcn][seed as usize / 4 % 2];
        let op = Op::Conv2d(Conv2d { layout, ..c });
        return Workload { op, dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], ..workload };
    }
    if let "attention_mma" | "attention_wgmma" | "attention_simt" = template {
        let half = [DType::F16, DType::Bf16][seed as usize / 2 % 2];
        let dtype = if template == "attention_simt" { DType::F32 } else { half };
        let op = Op::Attention(sample::attention(&mut Rng::new(seed), 100));
        return Workload { op, dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], ..workload };
    }
    if let "simt_planes" | "mma_planes" = template {
        let rng = &mut Rng::new(seed);
        let names = ["conv_transpose2d", "conv1d", "conv_transpose1d", "conv3d", "conv_transpose3d"];
        let op = match names.get(seed as usize / 4 % 7) {
            Some(name) => sample::of_operator(name, rng).op,
            None => Op::Conv2d(Conv2d { layout: ConvLayout::Nchw, ..sample::conv2d(rng) }),
        };
        let half = [DType::F16, DType::Bf16][seed as usize / 2 % 2];
        let (dtype, math) = if template == "mma_planes" { (half, Math::Fp32) } else { (DType::F32, Math::Strict) };
        return Workload { op, dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], math, ..workload };
    }
    if template == "elements_cuda" {
        let names: Vec<&str> = operator_names().collect();
        return sample::of_operator(names[seed as usize % names.len()], &mut Rng::new(seed));
    }
    if template == "rows_cuda" {
        let rng = &mut Rng::new(seed);
        let names = ["softmax", "layer_norm", "rms_norm", "log_softmax", "group_norm", "reduce_mean", "reduce_max"];
        let name = names[seed as usize % names.len()];
        let mut drawn = sample::of_operator(name, rng);
        if let Op::RowWise(rows) = &mut drawn.op {
            // Rows of several warps, and columns of whole vectors and others.
            rows.columns *= [1, 8, 40][seed as usize / 3 % 3];
        }
        return drawn;
    }
    if template == "columns_cuda" {
        let rng = &mut Rng::new(seed);
        let names = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_l1"];
        let mut drawn = sample::of_operator(names[seed as usize % names.len()], rng);
        if let Op::Reduce(of) = &mut drawn.op {
            let columns = *rng.pick(&[1, 2, 8]) * rng.between(1, 20);
            let shape = [rng.between(1, 3), rng.between(1, 300), columns];
            (of.input, of.combined) = (Dims::new(&shape).unwrap(), Dims::new(&[0, 1, 0]).unwrap());
        }
        return drawn;
    }
    if template == "conv2d_stem" {
        let dtype = [DType::F16, DType::Bf16][seed as usize / 2 % 2];
        workload = Workload { dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], ..workload };
        if let Op::Conv2d(c) = &mut workload.op {
            // Three of four in channels last; of few channels most.
            let layout = [ConvLayout::Nhwc, ConvLayout::Nchw][seed as usize % 4 / 3];
            *c = Conv2d { layout, groups: 1, ci: 1 + c.ci % 9, ..*c };
        }
    }
    if template == "pointwise_rows" {
        let (dtype, rng) = ([DType::F16, DType::Bf16][seed as usize / 2 % 2], &mut Rng::new(seed));
        let op = match seed % 3 {
            0 => Op::Matmul(Matmul { trans_a: false, batch: 1, ..sample::matmul_rows_of_eight(rng, 160) }),
            _ => Op::Conv2d(sample::pointwise_rows_of_eight(rng, 160)),
        };
        return Workload { op, dtype, out_dtype: [dtype, DType::F32][seed as usize % 2], ..workload };
    }
    if let "split_product" | "split_bf16" | "split_halves" = template {
        let rng = &mut Rng::new(seed);
        // Depths of all sizes, also below eight.
        let depth = |n: i64| n - seed as i64 / 2 % 8;
        let op = match seed % 3 {
            0 => {
                let m = sample::matmul_rows_of_eight(rng, 160);
                Op::Matmul(Matmul { k: depth(m.k), batch: 1, ..m })
            }
            _ => {
                let layout = [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn][seed as usize / 3 % 3];
                let c = sample::conv2d_rows_of_eight(rng, 72);
                Op::Conv2d(Conv2d { layout, ci: depth(c.ci), ..c })
            }
        };
        let math = [Math::Fp32, Math::Tf32][seed as usize / 4 % 2];
        return Workload { op, math, dtype: DType::F32, out_dtype: DType::F32, ..workload };
    }
    if template == "gemv_cuda" {
        let m = sample::matmul(&mut Rng::new(seed));
        // Reductions of whole vectors, of half ones, and of single elements.
        let k = m.k * [1, 4, 8, 64][seed as usize % 4];
        workload.op = match seed % 2 {
            0 => {
                let few = sample::few_bits(&mut Rng::new(seed));
                let load = few.group.min(16 * few.bits.in_byte());
                Op::MatmulNbits(MatmulNbits { k: (few.k + load - 1) / load * load, ..few })
            }
            _ => Op::Matmul(Matmul { m: 1 + m.m % 8, k, trans_a: m.trans_a && m.m % 8 == 0, ..m }),
        };
    }
    if template == "simt_integers" {
        let rng = &mut Rng::new(seed);
        let m = sample::matmul(rng);
        let m = Matmul { trans_a: false, trans_b: true, k: 4 * (1 + m.k % 40), ..m };
        return sample::without_zero_points(m, rng);
    }
    if let "simt_gemm" | "simt_conv2d" = template {
        workload = Workload { dtype: DType::F32, out_dtype: DType::F32, math: Math::Strict, ..workload };
        if template == "simt_gemm" {
            let rng = &mut Rng::new(seed);
            workload.op = match seed % 3 {
                0 => sample::of_operator("broadcast_matmul", rng).op,
                _ => Op::Matmul(sample::matmul(rng)),
            };
        }
    }
    if template == "splitk_pair" {
        workload.op = Op::DepthwisePointwise(sample::pair(&mut Rng::new(seed)));
    }
    if let Op::Conv2d(c) = &mut workload.op {
        match template {
            "conv2d_no_batching" => *c = Conv2d { layout: ConvLayout::Nchw, groups: 1, ..*c },
            "splitk_direct" => {
                let layout = [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn][seed as usize % 3];
                *c = Conv2d { layout, groups: 1, ..*c };
            }
            "simt_conv2d" => {
                let layout = [ConvLayout::Nhwc, ConvLayout::Hwcn][seed as usize % 2];
                let groups = if layout == ConvLayout::Nhwc { 1 + seed as i64 / 2 % 3 } else { 1 };
                *c = Conv2d { layout, groups, ci: c.ci * groups, co: c.co * groups, ..*c };
            }
            "conv2d_hwcn" => *c = Conv2d { layout: ConvLayout::Hwcn, groups: 1, ..*c },
            "winograd_conv2d" | "winograd_fused" => {
                let (layout, padding) = (ConvLayout::Nchw, c.padding.map(|p| p % 3));
                *c = Conv2d { layout, groups: 1, kh: 3, kw: 3, stride: [1, 1], dilation: [1, 1], padding, ..*c };
            }
            "depthwise_cuda" => {
                *c = Conv2d { layout: ConvLayout::Nchw, ci: c.ci.max(2), ..*c }.depthwise(1 + seed as i64 % 2);
            }
            "depthwise_direct" => *c = sample::depthwise(&mut Rng::new(seed)),
            _ => {}
        }
    }
    workload
}

/// What the interpreter can be asked to do; tiles of 16 x 16 make more of everything.
fn most_macs(template: &str) -> i64 {
    match template {
        "conv2d_tensorcore"
        | "wgmma_gemm"
        | "wgmma_conv2d"
        | "wgmma_window"
        | "mma_gemm"
        | "mma_conv2d"
        | "mma_planes"
        | "split_product"
        | "split_bf16"
        | "split_halves"
        | "via_nhwc_wgmma_gemm"
        | "via_nhwc_wgmma_conv2d"
        | "via_nhwc_mma_conv2d"
        | "winograd_conv2d"
        | "winograd_fused" => 2_000_000,
        _ => 200_000,
    }
}

/// One template, with its default and a few random configs, on `count` workloads that it takes.
fn sweep(template: &dyn Template, count: usize, configs: usize, mut f: impl FnMut(&Workload, &Target, &Config, u64)) {
    let first = number("KERNEL_GEN_SEED", 1);
    let count = number("KERNEL_GEN_WORKLOADS", count as u64) as usize;
    let configs = number("KERNEL_GEN_CONFIGS", configs as u64) as usize;
    let mut seen = 0;
    for seed in first..first + 400 * count as u64 {
        let mut workload = workload_for(template.name(), seed);
        let mut target = Target::find(TARGETS[seed as usize % TARGETS.len()]).expect("a built-in target");
        // The one template with instructions of its own for Volta's tensor cores, which multiply f16.
        if template.name() == "conv2d_tensorcore" && seed % 8 < 2 {
            target = Target::find(VOLTA).expect("a built-in target");
        }
        // Half of the workloads have operands that differ in magnitude, as far as the template has a class for them.
        let local = Workload { math: Math::Local, ..workload.clone() };
        if seed.is_multiple_of(2) && workload.math == Math::Fp32 && template.admits(&local, target).is_ok() {
            workload = local;
        }
        if workload.macs() > most_macs(template.name())
            || workload.validate().is_err()
            || template.admits(&workload, target).is_err()
        {
            continue;
        }
        let space = template.space(&workload, target).expect("it applies");
        let default = template.default_config(&workload, target).expect("it applies");
        let default = space
            .normalise(&default)
            .unwrap_or_else(|e| panic!("{} {} {}: {e}", template.name(), workload.key(), target.name));
        f(&workload, target, &default, seed);
        for (_, config) in space.sample(seed).take(configs) {
            f(&workload, target, &config, seed);
        }
        seen += 1;
        if seen == count {
            break;
        }
    }
    assert_eq!(seen, count, "{} takes too few of the random workloads", template.name());
}

#[test]
fn every_template_computes_what_the_reference_does() {
    let registry = Registry::builtin();
    let mut checked = BTreeMap::new();
    for template in cuda_templates(&registry) {
        let start = std::time::Instant::now();
        let kinds = if template.takes_f8() { 3 } else { 2 };
        sweep(template, kinds, 2, |w, t, config, seed| check(template, w, t, config, seed));
        checked.insert(template.name().to_string(), start.elapsed());
    }
    println!("time by template: {checked:?}");
    assert!(!checked.is_empty());
}

/// Threads of the system stand for those of a block, so only small launches are run.
#[test]
fn emitted_sources_run_as_cpp_and_compute_what_the_reference_does() {
    let registry = Registry::builtin();
    for template in cuda_templates(&registry) {
        // Of numbers, of integers, and of floats of eight bits; integers of `plain_cuda` are in `quantised`.
        let mut ran = [0; 3];
        let on_integers = template.takes_integers() && template.name() != "plain_cuda";
        // A ring's default does what its other sizes do, and the interpreter checks those.
        let ring = template.name().starts_with("wgmma") || template.name().starts_with("split_");
        let configs = if ring { 0 } else { 1 };
        sweep(template, if on_integers || template.takes_f8() { 30 } else { 4 }, configs, |w, target, config, seed| {
            let ran = &mut ran[if w.dtype.is_f8() { 2 } else { usize::from(w.is_quantised()) }];
            if *ran == 1 {
                return;
            }
            let made = make(template, w, target, config);
            let source = &made.source;
            let work = |l: &cuda::Launch| (l.block.iter().product::<u32>(), l.grid.iter().product::<u32>());
            // One block runs at a time, so blocks of a cluster would wait for ever.
            let alone = |l: &cuda::Launch| l.cluster == [1; 3];
            let small = |l: &cuda::Launch| work(l).0 <= 384 && work(l).0 * work(l).1 <= 16384 && alone(l);
            if !source.launches.iter().all(small) {
                return;
            }
            *ran += 1;
            let inputs = sample::uneven_inputs(w, &mut Rng::new(seed));
            let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
            let mut outputs = cuda_on_cpu::build(&made.kernel, source)
                .and_then(|program| program.run(&made.values(w, &inputs)))
                .unwrap_or_else(|e| panic!("{e}"));
            let params = w.params();
            let output = params.iter().find(|p| p.role == Role::Output).expect("every workload has an output");
            let output = outputs.remove(output.name).expect("the output is written");
            if let Err(mismatch) = template.reach(w, config).reference(&in_f32(w), &views).check(output) {
                panic!("{} on {} with {config}: {mismatch}\n{}", template.name(), w.key(), source.source);
            }
        });
        assert!(ran[0] > 0 || template.name() == "simt_integers", "{}", template.name());
        // A small launch of `wgmma_conv2d` on eight bits is rare; the interpreter and GPUs run those.
        let rare = template.name() == "wgmma_conv2d";
        assert!(!on_integers || ran[1] > 0 || rare, "{} on integers", template.name());
        assert!(!template.takes_f8() || ran[2] > 0 || rare, "{} on floats of eight bits", template.name());
    }
}

#[test]
fn every_emitted_source_compiles() {
    let registry = Registry::builtin();
    let mut requests = vec![];
    for template in cuda_templates(&registry) {
        sweep(template, 1, 1, |w, target, config, _| {
            let source = make(template, w, target, config).source;
            let name = format!("{} {} {config}", template.name(), w.key());
            // No compiler of today makes code for Volta; what is written for it compiles for later devices.
            let arch = if target.name == VOLTA { Arch { capability: 75, specific: false } } else { source.arch };
            requests.push(Request::new(name, source.source, arch));
        });
    }
    println!("{} sources", requests.len());
    let archs = TARGETS.map(|t| Arch::parse(t).expect("an architecture"));
    let found = toolchain::find(&Environment::of_process(), &archs, Missing::Embed).unwrap_or_else(|e| panic!("{e}"));
    let Found::Compiler(compiler) = found else {
        println!("[SKIP] no NVRTC, nvcc or clang for CUDA: set KERNEL_GEN_NVRTC, or see `kernel-gen doctor`");
        return;
    };
    let options = Options { lowest_ptx: false, ..Options::default() };
    let made = compiler.compile_all(&requests, &options, None);
    let made = made.unwrap_or_else(|errors| panic!("{}", errors.iter().map(|e| e.to_string()).collect::<String>()));
    println!("{} sources compiled by {}", made.len(), compiler.name());
}

#[test]
fn templates_of_one_kind_of_device_refuse_the_other() {
    let registry = Registry::builtin();
    let mut rng = Rng::new(3);
    for _ in 0..200 {
        let workload = sample::workload(&mut rng);
        let on = |name: &str| -> Vec<String> {
            let target = Target::find(name).expect("a built-in target");
            registry.applicable(&workload, target).map(|t| t.name().to_string()).collect()
        };
        let (cpu, cuda) = (on("x86-64-v3"), on("sm_80"));
        assert!(!cpu.is_empty() && !cuda.is_empty(), "{}", workload.key());
        assert!(cpu.iter().all(|t| !cuda.contains(t)), "{cpu:?} {cuda:?}");
    }
}
