//! One kernel as a build emits it, for comparing what two versions of this library emit.

use super::chosen::{Chosen, Picked};
use super::error::GenerateError;
use super::made::{Made, make};
use super::task::Task;
use crate::emit::rust;
use crate::records::{Choice, Origin};
use crate::space::Config;
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::{Slices, Workload};
use std::fmt::Write;

/// The sources and wrappers of a workload by a template's config, in one text. It holds nothing that changes while the
/// kernel stays: no time, no file of a record, no version of this library.
pub(crate) fn emitted(
    workload: &Workload,
    target: &Target,
    registry: &Registry,
    template: &str,
    config: &Config,
) -> Result<String, GenerateError> {
    let key = workload.key();
    let task = Task {
        kernel: "replay",
        workload,
        slices: Slices::default(),
        rung: None,
        name: workload.kernel_name(),
        file: "replay",
        line: 1,
    };
    let choice = Choice {
        template: template.to_string(),
        config: config.clone(),
        origin: Origin::Analytic { predicted_us: f64::NAN },
        refusals: vec![],
        passed_over: None,
        unusable: vec![],
    };
    let picked = Picked::new(&task, target, registry, choice);
    let made = make(&Chosen::new(&picked, registry)?, "kg")?;
    let mut text = String::new();
    let (mut code, mut on_gpus) = (rust::Code::Absent(String::new()), vec![]);
    // Writing to a string cannot fail.
    match made {
        Made::C(c) => {
            for source in &c.sources {
                let _ = writeln!(text, "== {} {}\n{}", source.name, source.flags.join(" "), source.text);
            }
            let prototypes: String = c.sources.iter().map(|s| s.prototypes.as_str()).collect();
            let _ = writeln!(text, "== header\n{prototypes}");
            code = rust::Code::Compiled(vec![c.variant]);
        }
        Made::Cuda(cuda) => {
            for source in &cuda.sources {
                let _ = writeln!(text, "== {}\n{}", source.name, source.text);
            }
            on_gpus.push(cuda.variant);
        }
    }
    let item = rust::Item {
        name: key,
        workload: workload.clone(),
        slices: Slices::default(),
        units: None,
        code,
        cuda: on_gpus,
    };
    let function = rust::Function { name: "replay".into(), items: vec![item] };
    let module = rust::Module {
        spec: "replay".into(),
        functions: vec![function],
        networks: vec![],
        report: String::new(),
        images: "i".into(),
    };
    let _ = write!(text, "== wrappers\n{}", rust::emit(&module));
    Ok(text.replace(concat!("kernel-gen ", env!("CARGO_PKG_VERSION")), "kernel-gen"))
}
