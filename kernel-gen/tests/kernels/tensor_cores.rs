//! The tutorial's schedule for tensor cores and the template of the same layer, on every generation that has them: what the
//! interpreter computes, what is emitted computes as C++, and that it compiles.

#[path = "../../../examples/tutorials/src/by_schedule.rs"]
mod by_schedule;

use crate::checked;
use crate::cuda_on_cpu;
use by_schedule::opt_conv_tensorcore;
use kernel_gen::emit::cuda::{Arch, CudaOptions, CudaSource, emit};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::{DType, Kernel};
use kernel_gen::lower::lower_for;
use kernel_gen::model;
use kernel_gen::records::BestRecords;
use kernel_gen::target::Target;
use kernel_gen::templates::cuda::conv2d_tensorcore::{Conv2dTensorcore, tutorial};
use kernel_gen::templates::{Registry, Template};
use kernel_gen::toolchain::cuda::{CudaError, Environment, Found, Missing, Options, Request, find};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Workload, reference};

/// One target of each generation of instructions.
const GENERATIONS: [&str; 3] = ["sm_70", "sm_75", "sm_80"];

/// A convolution on tiles of 16 x 16, with an output in a type.
fn tiles(c: Conv2d, output: DType) -> Workload {
    let c = Conv2d { layout: ConvLayout::NhwcNc(16), ..c };
    Workload { out_dtype: output, ..Workload::f32(c).with_dtype(DType::F16) }
}

/// The smallest layer that the tutorial's tiling divides: one block for each of its two pixels.
fn smallest(sums: DType) -> Workload {
    tiles(Conv2d::nchw(128, 32, 2, 1, 128, 3, 1, 1), sums)
}

fn emitted(workload: &Workload, target: &str) -> CudaSource {
    let target = Target::find(target).expect("a built-in target");
    let schedule = opt_conv_tensorcore(workload).unwrap_or_else(|e| panic!("{e}"));
    cuda(schedule.kernel, target)
}

fn cuda(kernel: Kernel, target: &Target) -> CudaSource {
    let lowered = lower_for(kernel, target).unwrap_or_else(|e| panic!("{}: {e}", target.name));
    let arch = Arch::of(target).expect("a CUDA target");
    let options = CudaOptions { arch, symbol: "kernel".into(), comment: "A test.".into(), min_blocks: None };
    emit(&lowered, &options).unwrap_or_else(|e| panic!("{}: {e}", target.name))
}

/// What the outputs may be off by: in `f16` sums are rounded once a tile of 16 products, 18 times here, each time by at most
/// 2^-11 of the sum so far, which is no larger than a few times the largest sum.
fn close(workload: &Workload, want: &[f64], got: &[f64], what: &str) {
    let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let allowed = if workload.out_dtype == DType::F16 { 18.0 * 2.0f64.powi(-11) } else { 1e-5 } * largest;
    assert_eq!(want.len(), got.len(), "{what}");
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        assert!(
            (want - got).abs() <= allowed,
            "{what}, element {i}: {got} instead of {want}, off by more than {allowed}"
        );
    }
}

#[test]
fn the_tutorials_schedule_computes_the_layer_on_every_generation() {
    for sums in [DType::F32, DType::F16] {
        let workload = smallest(sums);
        let inputs = sample::inputs(&workload, &mut Rng::new(5));
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let want = reference(&workload, &views);
        let params = workload.params();
        let values: Values = params.iter().zip(inputs).map(|(p, v)| (p.name.to_string(), v)).collect();
        let schedule = opt_conv_tensorcore(&workload).unwrap_or_else(|e| panic!("{e}"));
        let kernel = kernel_gen::lower::insert_barriers::insert_barriers(schedule.kernel);
        let out = interp::run(&kernel, &values, Mode::Declared).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
        close(&workload, &want, &out["y"], &format!("scheduled, sums in {sums}"));
        for target in GENERATIONS {
            let source = emitted(&workload, target);
            let out = cuda_on_cpu::build(&kernel, &source).and_then(|program| program.run(&values));
            let out = out.unwrap_or_else(|e| panic!("{target}: {e}"));
            close(&workload, &want, &out["y"], &format!("emitted for {target}, sums in {sums}"));
        }
    }
}

/// As the tutorial has them: each primitive's loops are there to be printed, scalar before `tensorize` and tiles after it.
#[test]
fn the_schedule_is_printed_before_and_after_each_intrinsic() {
    for sums in [DType::F32, DType::F16] {
        let s = opt_conv_tensorcore(&smallest(sums)).unwrap_or_else(|e| panic!("{e}"));
        let steps: Vec<_> = s.trace.iter().collect();
        let load = ("load_matrix_sync_m16n16_f16".to_string(), "move ");
        let store = (format!("store_matrix_sync_m16n16_{sums}"), "move y[");
        let product = (format!("mma_sync_m16n16k16_f16_{sums}"), "mma.warp acc[");
        let at: Vec<usize> = (0..steps.len()).filter(|i| steps[*i].name == "tensorize").collect();
        assert_eq!(at.len(), 4);
        for (i, (name, made)) in at.iter().zip([load.clone(), load, store, product]) {
            assert!(steps[*i].args.iter().any(|a| a.contains(&name)), "{name}: {:?}", steps[*i].args);
            let [before, after] = [i - 1, *i].map(|i| steps[i].kernel.to_string());
            assert!(after.matches(made).count() > before.matches(made).count(), "{made}\n{before}\n{after}");
            assert!(before.lines().count() > after.lines().count(), "loops become a statement:\n{before}\n{after}");
        }
        let last = s.kernel.to_string();
        for part in ["fill acc[", "mma.warp acc[", "move y["] {
            assert!(last.contains(part), "{part}\n{last}");
        }
    }
}

