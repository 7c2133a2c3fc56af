//! Every CPU template on random workloads with random configs: the scheduled kernel, run by the interpreter in the
//! declared precision, stays within the derived bound of the f64 reference.

use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Scheduled, Template};
use kernel_gen::workload::bound::reference_with_bounds;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Role, Workload};

/// Runs a scheduled kernel, packing what it wants packed, and gives its output.
fn interpret(scheduled: &Scheduled, workload: &Workload, inputs: &[Vec<f64>]) -> Result<Vec<f64>, String> {
    let params = workload.params();
    let mut values: Values = params.iter().zip(inputs).map(|(p, data)| (p.name.to_string(), data.clone())).collect();
    for pack in &scheduled.packs {
        let kernel = &pack.kernel;
        let [from, to] = kernel.params[..] else { return Err("a pack kernel has two parameters".into()) };
        let original = values.remove(&pack.param).ok_or("a pack names a parameter")?;
        let given = Values::from([(kernel.buffer(from).name.clone(), original)]);
        let mut packed = interp::run(kernel, &given, Mode::Declared).map_err(|e| format!("pack: {e}\n{kernel}"))?;
        let packed = packed.remove(&kernel.buffer(to).name).ok_or("the packed tensor")?;
        values.insert(pack.param.clone(), packed);
    }
    let kernel = &scheduled.schedule.kernel;
    let mut outputs = interp::run(kernel, &values, Mode::Declared).map_err(|e| format!("{e}\n{kernel}"))?;
    let output = params.iter().find(|p| p.role == Role::Output).ok_or("an output")?;
    outputs.remove(output.name).ok_or("the output".into())
}

fn check(template: &dyn Template, workload: &Workload, target: &Target, config: &Config, seed: u64) {
    let what = || format!("{} on {} for {} with {config}", template.name(), workload.key(), target.name);
    let scheduled = template.schedule(workload, target, config).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let inputs = sample::inputs(workload, &mut Rng::new(seed));
    let output = interpret(&scheduled, workload, &inputs).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    if let Err(mismatch) = reference_with_bounds(workload, &views).check(output) {
        panic!("{}: {mismatch}\n{}", what(), scheduled.schedule.kernel);
    }
}

#[test]
fn scheduled_kernels_equal_the_reference() {
    let registry = Registry::builtin();
    let workloads: u64 = std::env::var("KERNEL_GEN_WORKLOADS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let first: u64 = std::env::var("KERNEL_GEN_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut checked = std::collections::BTreeMap::<String, usize>::new();
    for seed in first..first + workloads {
        let mut rng = Rng::new(seed);
        let workload = sample::workload(&mut rng);
        let target = rng.pick(&["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"]);
        let target = Target::find(target).expect("a built-in target");
        for template in registry.applicable(&workload, target) {
            let space = template.space(&workload, target).expect("it applies");
            let default = template.default_config(&workload, target).expect("it applies");
            let default =
                space.normalise(&default).unwrap_or_else(|e| panic!("{} {}: {e}", template.name(), workload.key()));
            check(template, &workload, target, &default, seed);
            for (_, config) in space.sample(seed).take(2) {
                check(template, &workload, target, &config, seed);
            }
            *checked.entry(template.name().to_string()).or_default() += 1;
        }
    }
    println!("workloads checked by template: {checked:?}");
    assert_eq!(checked.len(), registry.iter().len(), "every template must have been reached");
}
