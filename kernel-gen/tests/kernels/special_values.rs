//! NaN, infinities, subnormal numbers and outliers at single positions: every template of the registry, on small workloads that
//! it takes, gives what the reference says.
//!
//! Each special value stands once in each operand, at a random position. Kernels for CPUs are compiled where the level runs on
//! this machine and interpreted where it does not. Kernels for CUDA devices are interpreted, as lowered; one of each template
//! whose launches are small also runs as C++.
//!
//! `KERNEL_GEN_SEED` draws other workloads and positions, `KERNEL_GEN_TEMPLATE` names one template.

use crate::compiled;
use crate::cuda_on_cpu;
use crate::sweep::{for_each, number};
use kernel_gen::analysis::verify::{Fault, verify};
use kernel_gen::emit::c::{self, COptions, Isa};
use kernel_gen::emit::cuda::{self, Arch, CudaOptions, CudaSource};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::{DType, Kernel};
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, Lowered, lower};
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Scheduled, Template};
use kernel_gen::toolchain::harness::RunOptions;
use kernel_gen::workload::reference_with_bounds;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::special::{self, Case, Reach};
use kernel_gen::workload::{Conv2d, Epilogue, Math, Op, Workload};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Random workloads that each template is asked for.
const DRAWS: u64 = 3000;

/// Workloads of fewer multiplications leave most of a kernel's code unused.
const LEAST_MACS: i64 = 2000;

fn seed() -> u64 {
    number("KERNEL_GEN_SEED", 1)
}

/// What a template does differently: by type and class, and by whether pixels lie beyond the edge.
type Kind = (DType, Math, Form);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Product,
    Pointwise,
    Padded,
    Inside,
    Other,
}

fn kind(w: &Workload) -> Kind {
    let form = match &w.op {
        Op::Matmul(_) => Form::Product,
        Op::Conv2d(c) if c.has_padding() => Form::Padded,
        Op::Conv2d(c) if c.kh * c.kw == 1 => Form::Pointwise,
        Op::Conv2d(_) => Form::Inside,
        _ => Form::Other,
    };
    // The classes of 16 bits differ in what they rule out, not in their kernels.
    let math = if w.dtype == DType::F32 { w.math } else { Math::default() };
    (w.dtype, math, form)
}

/// The smallest of the random workloads that a template takes, one of each kind, with a target. Of the classes of `f32` only the
/// strictest, whose kernels the others have too, and `tf32` where there is no `strict`.
fn fitting(template: &dyn Template) -> Vec<(Workload, &'static Target)> {
    let mut found = BTreeMap::<Kind, (Workload, &Target)>::new();
    for draw in 0..DRAWS {
        let mut rng = Rng::new(seed() << 32 | draw);
        let workload = special::small(&mut rng);
        let smaller = |(best, _): &(Workload, &Target)| workload.macs() < best.macs();
        if workload.macs() < LEAST_MACS || !found.get(&kind(&workload)).is_none_or(smaller) {
            continue;
        }
        let first = rng.below(Target::all().len() as u64) as usize;
        let mut targets = Target::all()[first..].iter().chain(&Target::all()[..first]);
        if let Some(target) = targets.find(|t| template.admits(&workload, t).is_ok()) {
            found.insert(kind(&workload), (workload, target));
        }
    }
    let class = |math: Math| Math::ALL.iter().position(|m| *m == math);
    let f32_classes = found.keys().filter(|(dtype, ..)| *dtype == DType::F32).map(|(_, math, _)| *math);
    let strictest = f32_classes.min_by_key(|math| class(*math));
    found.retain(|(dtype, math, _), _| match (dtype, math) {
        (DType::F32, Math::Tf32) => strictest != Some(Math::Strict),
        (DType::F32, math) => Some(*math) == strictest,
        _ => true,
    });
    found.into_values().collect()
}

fn text(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}

/// Runs a kernel: the values of its parameters, by their names, become those of its outputs.
type Run<'a> = dyn Fn(&Kernel, &Values) -> Result<Values, String> + 'a;

/// A kernel that is ready to run.
struct Ready<'a> {
    workload: &'a Workload,
    scheduled: Scheduled,
    run: Box<Run<'a>>,
}

impl Ready<'_> {
    fn output(&self, inputs: &[Vec<f64>]) -> Result<Vec<f64>, String> {
        let params = self.workload.params();
        let mut values: Values = params.iter().zip(inputs).map(|(p, v)| (p.name.into(), v.clone())).collect();
        for pack in &self.scheduled.packs {
            let from = pack.kernel.buffer(pack.kernel.params[0]).name.clone();
            let given = Values::from([(from, values.remove(&pack.param).ok_or("a pack names a parameter")?)]);
            let mut packed = (self.run)(&pack.kernel, &given).map_err(|e| format!("pack: {e}"))?;
            values.insert(pack.param.clone(), packed.pop_first().ok_or("the packed tensor")?.1);
        }
        let mut outputs = (self.run)(&self.scheduled.schedule.kernel, &values)?;
        outputs.remove(params.last().ok_or("an output")?.name).ok_or("the output".into())
    }
}

