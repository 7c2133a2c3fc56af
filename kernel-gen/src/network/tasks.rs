//! The distinct workloads of a network: what is generated, and tuned.

use super::program::{Program, Step};
use crate::workload::{Epilogue, Slices, Workload};

/// A workload of a network.
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    /// The function that it belongs to: one for each operator and epilogue.
    pub function: String,
    /// Its own name.
    pub name: String,
    /// What is computed.
    pub workload: Workload,
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
        let function = function(network, &step.workload);
        let number = tasks.iter().filter(|task| task.function == function).count() + 1;
        let name = format!("{function}_{number}");
        tasks.push(Task { function, name, workload: step.workload.clone(), slices: step.slices, count: 1 });
        tasks.len() - 1
    };
    let steps = program.steps.iter().map(|step| task_of(step, &mut tasks)).collect();
    (tasks, steps)
}

/// The name of the function of a workload.
fn function(network: &str, workload: &Workload) -> String {
    let epilogue = workload.epilogue.iter().map(|step: &Epilogue| format!("_{}", step.key()));
    format!("{network}_{}{}", workload.op_name(), epilogue.collect::<String>())
}
