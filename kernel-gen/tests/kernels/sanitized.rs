//! Emitted C under AddressSanitizer and UndefinedBehaviorSanitizer: no access outside of a buffer, no misaligned one, no overflow
//! of a signed number, and the result within the bound of the `f64` reference.
//!
//! Of each random workload two kernels are run: what a build would choose, and a random config of a random template. Buffers are
//! blocks of exactly their size. That the sanitizers see an access beyond them is shown with each kernel: its output is made
//! an element short, which must be reported.
//!
//! CI takes a sample. `KERNEL_GEN_WORKLOADS=200 cargo test -p kernel-gen --test kernels sanitized::` runs the whole
//! (`tests/sanitize.sh`); `KERNEL_GEN_SEED` moves on to other workloads.

use crate::drawn;
use crate::instrumented::{Case, Program};
use crate::sweep::{for_each, number};
use kernel_gen::analysis::verify::{Fault, verify};
use kernel_gen::emit::c::{self, COptions, CSource, Isa};
use kernel_gen::generate::try_workload;
use kernel_gen::ir::Kernel;
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::model::Options;
use kernel_gen::records::BestRecords;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::toolchain::values::{decode, encode};
use kernel_gen::workload::Workload;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::special::Reach;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

/// A config of a template to run.
struct Drawn {
    workload: Workload,
    inputs: Vec<Vec<f64>>,
    case: Case,
    template: String,
    reach: Reach,
    at: usize,
}

fn emitted(kernel: &Kernel, target: &Target, symbol: &str) -> Result<(Kernel, CSource), String> {
    let faults = |faults: Vec<Fault>| faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n");
    let isa = Isa::from_name(&target.name).ok_or("a CPU target")?;
    let lowered = lower(verify(kernel.clone(), &target.limits()).map_err(faults)?, &LowerOptions::cpu());
    let lowered = lowered.map_err(|e| e.to_string())?;
    let options = COptions { isa, symbol: symbol.into(), comment: String::new() };
    let source = c::emit(&lowered, &options).map_err(|e| e.to_string())?;
    Ok((lowered.kernel().clone(), source))
}

fn draw(template: &dyn Template, workload: &Workload, target: &Target, config: &Config, seed: u64, at: usize) -> Drawn {
    let what = format!("{} {} on {} with {config} (seed {seed})", template.name(), workload.key(), target.name);
    let made = || -> Result<Drawn, String> {
        let scheduled = template.schedule(workload, target, config).map_err(|e| e.to_string())?;
        let inputs = sample::uneven_inputs(workload, &mut Rng::new(seed));
        let given = workload.params().iter().zip(&inputs).map(|(p, values)| encode(p.dtype, values)).collect();
        let kernel = emitted(&scheduled.schedule.kernel, target, &format!("k{at}"))?;
        let mut packs = vec![];
        for (i, pack) in scheduled.packs.iter().enumerate() {
            let param =
                workload.params().iter().position(|p| p.name == pack.param).ok_or("a pack names a parameter")?;
            let (kernel, source) = emitted(&pack.kernel, target, &format!("k{at}_pack{i}"))?;
            packs.push((param, kernel, source));
        }
        let case = Case { what: what.clone(), kernel, packs, given };
        let (workload, template, reach) =
            (workload.clone(), template.name().to_string(), template.reach(workload, config));
        Ok(Drawn { workload, inputs, case, template, reach, at })
    };
    made().unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// What is run of the workload of a seed.
fn kernels(seed: u64, target: &Target, registry: &Registry) -> Vec<Drawn> {
    let (workload, mut rng) = (drawn::workload(seed), Rng::new(seed));
    let tried = try_workload((&workload, None), target, &BestRecords::new(), registry, &Options::default())
        .unwrap_or_else(|e| panic!("{} on {}: {e}", workload.key(), target.name));
    let chosen = registry.find(&tried.choice.template).expect("it was chosen");
    let at = seed as usize * 2;
    let mut all = vec![draw(chosen, &workload, target, &tried.choice.config, seed, at)];
    let applicable: Vec<&dyn Template> = registry.applicable(&workload, target).collect();
    let template = *rng.pick(&applicable);
    let space = template.space(&workload, target).expect("it applies");
    if let Some((_, config)) = space.sample(seed).next() {
        all.push(draw(template, &workload, target, &config, seed, at + 1));
    }
    all
}

#[test]
fn emitted_c_has_no_undefined_behaviour() {
    let (count, first) = (number("KERNEL_GEN_WORKLOADS", 8), number("KERNEL_GEN_SEED", 1));
    let here: Vec<&Target> = (["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"].into_iter())
        .filter(|t| Isa::from_name(t).is_some_and(Isa::runs_here))
        .map(|t| Target::find(t).expect("a built-in target"))
        .collect();
    let registry = Registry::builtin();
    let drawn = Mutex::new(vec![]);
    for_each(count as usize, |i| {
        let target = here[(first as usize + i) % here.len()];
        let made = kernels(first + i as u64, target, &registry);
        drawn.lock().expect("no panic").extend(made);
    });
    let mut drawn = drawn.into_inner().expect("no kernel is refused");
    drawn.sort_by_key(|d| d.at);
    let mut templates = BTreeMap::<String, usize>::new();
    drawn.iter().for_each(|d| *templates.entry(d.template.clone()).or_default() += 1);
    let (mut cases, mut known) = (vec![], vec![]);
    for Drawn { workload, inputs, case, reach, .. } in drawn {
        cases.push(case);
        known.push((workload, inputs, reach));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sanitized-{first}-{count}"));
    let Some(program) = Program::build(&cases, folder.clone()) else {
        println!("[SKIP] the C compiler has no -fsanitize=address,undefined here");
        return;
    };
    let outputs = program.run();
    let findings = Mutex::new(vec![]);
    for_each(cases.len(), |i| {
        let (workload, inputs, reach) = &known[i];
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let held = |bytes: &Vec<u8>| {
            let values = decode(workload.out_dtype, bytes);
            reach.reference(workload, &views).check(values).map_err(|m| m.to_string())
        };
        if let Err(report) = outputs[i].as_ref().map_err(String::clone).and_then(held) {
            findings.lock().expect("no panic").push(format!("{}\n{report}", cases[i].what));
        }
    });
    let findings = findings.into_inner().expect("no panic");
    let unseen = program.unseen();
    println!(
        "{} kernels of {count} workloads from seed {first} on {}: {templates:?}",
        cases.len(),
        here.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ")
    );
    findings.iter().for_each(|finding| println!("{finding}\n"));
    assert!(findings.is_empty(), "{} of {} kernels:\n{}", findings.len(), cases.len(), findings[0]);
    assert!(unseen.is_empty(), "an output that is an element short is not seen: {unseen:?}");
    let _ = std::fs::remove_dir_all(folder);
}
