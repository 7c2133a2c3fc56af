//! Slices of larger tensors: kernels that read their input from one and write their output into one give what they give for dense
//! tensors, read nothing else, and leave everything else as it was.

use crate::cpu_templates::execute;
use crate::drawn;
use kernel_gen::emit::c::Isa;
use kernel_gen::ir::{Access, DType};
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Matmul, Role, Slices, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What stands beside a slice of a type.
fn untouched(dtype: DType) -> f64 {
    if dtype.is_byte() { 77.0 } else { -3072.0 }
}

/// The kernel of a template's default, with slices; nothing where it cannot have them.
fn check(template: &dyn Template, w: &Workload, slices: Slices, target: &Target, seed: u64) -> Option<()> {
    let what = || format!("{} on {} for {} with {slices:?} (seed {seed})", template.name(), w.key(), target.name);
    let config = template.default_config(w, target).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let mut scheduled = template.schedule(w, target, &config).unwrap_or_else(|e| panic!("{}: {e}", what()));
    slices.lay(w, &mut scheduled.schedule.kernel).ok()?;
    let output = *scheduled.schedule.kernel.params.last()?;
    let buffer = scheduled.schedule.kernel.buffer_mut(output);
    // The harness fills with poison what is written everywhere.
    buffer.access = Access::ReadWrite;
    let beside = untouched(w.out_dtype);
    let whole_output = vec![beside; buffer.extent_elements() as usize];
    let kernel = &scheduled.schedule.kernel;
    let inputs = sample::uneven_inputs(w, &mut Rng::new(seed));
    let params = w.params();
    // Whatever reads beside a slice shows it.
    let laid = params.iter().zip(&inputs).zip(&kernel.params).map(|((param, data), buffer)| {
        if param.role != Role::Input {
            return data.clone();
        }
        let buffer = kernel.buffer(*buffer);
        let bytes = if buffer.dtype.is_word() && param.dtype.is_byte() { 4 } else { 1 };
        let mut whole = vec![untouched(param.dtype); bytes * buffer.extent_elements() as usize];
        slices.places(w, param).zip(data).for_each(|(at, value)| whole[at as usize] = *value);
        whole
    });
    let laid: Vec<Vec<f64>> = laid.chain([whole_output]).collect();
    let output = execute(&scheduled, w, target, &laid).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let places: Vec<usize> = slices.places(w, params.last()?).map(|at| at as usize).collect();
    let own: Vec<f64> = places.iter().map(|at| output[*at]).collect();
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    if let Err(mismatch) = template.reach(w, &config).reference(w, &views).check(own) {
        panic!("{}: {mismatch}\n{kernel}", what());
    }
    let inside: BTreeSet<usize> = places.into_iter().collect();
    let written = (0..output.len()).find(|at| !inside.contains(at) && output[*at] != beside);
    assert_eq!(written, None, "{}: it wrote beside its slice\n{kernel}", what());
    Some(())
}

/// Networks' kinds: concatenations of convolutions in both orders, of several images, and of products and windows.
fn declared() -> Vec<Workload> {
    let bias = [Epilogue::Bias, Epilogue::Relu];
    let nhwc = |c: Conv2d| Conv2d { layout: ConvLayout::Nhwc, ..c };
    vec![
        Workload::f32(Conv2d::nchw(2, 16, 14, 14, 24, 1, 1, 0)).with_epilogue(&bias),
        Workload::f32(Conv2d::nchw(2, 16, 14, 14, 32, 3, 1, 1)).with_epilogue(&bias),
        Workload::f32(Conv2d::nchw(3, 8, 15, 15, 16, 3, 2, 1)).with_epilogue(&bias),
        Workload::f32(Conv2d::nchw(2, 16, 12, 12, 16, 3, 1, 1).depthwise(1)),
        Workload::f32(nhwc(Conv2d::nchw(2, 16, 9, 9, 24, 3, 1, 1))).with_epilogue(&bias),
        Workload::f32(Matmul::new(33, 48, 40)),
        sample::of_operator("max_pool2d", &mut Rng::new(3)),
    ]
}

#[test]
fn slices_are_read_and_written_like_dense_tensors() {
    let here: Vec<&str> = ["x86-64-v4", "x86-64-v3", "x86-64", "aarch64"]
        .into_iter()
        .filter(|t| Isa::from_name(t).is_some_and(Isa::runs_here))
        .take(1)
        .collect();
    let Some(target) = here.first().and_then(|name| Target::find(name)) else {
        return println!("[SKIP] no CPU target");
    };
    let registry = Registry::builtin();
    let all: Vec<(u64, Workload)> = (1..).zip(declared().into_iter().chain((1..=17).map(drawn::workload))).collect();
    let next = AtomicUsize::new(0);
    let some = || {
        let (mut laid, mut refused) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
        while let Some((seed, w)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let slices = sample::slices(w, &mut Rng::new(*seed));
            let templates = registry.applicable(w, target).filter(|_| !slices.is_empty());
            for template in templates {
                let counts = match check(template, w, slices, target, *seed) {
                    Some(()) => &mut laid,
                    None => &mut refused,
                };
                *counts.entry(template.name().to_string()).or_default() += 1;
            }
        }
        (laid, refused)
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut laid, mut refused) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..processors).map(|_| scope.spawn(some)).collect();
        for (own, others) in running.into_iter().map(|thread| thread.join().expect("all slices are right")) {
            own.into_iter().for_each(|(name, count)| *laid.entry(name).or_default() += count);
            others.into_iter().for_each(|(name, count)| *refused.entry(name).or_default() += count);
        }
    });
    println!("laid: {laid:?}; refused: {refused:?}");
    // Only planes of all images in one dimension, as resizing has them, cannot be laid, nor bytes that are no whole words.
    let may_refuse = |name: &String| ["resize_cpu", "integers_cpu"].contains(&name.as_str());
    assert!(laid.len() >= 12 && refused.keys().all(may_refuse), "{laid:?} {refused:?}");
}