#[test]
fn the_template_computes_epilogues_where_no_thread_knows_its_sums() {
    let c = Conv2d::nchw(32, 32, 3, 2, 32, 3, 1, 1);
    let config = "block_row_warps=2 block_col_warps=1 warp_row_tiles=1 warp_col_tiles=2 chunk=1 vector=4";
    let epilogue = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];
    // Sums that nothing is done to go to the output as they are; the others by way of shared memory.
    let text = checked::check(&Conv2dTensorcore, &tiles(c, DType::F32), "sm_70", config);
    assert!(text.contains("wmma_store_sums_f32_global(y") && !text.contains(" CS["), "{text}");
    for w in [
        tiles(c, DType::F16),
        tiles(c, DType::F32).with_epilogue(&epilogue),
        tiles(c, DType::F16).with_epilogue(&epilogue),
    ] {
        let text = checked::check(&Conv2dTensorcore, &w, "sm_70", config);
        assert!(text.contains("wmma_store_sums_f32(CS"), "{text}");
        let text = checked::check(&Conv2dTensorcore, &w, "sm_75", config);
        assert!(text.contains("m16n8k8") && !text.contains("wmma"), "{text}");
    }
}

#[test]
fn volta_multiplies_the_tutorials_layer_by_tensor_cores() {
    let (registry, none) = (Registry::builtin(), BestRecords::default());
    let target = Target::find("sm_70").expect("a built-in target");
    let layer = Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1);
    for output in [DType::F32, DType::F16] {
        let choice = model::choose(&registry, &tiles(layer, output), target, &none, &model::Options::default())
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(choice.template, "conv2d_tensorcore");
    }
}

/// NVRTC 13 makes nothing for Volta, so what is emitted for it is compiled for what came later: `wmma` is there, too.
#[test]
fn every_form_compiles_for_its_generation_or_the_oldest_that_compilers_know() {
    let forms = [
        ("sm_70", "sm_75"),
        ("sm_70", "sm_80"),
        ("sm_70", "sm_90a"),
        ("sm_70", "sm_120"),
        ("sm_75", "sm_75"),
        ("sm_80", "sm_80"),
        ("sm_90a", "sm_90a"),
    ];
    let archs = ["sm_75", "sm_80", "sm_90a", "sm_120"].map(|name| name.parse().expect("an architecture"));
    let compiler = match find(&Environment::of_process(), &archs, Missing::Refuse) {
        Ok(Found::Compiler(compiler)) => *compiler,
        Ok(_) | Err(CudaError::NoCompiler { .. }) => {
            println!("[SKIP] no NVRTC: what is emitted for tensor cores is not compiled");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut requests = vec![];
    for sums in [DType::F32, DType::F16] {
        for (form, code) in forms {
            let source = emitted(&smallest(sums), form);
            let what = format!("{form} as {code}, sums in {sums}");
            requests.push(Request::new(what, source.source, code.parse().expect("an architecture")));
        }
    }
    // The template, at the tutorial's config and at its own, for the tutorial's layer.
    let (volta, layer) = (Target::find("sm_70").expect("a target"), Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1));
    let relu = tiles(layer, DType::F16).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]);
    for workload in [tiles(layer, DType::F32), relu] {
        let default = Conv2dTensorcore.default_config(&workload, volta).expect("it applies");
        // With an epilogue, sums need shared memory that the tutorial's config has used up.
        let configs = if workload.epilogue.is_empty() { vec![tutorial(), default] } else { vec![default] };
        for config in configs {
            let scheduled = Conv2dTensorcore.schedule(&workload, volta, &config).unwrap_or_else(|e| panic!("{e}"));
            let source = cuda(scheduled.schedule.kernel, volta);
            let what = format!("sm_70 as sm_75, template {config}");
            requests.push(Request::new(what, source.source, "sm_75".parse().expect("an architecture")));
        }
    }
    let options = Options { lowest_ptx: false, ..Options::default() };
    for (request, made) in requests.iter().zip(compiler.compile_each(&requests, &options, None)) {
        let made = made.unwrap_or_else(|e| panic!("{}: {e}", request.kernel));
        let has = |part: &str| made.ptx.contains(part);
        let wmma = request.kernel.starts_with("sm_70");
        assert_eq!(has("wmma.mma.sync.aligned.row.row.m16n16k16"), wmma, "{}", request.kernel);
        assert_eq!(has("mma.sync.aligned.m16n8k"), !wmma, "{}", request.kernel);
        assert!(!made.log.kernels.iter().any(|k| k.spills()), "{} spills", request.kernel);
        println!("{}: {} registers", request.kernel, made.log.kernels[0].registers);
    }
}
