//! One config of a CUDA template against the `f64` reference.

use kernel_gen::analysis::verify::verify;
use kernel_gen::emit::cuda::{self, Arch, CudaOptions};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::Kernel;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, Lowered, lower};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::toolchain::values::words;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Math, Workload};

/// Verifies a kernel; as scheduled, with its barriers, and as lowered.
pub(crate) fn lowered(kernel: Kernel, target: &Target) -> (Kernel, Lowered) {
    let kernel = insert_barriers(kernel);
    let verified = |kernel: &Kernel| {
        verify(kernel.clone(), &target.limits()).unwrap_or_else(|faults| {
            let faults: Vec<String> = faults.iter().map(|f| f.to_string()).collect();
            panic!("{}\n{kernel}", faults.join("\n"))
        })
    };
    let lowered = lower(verified(&kernel), &LowerOptions::of(target)).expect("it was verified");
    verified(lowered.kernel());
    (kernel, lowered)
}

/// Checks a config of a template, as scheduled and as lowered; gives the emitted source.
pub(crate) fn check(template: &dyn Template, workload: &Workload, target: &str, config: &str) -> String {
    check_inputs(template, workload, target, config, &sample::uneven_inputs(workload, &mut Rng::new(7)))
}

/// [`check`] with given inputs, in the order of the workload's parameters.
pub(crate) fn check_inputs(
    template: &dyn Template,
    workload: &Workload,
    target: &str,
    config: &str,
    inputs: &[Vec<f64>],
) -> String {
    check_error(template, workload, target, config, inputs).0
}

/// [`check_inputs`], and the largest share of its bound that an element's error takes.
pub(crate) fn check_error(
    template: &dyn Template,
    workload: &Workload,
    target: &str,
    config: &str,
    inputs: &[Vec<f64>],
) -> (String, f64) {
    let target = Target::find(target).expect("a built-in target");
    let config = Config::parse(config).expect("a config");
    let space = template.space(workload, target).expect("it applies");
    let config = space.normalise(&config).unwrap_or_else(|e| panic!("{config}: {e}"));
    let scheduled = template.schedule(workload, target, &config).expect("it is in the space");
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let mut values: Values = workload.params().iter().zip(inputs).map(|(p, v)| (p.name.into(), v.clone())).collect();
    for pack in scheduled.packs {
        let (_, pack_lowered) = lowered(pack.kernel, target);
        let given = Values::from([(pack.param.clone(), values[&pack.param].clone())]);
        let mut packed = interp::run(pack_lowered.kernel(), &given, Mode::Declared).expect("it packs");
        values.insert(pack.param, packed.remove("packed").expect("its output"));
    }
    let (kernel, low) = lowered(scheduled.schedule.kernel, target);
    in_words(workload, &kernel, &mut values);
    let reference = template.reach(workload, &config).reference(&in_f32(workload), &views);
    let mut worst = 0.0_f64;
    for (stage, kernel) in [("scheduled", &kernel), ("lowered", low.kernel())] {
        let mut out =
            interp::run(kernel, &values, Mode::Declared).unwrap_or_else(|e| panic!("{config}, {stage}: {e}\n{kernel}"));
        let y = workload.params().pop().and_then(|p| out.remove(p.name)).expect("the output");
        let share = reference.check(y).unwrap_or_else(|e| panic!("{config}, {stage}: {e}\n{kernel}"));
        worst = worst.max(share);
    }
    let arch = Arch::of(target).expect("a CUDA target");
    let options = CudaOptions { arch, symbol: "kernel".into(), comment: String::new(), min_blocks: None };
    (cuda::emit(&low, &options).unwrap_or_else(|e| panic!("{e}\n{}", low.kernel())).source, worst)
}

/// A workload whose bounds are those of sums in `f32`: of floats of eight bits a tensor core's are wider, which nothing is that runs here.
pub(crate) fn in_f32(workload: &Workload) -> Workload {
    let math = if workload.dtype.is_f8() { Math::Strict } else { workload.math };
    Workload { math, ..workload.clone() }
}

/// Puts bytes that a kernel reads in words into words; what is packed already is in words.
pub(crate) fn in_words(workload: &Workload, kernel: &Kernel, values: &mut Values) {
    for (p, place) in workload.params().iter().zip(&kernel.params) {
        let Some(given) = values.get_mut(p.name) else { continue };
        let buffer = kernel.buffer(*place);
        let unpacked = given.len() as i64 == 4 * buffer.shape.iter().product::<i64>();
        if buffer.dtype.is_word() && p.dtype.is_byte() && unpacked {
            *given = words(p.dtype, given);
        }
    }
}