/// Keeps what is made of each kernel: all values run the same.
fn kept<T: 'static>(
    make: impl Fn(&Kernel) -> Result<T, String>,
    run: impl Fn(&T, &Values) -> Result<Values, String>,
) -> impl Fn(&Kernel, &Values) -> Result<Values, String> {
    let made = std::cell::RefCell::new(BTreeMap::<String, T>::new());
    move |kernel, values| {
        let name = kernel.to_string();
        if !made.borrow().contains_key(&name) {
            let new = make(kernel)?;
            made.borrow_mut().insert(name.clone(), new);
        }
        run(&made.borrow()[&name], values)
    }
}

fn lowered(kernel: &Kernel, target: &Target) -> Result<Lowered, String> {
    let (kernel, options) = match target.cuda() {
        Some(_) => (insert_barriers(kernel.clone()), LowerOptions::of(target)),
        None => (kernel.clone(), LowerOptions::cpu()),
    };
    let verified = verify(kernel, &target.limits()).map_err(|faults| text(&faults))?;
    lower(verified, &options).map_err(|e| e.to_string())
}

fn interpreted(low: &Lowered, values: &Values) -> Result<Values, String> {
    interp::run(low.kernel(), values, Mode::Declared).map_err(|e| e.to_string())
}

/// Compiles a kernel for a level that runs here.
fn compiled_here(kernel: &Kernel, target: &Target, isa: Isa) -> Result<Compiled, String> {
    let low = lowered(kernel, target)?;
    let options = COptions { isa, symbol: "kernel".into(), comment: String::new() };
    let source = c::emit(&low, &options).map_err(|e| e.to_string())?;
    let program = compiled::program(&source, low.kernel()).map_err(|e| e.to_string())?;
    let params = low.kernel().params.iter().map(|p| low.kernel().buffer(*p).name.clone()).collect();
    Ok(Compiled { program, params })
}

struct Compiled {
    program: std::rc::Rc<kernel_gen::toolchain::harness::Program>,
    params: Vec<String>,
}

impl Compiled {
    fn run(&self, values: &Values) -> Result<Values, String> {
        let inputs: Vec<Vec<f64>> = self.params.iter().map(|p| values.get(p).cloned().unwrap_or_default()).collect();
        let outputs = self.program.run(&inputs, &RunOptions::default()).map_err(|e| e.to_string())?;
        // The output is the last parameter.
        Ok(self.params.last().cloned().into_iter().zip(outputs.into_iter().last()).collect())
    }
}

/// The cases of each operand as two, in which it has every other of their values, each at its own position: a kernel runs less often, and
/// few outputs read a NaN that hides the others. `KERNEL_GEN_APART=1` leaves them apart.
fn together(workload: &Workload, cases: Vec<Case>) -> Vec<Case> {
    if number("KERNEL_GEN_APART", 0) == 1 {
        return cases;
    }
    let params = workload.params();
    let mut all: Vec<Case> = vec![];
    for of_operand in cases.chunk_by(|a, b| a.operand == b.operand) {
        let operand = params.iter().position(|p| p.name == of_operand[0].operand).expect("it is a parameter");
        for (first, cases) in of_operand.iter().zip([0, 1].map(|first| of_operand.iter().skip(first).step_by(2))) {
            let mut one = first.clone();
            cases.for_each(|case| one.inputs[operand][case.position] = case.inputs[operand][case.position]);
            all.push(one);
        }
    }
    all
}

/// Runs a template's default on every case of a workload; the lines of those that went wrong are added.
fn check(template: &dyn Template, workload: &Workload, target: &Target, run: Box<Run<'_>>, wrong: &Wrong) {
    let config = template.default_config(workload, target).expect("it applies");
    let scheduled = template.schedule(workload, target, &config).expect("a default is in the space");
    let ready = Ready { workload, scheduled, run };
    let reach = template.reach(workload, &config);
    if workload.math.is_local() && reach != Reach::Own {
        wrong.add(format!("{} takes {}, and reaches {reach:?}", template.name(), workload.key()));
    }
    for case in together(workload, special::cases(workload, &mut Rng::new(seed()))) {
        let Case { operand, value, position, inputs } = &case;
        let what = format!("{} on {} for {} with {config}", template.name(), workload.key(), target.name);
        let at = format!("{what}: {value} at {position} of {operand}, and others");
        match ready.output(inputs) {
            Err(error) => return wrong.add(format!("{at}: {error}")),
            Ok(output) => {
                let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
                if let Err(mismatch) = reach.reference(workload, &views).check(output) {
                    wrong.add(format!("{at}: {mismatch}"));
                }
            }
        }
    }
}

