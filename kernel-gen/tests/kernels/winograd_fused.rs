//! Winograd convolutions of CUDA in one launch, knob by knob: what the interpreter computes stays within the derived bound of
//! the `f64` reference, whatever does not divide what.

use crate::checked;
use crate::structure;
use kernel_gen::analysis::verify::verify;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::winograd::fused::WinogradFused;
use kernel_gen::workload::{Conv2d, Epilogue, Workload};

const EPILOGUE: [Epilogue; 3] = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];

fn config([channels, tiles]: [i64; 2], together: i64) -> String {
    format!("block_channels={channels} block_tiles={tiles} together={together}")
}

fn check(workload: &Workload, target: &str, config: &str) -> String {
    checked::check(&WinogradFused, workload, target, config)
}

#[test]
fn odd_maps_and_channels_fill_neither_tiles_nor_blocks() {
    let w = Workload::f32(Conv2d::nchw(2, 11, 9, 7, 37, 3, 1, 1)).with_epilogue(&EPILOGUE);
    let text = check(&w, "sm_90a", &config([64, 32], 4));
    assert_eq!(text.matches("__global__").count(), 1, "{text}");
    check(&w, "sm_80", &config([32, 32], 4));
}

#[test]
fn any_padding_below_three() {
    for padding in [0, 2] {
        check(&Workload::f32(Conv2d::nchw(1, 5, 10, 13, 32, 3, 1, padding)), "sm_90a", &config([32, 32], 4));
    }
    let uneven = Conv2d { padding: [2, 0, 1, 2], ..Conv2d::nchw(2, 9, 8, 8, 33, 3, 1, 0) };
    check(&Workload::f32(uneven), "sm_80", &config([32, 64], 2));
}

#[test]
fn steps_in_even_and_odd_numbers() {
    for ci in [8, 16, 24] {
        let w = Workload::f32(Conv2d::nchw(3, ci, 8, 8, 64, 3, 1, 1)).with_epilogue(&[Epilogue::Bias, Epilogue::Relu6]);
        check(&w, "sm_90a", &config([64, 32], 4));
        let kernel = structure::lowered(&WinogradFused, &w, "sm_90a", &config([64, 32], 4));
        let vectors = structure::vectors(&kernel);
        for access in ["load weights x4", "load even x4", "store products x4", "store y x2"] {
            assert!(vectors.contains(access), "{access}: {vectors:?}");
        }
        // A tile of an odd step, where there is one.
        assert_eq!(vectors.contains("load odd x4"), ci > 8, "{vectors:?}");
        if ci == 16 {
            // The weights of the second step come while the first is multiplied; between the two is one wait.
            let order = structure::order(&kernel).join(", ");
            let steps = "copy weights, commit, wait 0, barrier, loop, copy weights, sum sums, end, \
                         commit, wait 0, barrier, loop, sum sums, end, ";
            assert!(order.starts_with(steps), "{order}");
        }
    }
    check(&Workload::f32(Conv2d::nchw(1, 20, 8, 10, 64, 3, 1, 1)), "sm_80", &config([64, 32], 2));
}

#[test]
fn there_is_a_block_for_every_device_and_size() {
    let takes = |c: Conv2d| {
        let w = Workload::f32(c);
        let taking = Target::all().iter().filter(|t| WinogradFused.applies(&w, t).is_ok());
        let found = taking.map(|t| WinogradFused.default_config(&w, t).unwrap_or_else(|e| panic!("{}: {e}", t.name)));
        assert!(found.count() > 4);
    };
    takes(Conv2d::nchw(1, 1, 2, 2, 1, 3, 1, 1));
    takes(Conv2d::nchw(256, 64, 224, 224, 64, 3, 1, 1));
}

#[test]
fn blocks_of_whole_layers_are_shown_to_write_every_output_once() {
    let target = Target::find("sm_90a").expect("a built-in target");
    for (channels, side) in [(64, 56), (512, 7)] {
        let w = Workload::f32(Conv2d::nchw(64, channels, side, side, channels, 3, 1, 1)).with_epilogue(&EPILOGUE);
        let space = WinogradFused.space(&w, target).expect("it applies");
        for config in (0..space.range_len()).filter_map(|at| space.get(at)) {
            let scheduled = WinogradFused.schedule(&w, target, &config).expect("it is in the space");
            if let Err(faults) = verify(insert_barriers(scheduled.schedule.kernel), &target.limits()) {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                panic!("{channels} x {side} x {side}, {config}: {}", faults.join("\n"));
            }
        }
    }
}
