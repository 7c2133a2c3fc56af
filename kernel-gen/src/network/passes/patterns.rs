//! Recognises what exporters write as several nodes: activations and norms of rows.
//!
//! The steps that they are made of stay; those that nobody else reads are dead, and go with the next pass.

use crate::network::program::{Program, Said, Source, Step, ValueId};
use crate::workload::binary::Function2;
use crate::workload::reduce::Reduction;
use crate::workload::row_wise::{Epsilon, RowFunction};
use crate::workload::unary::Function;
use crate::workload::{Dims, Epilogue, Op, RowWise, Unary, Workload};
use std::f64::consts::FRAC_1_SQRT_2;

/// Replaces what is recognised.
pub(super) fn recognise(program: &mut Program) {
    for at in 0..program.steps.len() {
        let found = activation(program, at).or_else(|| layer_norm(program, at)).or_else(|| rms_norm(program, at));
        if let Some((workload, of)) = found {
            let shape = workload.params()[0].shape.clone();
            let mut keys = vec![("input", format!("{shape:?}"))];
            if let Op::RowWise(RowWise { function, .. }) = &workload.op
                && let RowFunction::LayerNorm(epsilon) | RowFunction::RmsNorm(epsilon) = function
            {
                keys.push(("epsilon_digits", epsilon.digits.to_string()));
            }
            let step = &mut program.steps[at];
            (step.workload, step.said, step.operands) = (workload, Said { flags: vec![], keys }, vec![of]);
        }
    }
}

/// The step that writes a value, if it has no epilogue but its own function.
pub(super) fn writer(program: &Program, id: ValueId) -> Option<&Step> {
    let root = program.root(id);
    matches!(program.values[root].source, Source::Step).then_some(())?;
    program.steps.iter().find(|step| step.output == root)
}

/// The operands of a step that is a function of two tensors.
pub(super) fn operands(step: &Step, function: Function2) -> Option<[ValueId; 2]> {
    let is_bare =
        matches!(&step.workload.op, Op::Binary(b) if b.function == function) && step.workload.epilogue.is_empty();
    is_bare.then(|| [step.operands[0], step.operands[1]])
}

/// The operand of a step that is a function of one tensor, with this epilogue.
fn operand(step: &Step, function: Function, epilogue: &[Epilogue]) -> Option<ValueId> {
    let is_it =
        matches!(&step.workload.op, Op::Unary(u) if u.function == function) && step.workload.epilogue == epilogue;
    is_it.then(|| step.operands[0])
}

/// The number that a constant of one element is.
pub(super) fn scalar(program: &Program, id: ValueId) -> Option<f64> {
    let constant = program.constant(id)?;
    (constant.data.len() == 1).then(|| constant.to_doubles()[0])
}

/// Whether two numbers are the same but for rounding in `f32`.
pub(super) fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * b.abs()
}

/// A value as a product: a number, and tensors of the value's shape.
pub(super) fn product(program: &Program, id: ValueId) -> (f64, Vec<ValueId>) {
    product_of(program, id, DEEPEST)
}

/// Products within products that are looked at: what exporters write has three.
const DEEPEST: usize = 6;

/// The same, as deep as this.
fn product_of(program: &Program, id: ValueId, depth: usize) -> (f64, Vec<ValueId>) {
    let whole = (1.0, vec![program.root(id)]);
    if depth == 0 {
        return whole;
    }
    let Some(step) = writer(program, id) else { return whole };
    if let Some([x, y]) = operands(step, Function2::Divide) {
        if let Some(divisor) = scalar(program, y).filter(|d| *d != 0.0) {
            let (factor, terms) = product_of(program, x, depth - 1);
            return (factor / divisor, terms);
        }
        return whole;
    }
    let Some(sides) = operands(step, Function2::Multiply) else { return whole };
    let (mut factor, mut terms) = (1.0, vec![]);
    for side in sides {
        if let Some(number) = scalar(program, side) {
            factor *= number;
        } else if program.elements(side) == program.elements(id) {
            let (more, others) = product_of(program, side, depth - 1);
            factor *= more;
            terms.extend(others);
        } else {
            return whole;
        }
    }
    (factor, terms)
}

/// A value as a sum of a tensor and a number.
fn sum(program: &Program, id: ValueId) -> Option<(ValueId, f64)> {
    let [x, y] = operands(writer(program, id)?, Function2::Add)?;
    let number = |a, b| scalar(program, b).map(|number| (program.root(a), number));
    number(x, y).or_else(|| number(y, x))
}

/// The activation that the result of a product is, and of what: `x * sigmoid(x)`, hard swish and GELU.
fn activation(program: &Program, at: usize) -> Option<(Workload, ValueId)> {
    let step = &program.steps[at];
    if !matches!(&step.workload.op, Op::Binary(b) if matches!(b.function, Function2::Multiply | Function2::Divide)) {
        return None;
    }
    let (factor, terms) = product(program, step.output);
    let [x, y] = terms[..] else { return None };
    let epilogue =
        gated(program, factor, x, y).map(|e| (e, x)).or_else(|| gated(program, factor, y, x).map(|e| (e, y)));
    let (epilogue, of) = epilogue?;
    let input =
        Dims::new(&step.workload.output_shape()).filter(|_| program.elements(of) == program.elements(step.output))?;
    Some((Workload::f32(Unary { input, function: Function::Identity }).with_epilogue(&[epilogue]), of))
}

