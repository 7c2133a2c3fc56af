//! The distinct workloads of a network: what is generated, and tuned.

use super::program::{Program, Said, Step};
use crate::stable::fnv1a;
use crate::workload::{Slices, Workload};

/// Longer names of functions have a hash in place of the epilogue.
const LONGEST: usize = 80;

/// A workload of a network.
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    /// The function that it belongs to: one for each operator and epilogue.
    pub function: String,
    /// Its own name.
    pub name: String,
    /// What is computed.
    pub workload: Workload,
    /// How a spec says its operator.
    pub said: Said,
    /// Which of its tensors are slices of larger ones.
    pub slices: Slices,
    /// How often the network runs it.
    pub count: u32,
}

/// The tasks of a network, and which of them each step is.
pub(super) fn extract(network: &str, program: &Program) -> (Vec<Task>, Vec<usize>) {
    let mut tasks: Vec<Task> = vec![];
    let task_of = |step: &Step, tasks: &mut Vec<Task>| {
        let same = |task: &Task| task.workload == step.workload && task.slices == step.slices;
        if let Some(at) = tasks.iter().position(same) {
            tasks[at].count += 1;
            return at;
        }
        let function = function(network, step);
        let number = tasks.iter().filter(|task| task.function == function).count() + 1;
        let name = format!("{function}_{number}");
        let (workload, said) = (step.workload.clone(), step.said.clone());
        tasks.push(Task { function, name, workload, said, slices: step.slices, count: 1 });
        tasks.len() - 1
    };
    let steps = program.steps.iter().map(|step| task_of(step, &mut tasks)).collect();
    (tasks, steps)
}

/// The name of the function of a step.
fn function(network: &str, step: &Step) -> String {
    let epilogue: String = step.workload.epilogue.iter().map(|step| format!("_{}", step.key())).collect();
    let flags: String = step.said.flags.iter().map(|flag| format!("_{flag}")).collect();
    let start = format!("{network}_{}", step.workload.op_name());
    let name = format!("{start}{flags}{epilogue}");
    match name.len() <= LONGEST {
        true => name,
        false => format!("{start}_{:08x}", fnv1a(name.as_bytes()) as u32),
    }
}
