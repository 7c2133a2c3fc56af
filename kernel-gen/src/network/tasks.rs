//! The distinct workloads of a network: what is generated, and tuned.

use super::program::{Program, Said, Step};
use super::units::Units;
use crate::stable::fnv1a;
use crate::workload::{Range, Slices, Workload};

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
    /// Present if its number of images or rows is known when it runs.
    pub range: Option<Range>,
    /// How often the network runs it.
    pub count: u32,
}

/// The task of each step of a program that a run goes through so many times. Those that are new go behind those that the
/// network's other programs have.
pub(super) fn extract(
    network: &str,
    program: &Program,
    (units, times): (Option<&Units>, i64),
    tasks: &mut Vec<Task>,
) -> Vec<usize> {
    let times = u32::try_from(times).unwrap_or(u32::MAX);
    let mut task_of = |(i, step): (usize, &Step)| {
        let range = units.and_then(|units| units.ranges[i].clone());
        let same = |task: &Task| (&task.workload, task.slices, &task.range) == (&step.workload, step.slices, &range);
        if let Some(at) = tasks.iter().position(same) {
            tasks[at].count = tasks[at].count.saturating_add(times);
            return at;
        }
        let function = function(network, step);
        let number = tasks.iter().filter(|task| task.function == function).count() + 1;
        let name = format!("{function}_{number}");
        let (workload, said) = (step.workload.clone(), step.said.clone());
        tasks.push(Task { function, name, workload, said, slices: step.slices, range, count: times });
        tasks.len() - 1
    };
    program.steps.iter().enumerate().map(&mut task_of).collect()
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