/// What `factor * x * gate` is, if `gate` is a function of `x`.
fn gated(program: &Program, factor: f64, x: ValueId, gate: ValueId) -> Option<Epilogue> {
    let gate = writer(program, gate)?;
    let is_of_x = |id: ValueId| program.root(id) == x;
    let identity = |epilogue| operand(gate, Function::Identity, &[epilogue]);
    if factor == 1.0 && identity(Epilogue::Sigmoid).is_some_and(is_of_x) {
        return Some(Epilogue::Silu);
    }
    if factor == 1.0 && identity(Epilogue::HardSigmoid).is_some_and(is_of_x) {
        return Some(Epilogue::HardSwish);
    }
    if near(factor, 1.0 / 6.0)
        && identity(Epilogue::Relu6).and_then(|inner| sum(program, inner)).is_some_and(|(id, n)| id == x && n == 3.0)
    {
        return Some(Epilogue::HardSwish);
    }
    // 0.5 * x * (1 + erf(x / sqrt(2))).
    let (erf, one) = sum(program, gate.output)?;
    let (inner, of) = product(program, operand(writer(program, erf)?, Function::Erf, &[])?);
    (near(factor, 0.5) && one == 1.0 && near(inner, FRAC_1_SQRT_2) && of == [x]).then_some(Epilogue::Gelu)
}

/// The mean of rows: of what, and how long they are.
fn mean(program: &Program, id: ValueId) -> Option<(ValueId, i64)> {
    let step = writer(program, id)?;
    let Op::Reduce(reduce) = &step.workload.op else { return None };
    let (marks, extents) = (&reduce.combined[..], &reduce.input[..]);
    let first = marks.iter().position(|mark| *mark == 1)?;
    let is_of_rows = reduce.function == Reduction::Mean && marks[first..].iter().all(|mark| *mark == 1);
    (is_of_rows && step.workload.epilogue.is_empty())
        .then(|| (program.root(step.operands[0]), extents[first..].iter().product()))
}

/// Whether a shape has one element for each row of another: its first extents, and then 1.
fn is_of_rows(shape: &[i64], of: &[i64], columns: i64) -> bool {
    let first = (0..=of.len()).rev().find(|first| of[*first..].iter().product::<i64>() == columns);
    let fits = |first: usize| shape[..first] == of[..first] && shape[first..].iter().all(|n| *n == 1);
    shape.len() == of.len() && first.is_some_and(fits)
}

/// The norm of rows that the result of a division is: `(x - mean) / sqrt(mean((x - mean)^2) + epsilon)`.
fn layer_norm(program: &Program, at: usize) -> Option<(Workload, ValueId)> {
    let [centred, deviation] = operands(&program.steps[at], Function2::Divide)?;
    let [x, m] = operands(writer(program, centred)?, Function2::Subtract)?;
    let (of, columns) = mean(program, m)?;
    let (same_columns, epsilon) = root_of_mean_square(program, deviation, centred)?;
    let elements = program.elements(program.steps[at].output);
    // Row by row they must be: of shapes that broadcast otherwise it is another function.
    let by_rows = |id: ValueId| is_of_rows(&program.values[id].shape, &program.values[x].shape, columns);
    if !by_rows(m)
        || !by_rows(deviation)
        || of != program.root(x)
        || same_columns != columns
        || program.elements(x) != elements
    {
        return None;
    }
    let function = RowFunction::LayerNorm(epsilon);
    Some((Workload::f32(RowWise { rows: elements / columns, columns, function }), x))
}

/// `sqrt(mean(x^2) + epsilon)` of rows, if a value is that: how long they are, and the epsilon.
fn root_of_mean_square(program: &Program, root: ValueId, x: ValueId) -> Option<(i64, Epsilon)> {
    let (mean_square, epsilon) = sum(program, operand(writer(program, root)?, Function::Sqrt, &[])?)?;
    let (squares, columns) = mean(program, mean_square)?;
    let squared = writer(program, squares)?;
    let is_x = |id: ValueId| program.root(id) == program.root(x);
    let is_square = match (operands(squared, Function2::Pow), operands(squared, Function2::Multiply)) {
        (Some([base, exponent]), _) => is_x(base) && scalar(program, exponent) == Some(2.0),
        (_, Some(sides)) => sides.into_iter().all(is_x),
        _ => false,
    };
    let digits = (1..=30).find(|digits| (epsilon / 10f64.powi(-digits) - 1.0).abs() < 1e-3)?;
    is_square.then_some((columns, Epsilon { digits: digits.into() }))
}

/// The norm of rows that a product or a quotient is: `x / sqrt(mean(x^2) + epsilon)`.
fn rms_norm(program: &Program, at: usize) -> Option<(Workload, ValueId)> {
    let step = &program.steps[at];
    // `seen` is what has a number for each row of `x`: the root, or one over it.
    let found = |x: ValueId, root: ValueId, seen: ValueId| {
        let (columns, epsilon) = root_of_mean_square(program, root, x)?;
        let by_rows = is_of_rows(&program.values[seen].shape, &program.values[x].shape, columns);
        (by_rows && program.elements(x) == program.elements(step.output)).then_some((x, columns, epsilon))
    };
    // The root itself, of which a value is one over.
    let inverse = |id: ValueId| {
        let step = writer(program, id)?;
        let quotient = operands(step, Function2::Divide).filter(|[one, _]| scalar(program, *one) == Some(1.0));
        quotient.map(|[_, root]| root).or_else(|| operand(step, Function::Reciprocal, &[]))
    };
    let quotient = operands(step, Function2::Divide).and_then(|[x, root]| found(x, root, root));
    let product = || {
        let [x, y] = operands(step, Function2::Multiply)?;
        let of = |x, y| inverse(y).and_then(|root| found(x, root, y));
        of(x, y).or_else(|| of(y, x))
    };
    let (x, columns, epsilon) = quotient.or_else(product)?;
    let rows = program.elements(x) / columns;
    Some((Workload::f32(RowWise { rows, columns, function: RowFunction::RmsNorm(epsilon) }), program.root(x)))
}
