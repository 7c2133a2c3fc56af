//! What is done to the steps of a network, in this order.

mod attention;
mod concatenations;
mod copies;
mod dead;
mod epilogues;
mod head_order;
mod layouts;
mod parts;
mod patterns;
mod permutations;
mod products;
mod row_permutations;
mod storage;

use super::form::Form;
use super::program::Program;
use crate::ir::DType;
use crate::workload::ConvLayout;

/// A pass: its name, and what makes it.
type Pass = (&'static str, fn(&mut Program, Form));

/// All passes, in order.
const PASSES: &[Pass] = &[
    ("recognise_activations", |program, _| patterns::recognise(program)),
    ("recognise_attention", |program, _| attention::recognise(program)),
    ("remove_dead", |program, _| dead::remove(program)),
    ("channels_last", |program, form| {
        if form.layout == ConvLayout::Nhwc {
            layouts::channels_last(program);
        }
    }),
    ("join_permutations", |program, _| {
        permutations::join(program);
        dead::remove(program);
    }),
    ("join_permutations_of_rows", |program, _| row_permutations::join(program)),
    ("fuse_epilogues", |program, form| epilogues::fuse(program, form.dtype)),
    ("join_products", |program, _| products::join(program)),
    ("separate_results", |program, _| copies::separate(program)),
    ("join_concatenations", |program, _| concatenations::remove(program)),
    ("take_parts", |program, _| parts::take(program)),
    ("keep_head_order", |program, _| head_order::keep(program)),
    ("store_numbers", |program, form| {
        if form.dtype != DType::F32 {
            storage::store(program, form.dtype);
        }
    }),
];

/// Passes whose work may be for nothing, or keep a later one from its own: attention reads and writes heads in some orders alone. It is kept
/// where fewer steps are left in the end.
const UNSURE: [&str; 2] = ["join_permutations_of_rows", "join_products"];

/// Runs all passes; gives what each left, in one line. `KERNEL_GEN_DUMP=<pass>` (or `all`) prints the steps to standard error after a
/// pass that changed them.
pub(super) fn run(program: &mut Program, form: Form) -> Vec<String> {
    let dump = std::env::var("KERNEL_GEN_DUMP").unwrap_or_default();
    let mut lines = vec![format!("translate: {} steps", program.steps.len())];
    for (i, (name, pass)) in PASSES.iter().enumerate() {
        let before = program.clone();
        pass(program, form);
        if *program == before {
            continue;
        }
        let in_the_end = |program: &Program| {
            let mut program = program.clone();
            PASSES[i + 1..].iter().for_each(|(_, pass)| pass(&mut program, form));
            program.steps.len()
        };
        if UNSURE.contains(name) && in_the_end(&before) <= in_the_end(program) {
            *program = before;
            continue;
        }
        lines.push(format!("{name}: {} steps", program.steps.len()));
        if dump == "all" || dump == *name {
            eprintln!("--- after {name}\n{program}");
        }
    }
    lines
}
