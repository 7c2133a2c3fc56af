//! What is to be generated: the workloads of a spec, each with the name of its module.

use crate::emit::rust;
use crate::lower::Units;
use crate::spec::Spec;
use crate::workload::{Range, Slices, Workload};

/// A workload to generate.
#[derive(Clone)]
pub(super) struct Task<'a> {
    /// The name of its function.
    pub(super) kernel: &'a str,
    pub(super) workload: &'a Workload,
    pub(super) slices: Slices,
    /// Present if callers say how many units there are.
    pub(super) rung: Option<Rung<'a>>,
    /// The name of its module.
    pub(super) name: String,
    /// The file and the line that ask for it.
    pub(super) file: &'a str,
    pub(super) line: usize,
}

/// Of a workload of several numbers of units, what one kernel is for.
#[derive(Clone, Copy)]
pub(super) struct Rung<'a> {
    /// The numbers that there are.
    pub(super) range: &'a Range,
    /// The workload of the most of them.
    pub(super) largest: &'a Workload,
    /// The fewest that the kernel is for.
    pub(super) least: i64,
    /// The largest number of units that the kernel serves; the task's workload has that many.
    pub(super) most: i64,
}

impl Rung<'_> {
    /// What the kernel is to be made for.
    pub(super) fn units(&self) -> Units {
        Units { most: self.most, params: self.range.params.clone() }
    }
}

/// The workloads of a spec, in its order.
pub(super) fn tasks(spec: &Spec) -> Vec<Task<'_>> {
    let named = names(spec).into_iter().zip(spec.workloads());
    named
        .map(|(name, (kernel, w))| Task {
            kernel: &kernel.name,
            workload: &w.workload,
            slices: w.slices,
            rung: w.range.as_ref().map(|range| Rung {
                range,
                largest: &w.workload,
                least: range.least,
                most: range.most,
            }),
            name,
            file: &spec.file,
            line: w.line,
        })
        .collect()
}

/// The module names of all workloads: their own, or made from what they compute.
fn names(spec: &Spec) -> Vec<String> {
    let mut taken: Vec<String> = spec.workloads().filter_map(|(_, w)| w.name.clone()).collect();
    taken.extend(spec.kernels.iter().map(|k| k.name.clone()));
    taken.extend(spec.externs.iter().map(|e| e.name.clone()));
    let mut names = vec![];
    for (kernel, workload) in spec.workloads() {
        names.push(workload.name.clone().unwrap_or_else(|| {
            // The kernel's name stands for what all its workloads share, so the shape is enough.
            let wanted = rust::rust_name(&format!("{}_{}", kernel.name, shape_key(&workload.workload.key())));
            let mut name = wanted.clone();
            let mut number = 2;
            while taken.contains(&name) {
                name = format!("{wanted}_{number}");
                number += 1;
            }
            taken.push(name.clone());
            name
        }));
    }
    names
}

/// The part of a workload's key from its shape on.
fn shape_key(key: &str) -> &str {
    // Operator, layout, types and math come first; the first part that holds a size starts with `n`, `m` or `b`.
    let mut start = 0;
    for part in key.split('-') {
        let mut chars = part.chars();
        let sized = matches!(chars.next(), Some('n' | 'm' | 'b')) && chars.next().is_some_and(|c| c.is_ascii_digit());
        if sized && !part.starts_with("bf16") {
            return &key[start..];
        }
        start += part.len() + 1;
    }
    key
}
