//! The split reduction of small convolutions, knob by knob: what the interpreter computes stays within the derived bound
//! of the `f64` reference, whatever is split how.

use kernel_gen::analysis::verify::verify;
use kernel_gen::emit::cuda::{self, Arch, CudaOptions};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::Kernel;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, Lowered, lower};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::splitk::SplitkDirect;
use kernel_gen::workload::bound::reference_with_bounds;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, Epilogue, Workload};

fn lowered(kernel: Kernel, target: &Target) -> (Kernel, Lowered) {
    let kernel = insert_barriers(kernel);
    let verified = verify(kernel.clone(), &target.limits()).unwrap_or_else(|faults| {
        let faults: Vec<String> = faults.iter().map(|f| f.to_string()).collect();
        panic!("{}\n{kernel}", faults.join("\n"))
    });
    (kernel, lower(verified, &LowerOptions::cuda()).expect("it was verified"))
}

fn source(lowered: &Lowered, target: &Target) -> String {
    let options = CudaOptions {
        arch: Arch::of(target).expect("a CUDA target"),
        symbol: "kernel".into(),
        comment: String::new(),
        min_blocks: None,
    };
    cuda::emit(lowered, &options).unwrap_or_else(|e| panic!("{e}\n{}", lowered.kernel())).source
}

/// Checks a config; gives the emitted source.
fn check(c: Conv2d, epilogue: &[Epilogue], target: &str, config: &str) -> String {
    let workload = Workload::f32(c).with_epilogue(epilogue);
    let target = Target::find(target).expect("a built-in target");
    let config = Config::parse(config).expect("a config");
    let space = SplitkDirect.space(&workload, target).expect("it applies");
    let config = space.normalise(&config).unwrap_or_else(|e| panic!("{config}: {e}"));
    let scheduled = SplitkDirect.schedule(&workload, target, &config).expect("it is in the space");
    let inputs = sample::inputs(&workload, &mut Rng::new(7));
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let mut values: Values = workload.params().iter().zip(&inputs).map(|(p, v)| (p.name.into(), v.clone())).collect();
    for pack in scheduled.packs {
        let (_, pack_lowered) = lowered(pack.kernel, target);
        let original = values[&pack.param].clone();
        let given = Values::from([(pack.param.clone(), original)]);
        let mut packed = interp::run(pack_lowered.kernel(), &given, Mode::Declared).expect("it packs");
        values.insert(pack.param, packed.remove("packed").expect("its output"));
    }
    let (kernel, low) = lowered(scheduled.schedule.kernel, target);
    let reference = reference_with_bounds(&workload, &views);
    for (stage, kernel) in [("scheduled", &kernel), ("lowered", low.kernel())] {
        let mut out =
            interp::run(kernel, &values, Mode::Declared).unwrap_or_else(|e| panic!("{config}, {stage}: {e}\n{kernel}"));
        let y = out.remove("y").expect("the output");
        if let Err(mismatch) = reference.check(y) {
            panic!("{config}, {stage}: {mismatch}\n{kernel}");
        }
    }
    source(&low, target)
}

fn config(tile: [i64; 2], lanes: i64, channels: i64, warps: i64, cluster: i64, step: i64, stages: i64) -> String {
    let [h, w] = tile;
    format!(
        "tile_h={h} tile_w={w} lanes={lanes} channels={channels} warps={warps} cluster={cluster} step={step} stages={stages}"
    )
}

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

#[test]
fn a_whole_map_is_reduced_by_a_cluster() {
    let c = Conv2d::nchw(1, 32, 7, 7, 40, 3, 1, 1);
    let text = check(c, &EPILOGUE, "sm_90a", &config([7, 7], 32, 1, 4, 4, 1, 2));
    assert!(text.contains("store_at(") && text.contains("__cluster_dims__(4, 1, 1)"), "{text}");
    // Sums are declared, cleared, and stored; of the 441 products of a channel those with the padding are left out.
    assert_eq!(text.matches("acc_").count(), 49 + 49 + 361 + 49, "{text}");
}

#[test]
fn rings_turn_where_the_reduction_is_longer() {
    check(Conv2d::nchw(1, 24, 5, 5, 32, 3, 1, 1), &[], "sm_90a", &config([5, 4], 32, 1, 2, 2, 1, 3));
    check(Conv2d::nchw(1, 24, 5, 5, 32, 3, 1, 1), &[], "sm_80", &config([5, 4], 32, 1, 2, 1, 2, 2));
}

#[test]
fn tiles_need_not_divide_the_map_nor_warps_the_channels() {
    check(Conv2d::nchw(2, 13, 9, 10, 70, 3, 1, 1), &EPILOGUE, "sm_90a", &config([4, 4], 32, 2, 2, 2, 1, 2));
    check(Conv2d::nchw(1, 7, 9, 6, 33, 1, 2, 0), &EPILOGUE, "sm_80", &config([2, 2], 8, 4, 1, 1, 1, 1));
}

#[test]
fn groups_of_lanes_split_the_reduction_too() {
    let c = Conv2d::nchw(1, 40, 7, 7, 20, 3, 1, 1);
    check(c, &EPILOGUE, "sm_90a", &config([7, 7], 8, 1, 2, 2, 1, 1));
    check(c, &EPILOGUE, "sm_80", &config([4, 7], 4, 2, 2, 1, 1, 2));
    check(Conv2d::nchw(1, 19, 6, 6, 16, 1, 1, 0), &[], "sm_90a", &config([2, 4], 8, 2, 1, 4, 1, 2));
}

#[test]
fn strides_and_dilation_skip_pixels() {
    check(Conv2d::nchw(1, 8, 14, 14, 32, 3, 2, 1), &[Epilogue::Relu6], "sm_90a", &config([7, 7], 32, 1, 2, 2, 2, 1));
    let dilated =
        Conv2d { dilation: [2, 3], padding: [2, 3, 1, 2], stride: [1, 2], ..Conv2d::nchw(1, 6, 11, 12, 32, 3, 1, 0) };
    check(dilated, &[Epilogue::Scale], "sm_90a", &config([4, 2], 32, 1, 2, 1, 1, 2));
}