/// What went wrong, in lines.
#[derive(Default)]
struct Wrong(Mutex<Vec<String>>);

impl Wrong {
    fn add(&self, line: String) {
        self.0.lock().expect("nothing panics with it").push(line);
    }

    fn report(self) {
        let lines = self.0.into_inner().expect("nothing panicked with it");
        lines.iter().for_each(|line| println!("wrong: {}", line.chars().take(600).collect::<String>()));
        assert!(lines.is_empty(), "{} wrong, the first: {}", lines.len(), lines[0]);
    }
}

/// Every template with each of its workloads, on all processors.
fn for_every_template(f: impl Fn(&dyn Template, &[(Workload, &'static Target)], &Wrong) + Sync) {
    let (registry, wrong) = (Registry::builtin(), Wrong::default());
    let only = std::env::var("KERNEL_GEN_TEMPLATE").ok();
    let templates: Vec<&dyn Template> =
        registry.iter().filter(|t| takes_numbers(*t) && only.as_ref().is_none_or(|name| name == t.name())).collect();
    for_each(templates.len(), |i| {
        let (template, begun) = (templates[i], Instant::now());
        let workloads = fitting(template);
        if workloads.is_empty() {
            wrong.add(format!("{}: none of {DRAWS} random workloads is for it", template.name()));
        }
        let drawn = begun.elapsed();
        f(template, &workloads, &wrong);
        let keys: Vec<String> = workloads.iter().map(|(w, t)| format!("{} {}", w.key(), t.name)).collect();
        println!("{}: {} ({drawn:.1?} of {:.1?})", template.name(), keys.join(", "), begun.elapsed());
    });
    wrong.report();
}

#[test]
fn every_template_is_right_about_special_values() {
    for_every_template(|template, workloads, wrong| {
        for (number, (workload, target)) in workloads.iter().enumerate() {
            let target = if target.cuda().is_some() { target } else { level(template, workload, number) };
            let isa = Isa::from_name(&target.name).filter(|isa| isa.runs_here());
            let run: Box<Run<'_>> = match isa {
                Some(isa) => Box::new(kept(move |k| compiled_here(k, target, isa), Compiled::run)),
                None => Box::new(kept(|k| lowered(k, target), interpreted)),
            };
            check(template, workload, target, run, wrong);
        }
    });
}

/// 25 taps in an even number of parts: the last part has a step beyond the last tap, whose pixel no output reads. The pixels of
/// the last row are all such for the outputs of the first.
#[test]
fn a_step_beyond_the_last_tap_multiplies_no_number() {
    let key = "conv2d-hwcn-f32-strict-n1c2h6w6-o2k5x5-s1x1-p0.0.0.0-d1x1-g1-bias.relu";
    let (workload, target) = (Workload::from_key(key).unwrap(), Target::find("sm_90a").unwrap());
    let registry = Registry::builtin();
    let template = registry.find("simt_conv2d").unwrap();
    let config = template.default_config(&workload, target).unwrap();
    assert!(config.int("split").unwrap() % 2 == 0, "{config}");
    let scheduled = template.schedule(&workload, target, &config).unwrap();
    let ready = Ready { workload: &workload, scheduled, run: Box::new(kept(|k| lowered(k, target), interpreted)) };
    let mut inputs = sample::uneven_inputs(&workload, &mut Rng::new(1));
    let pixels = inputs[0].len();
    inputs[0][pixels - 6 * 2..].fill(f64::NAN);
    let output = ready.output(&inputs).unwrap();
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    Reach::Own.reference(&workload, &views).check(output).unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

/// Whether a template takes numbers, of which alone some are special: the plain ones take integers as well.
fn takes_numbers(template: &dyn Template) -> bool {
    !template.takes_integers() || template.name().starts_with("plain")
}

/// A level for a workload of a template for CPUs: its workloads take turns with those that run here, or with all if none does.
fn level(template: &dyn Template, workload: &Workload, number: usize) -> &'static Target {
    let takes = |t: &&Target| t.cuda().is_none() && template.admits(workload, t).is_ok();
    let here = |t: &&Target| Isa::from_name(&t.name).is_some_and(Isa::runs_here);
    let all: Vec<&Target> = Target::all().iter().filter(takes).collect();
    let running: Vec<&Target> = all.iter().copied().filter(here).collect();
    let of = if running.is_empty() { all } else { running };
    of[number % of.len()]
}

/// The source of a kernel, if a CPU can run it soon: threads of the system stand for those of a block, and one block runs at a
/// time, so that those of a cluster would wait for ever.
fn small_source(kernel: &Kernel, target: &Target) -> Result<Option<CudaSource>, String> {
    let arch = Arch::of(target).ok_or("a CUDA target")?;
    let options = CudaOptions { arch, symbol: "kernel".into(), comment: String::new(), min_blocks: None };
    let source = cuda::emit(&lowered(kernel, target)?, &options).map_err(|e| e.to_string())?;
    let threads = |l: &cuda::Launch| l.block.iter().chain(&l.grid).product::<u32>();
    let small = source.launches.iter().all(|l| threads(l) <= 2048 && l.cluster == [1; 3]);
    Ok(small.then_some(source))
}

#[test]
fn sources_for_cuda_are_right_about_special_values() {
    let ran = AtomicUsize::new(0);
    for_every_template(|template, workloads, wrong| {
        // An epilogue that chooses between numbers, if there is one.
        let chooses = |w: &Workload| w.epilogue.iter().any(|e| matches!(e, Epilogue::Relu | Epilogue::Relu6));
        let mut workloads: Vec<_> = workloads.iter().filter(|(_, target)| target.cuda().is_some()).collect();
        workloads.sort_by_key(|(w, _)| !chooses(w));
        for (workload, target) in workloads {
            let config = template.default_config(workload, target).expect("it applies");
            let kernel =
                template.schedule(workload, target, &config).expect("a default is in the space").schedule.kernel;
            if let Ok(None) = small_source(&kernel, target) {
                continue;
            }
            let make = |kernel: &Kernel| match small_source(kernel, target)? {
                Some(source) => cuda_on_cpu::build(kernel, &source).map(Ok),
                None => lowered(kernel, target).map(Err),
            };
            let run = kept(make, |made, values| match made {
                Ok(program) => program.run(values),
                Err(low) => interpreted(low, values),
            });
            check(template, workload, target, Box::new(run), wrong);
            ran.fetch_add(1, Ordering::Relaxed);
            return;
        }
    });
    let ran = ran.into_inner();
    println!("{ran} templates ran as C++");
    assert!(ran >= 15 || std::env::var("KERNEL_GEN_TEMPLATE").is_ok(), "{ran} templates ran as C++");
}

/// One pixel of 1e4 among numbers near 1: the default class has a method whose error reaches outputs that do not read it, and
/// says so; those of the classes that are local have none.
#[test]
fn operands_that_differ_in_magnitude_are_held_to_what_the_class_says() {
    let conv = Workload::f32(Conv2d::nchw(1, 16, 12, 12, 16, 3, 1, 1));
    let registry = Registry::builtin();
    let target_names = ["x86-64-v3", "sm_90a"];
    for math in [Math::Fp32, Math::Local, Math::Strict] {
        let w = Workload { math, ..conv.clone() };
        let mut inputs = sample::inputs(&w, &mut Rng::new(3));
        inputs[0][5 * 144 + 6 * 12 + 6] = 1e4;
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let local = reference_with_bounds(&w, &views);
        let (mut spread, mut held) = (vec![], vec![]);
        for (name, target) in target_names.map(|n| (n, Target::find(n).expect("a built-in target"))) {
            for template in registry.applicable(&w, target) {
                let config = template.default_config(&w, target).expect("it applies");
                let scheduled = template.schedule(&w, target, &config).expect("a default is in the space");
                let ready = Ready { workload: &w, scheduled, run: Box::new(kept(|k| lowered(k, target), interpreted)) };
                let output = ready.output(&inputs).unwrap_or_else(|e| panic!("{}: {e}", template.name()));
                let reference = template.reach(&w, &config).reference(&w, &views);
                reference
                    .check(output.iter().copied())
                    .unwrap_or_else(|e| panic!("{} of class {}: {e}", template.name(), math.name()));
                let which = if local.check(output).is_ok() { &mut held } else { &mut spread };
                which.push(format!("{} ({name})", template.name()));
            }
        }
        println!("{}: errors stay with the outputs that read the pixel: {held:?}; spread: {spread:?}", math.name());
        assert!(held.len() >= 6, "{held:?}");
        match math {
            // Tiles of 4 x 4 do, those of 2 x 2 stay within the bound here. If none does, the class may promise more.
            Math::Fp32 => assert!(spread.iter().all(|t| t.contains("winograd")) && !spread.is_empty(), "{spread:?}"),
            _ => assert!(spread.is_empty(), "{spread:?}"),
        }
    }
}
