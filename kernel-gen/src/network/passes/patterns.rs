//! Recognises activations that exporters write as several nodes: `x * sigmoid(x)` and `x * hard_sigmoid(x)`.

use crate::network::program::{Program, Said};
use crate::workload::binary::Function2;
use crate::workload::unary::Function;
use crate::workload::{Dims, Epilogue, Op, Unary, Workload};

/// Replaces them; the steps that are not needed any more are dead.
pub(super) fn recognise(program: &mut Program) {
    for at in 0..program.steps.len() {
        let Op::Binary(product) = program.steps[at].workload.op else { continue };
        if product.function != Function2::Multiply || !program.steps[at].workload.epilogue.is_empty() {
            continue;
        }
        let [x, y] = program.steps[at].operands[..] else { continue };
        let found = activation(program, x, y).or_else(|| activation(program, y, x));
        let Some((of, step)) = found else { continue };
        let output = program.steps[at].workload.output_shape();
        if program.elements(of) != output.iter().product::<i64>() {
            continue;
        }
        let Some(input) = Dims::new(&output) else { continue };
        program.steps[at].workload =
            Workload::f32(Unary { input, function: Function::Identity }).with_epilogue(&[step]);
        program.steps[at].said = Said { flags: vec![], keys: vec![("input", format!("{output:?}"))] };
        program.steps[at].operands = vec![of];
    }
}

/// What `x * gate` is, if `gate` is a function of `x`.
fn activation(program: &Program, x: usize, gate: usize) -> Option<(usize, Epilogue)> {
    let root = program.root(gate);
    let step = program.steps.iter().find(|step| step.output == root)?;
    let Op::Unary(Unary { function: Function::Identity, .. }) = step.workload.op else { return None };
    let whole = match step.workload.epilogue[..] {
        [Epilogue::Sigmoid] => Epilogue::Silu,
        [Epilogue::HardSigmoid] => Epilogue::HardSwish,
        _ => return None,
    };
    let same = program.root(step.operands[0]) == program.root(x) && program.elements(x) == program.elements(gate);
    same.then_some((x, whole))
}
