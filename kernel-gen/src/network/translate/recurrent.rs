//! Recurrent layers, one step of time after the other: `LSTM`, `GRU` and `RNN`.

use super::builder::{Builder, Call};
use super::element::binary;
use super::movement::{self, part, permuted};
use super::operands::required;
use crate::network::model::{Attribute, Node};
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::Epilogue;

/// Most steps of time: each is two launches or three, and passes look through all of them for each.
const MOST_STEPS: i64 = 1024;
/// Most of a GRU that resets first, of which each is up to ten.
const MOST_STEPS_OF_TEN: i64 = 256;

/// What a layer is, and its extents.
struct Layer {
    /// Gates: 4 of an LSTM, 3 of a GRU, 1 of an RNN.
    gates: i64,
    /// Steps of time, sequences, elements of a state and of an input.
    steps: i64,
    batch: i64,
    hidden: i64,
    inputs: i64,
}

/// The operands of one direction: weights of the input and of the state, what is added behind both products, and the first states.
struct Direction {
    of_input: ValueId,
    of_state: ValueId,
    bias: Option<[ValueId; 2]>,
    state: Option<ValueId>,
    cell: Option<ValueId>,
}

/// A layer's results: the states of all steps, the last state, and the last cell of an LSTM.
pub(super) fn layer(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault> {
    let [mut input, weights] = [required(x, 0)?, required(x, 1)?];
    // Sequences may be the first dimension of input, states and results; steps are here.
    let turned = node.flag("layout");
    let mut operands = x.to_vec();
    if turned {
        input = swapped(b, input)?;
        operands[0] = Some(input);
        for state in operands.iter_mut().skip(5).take(2).flatten() {
            *state = swapped(b, *state)?;
        }
    }
    let x = &operands[..];
    let (shape, of_input) = (b.shape(input), b.shape(weights));
    let gates = match node.op.as_str() {
        "LSTM" => 4,
        "GRU" => 3,
        _ => 1,
    };
    let ([steps, batch, inputs], [directions, rows, columns]) = (&shape[..], &of_input[..]) else {
        return Err(Fault::new(format!("an input of {shape:?} and weights of {of_input:?}"), "export the model again"));
    };
    let resets_first = gates == 3 && !node.flag("linear_before_reset");
    let most = if resets_first { MOST_STEPS_OF_TEN } else { MOST_STEPS };
    if *steps > most {
        let help = format!("use sequences of at most {most} steps");
        return Err(Fault::new(format!("it has {steps} steps of time"), help));
    }
    if *rows < gates || rows % gates != 0 {
        return Err(Fault::new(format!("{rows} rows of weights for {gates} gates"), "export the model again"));
    }
    let layer = Layer { gates, steps: *steps, batch: *batch, hidden: rows / gates, inputs: *inputs };
    check(b, node, x, &layer)?;
    let backwards: &[bool] = match node.text("direction", "forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(Fault::attribute("direction", other, "the direction forward, reverse or bidirectional")),
    };
    if *directions != backwards.len() as i64 || columns != inputs {
        return Err(Fault::new(format!("weights of {of_input:?} for an input of {shape:?}"), "export the model again"));
    }
    let mut all = vec![];
    for (number, reverse) in backwards.iter().enumerate() {
        let of = direction(b, x, &layer, [number as i64, *directions])?;
        all.push(match resets_first {
            true => (reset_first(b, &layer, input, &of, *reverse)?, None),
            false => run(b, &layer, input, &of, *reverse)?,
        });
    }
    // Step by step, and within a step direction by direction.
    let in_order = (0..*steps as usize).flat_map(|t| all.iter().map(move |(states, _)| states[t])).collect();
    let states = movement::along(b, in_order, 0)?;
    let states = b.view(states, &[*steps, *directions, *batch, layer.hidden])?;
    let mut last = vec![];
    for (number, reverse) in backwards.iter().enumerate() {
        let (states, cell) = &all[number];
        last.push([Some(states[if *reverse { 0 } else { *steps as usize - 1 }]), *cell]);
    }
    let mut found = vec![states];
    for i in 0..if gates == 4 { 2 } else { 1 } {
        let ends = movement::along(b, last.iter().filter_map(|ends| ends[i]).collect(), 0)?;
        found.push(b.view(ends, &[*directions, *batch, layer.hidden])?);
    }
    if turned {
        found[0] = permuted(b, found[0], &[2, 0, 1, 3])?;
        for state in &mut found[1..] {
            *state = swapped(b, *state)?;
        }
    }
    Ok(found)
}

/// A tensor with its first two dimensions in the other order.
fn swapped(b: &mut Builder, x: ValueId) -> Result<ValueId, Fault> {
    let shape = b.shape(x);
    if shape.len() < 2 {
        return Err(Fault::new(format!("sequences or states of {shape:?}"), "export the model again"));
    }
    let order: Vec<usize> = [1, 0].into_iter().chain(2..shape.len()).collect();
    permuted(b, x, &order)
}

/// The product of rows and a weight: `[m, k]` by `[n, k]`.
fn product(x: ValueId, weight: ValueId, [m, n, k]: [i64; 3]) -> Call {
    Call::new("matmul", &[x, weight]).key("a", &[m, k]).key("b", &[n, k]).flag("trans_b", true)
}

/// Refuses what layers may have beyond the usual.
fn check(b: &Builder, node: &Node, x: &[Option<ValueId>], layer: &Layer) -> Result<(), Fault> {
    if node.flag("input_forget") {
        return Err(Fault::attribute("input_forget", 1, "input_forget = 0"));
    }
    let usual: &[&str] = match layer.gates {
        4 => &["Sigmoid", "Tanh", "Tanh"],
        3 => &["Sigmoid", "Tanh"],
        _ => &["Tanh"],
    };
    if let Some(Attribute::Texts(all)) = node.attributes.get("activations")
        && all.chunks(usual.len()).any(|some| some != usual)
    {
        return Err(Fault::attribute("activations", format!("{all:?}"), &format!("the activations {usual:?}")));
    }
    if node.attributes.contains_key("clip") {
        return Err(Fault::attribute("clip", node.float("clip", 0.0), "no clip"));
    }
    if x.get(7).copied().flatten().is_some() {
        return Err(Fault::new("it has peepholes", "export the model without"));
    }
    if let Some(lengths) = x.get(4).copied().flatten()
        && b.integers("lengths", lengths)?.iter().any(|length| *length != layer.steps)
    {
        return Err(Fault::new("its sequences are of different lengths", "let all have as many steps as the input"));
    }
    Ok(())
}

/// The operands of a direction.
fn direction(
    b: &mut Builder,
    x: &[Option<ValueId>],
    layer: &Layer,
    [number, directions]: [i64; 2],
) -> Result<Direction, Fault> {
    let Layer { gates, hidden, batch, inputs, .. } = *layer;
    let all = gates * hidden;
    // What a direction has of an operand, in another shape.
    let own = |b: &mut Builder, id: ValueId, shape: &[i64]| -> Result<ValueId, Fault> {
        let elements = shape.iter().product::<i64>();
        let of = b.view(id, &[directions, elements])?;
        let one = part(b, of, &[number, 0], &[1, elements], &[1, 1])?;
        b.view(one, shape)
    };
    let of_input = own(b, required(x, 1)?, &[all, inputs])?;
    let of_state = own(b, required(x, 2)?, &[all, hidden])?;
    let bias = match x.get(3).copied().flatten() {
        Some(id) => {
            let both = own(b, id, &[2, all])?;
            let mut halves = [both; 2];
            for (i, half) in (0..).zip(&mut halves) {
                let one = part(b, both, &[i, 0], &[1, all], &[1, 1])?;
                *half = b.view(one, &[all])?;
            }
            Some(halves)
        }
        None => None,
    };
    let mut first = |at: usize| match x.get(at).copied().flatten() {
        // Zeros have no part in what follows.
        Some(id) if b.constant(id).is_some_and(|c| c.to_floats().iter().all(|v| *v == 0.0)) => Ok(None),
        Some(id) => own(b, id, &[batch, hidden]).map(Some),
        None => Ok(None),
    };
    let (state, cell) = (first(5)?, if gates == 4 { first(6)? } else { None });
    Ok(Direction { of_input, of_state, bias, state, cell })
}

/// The states of all steps in the order of time, and the last cell.
fn run(
    b: &mut Builder,
    layer: &Layer,
    input: ValueId,
    of: &Direction,
    reverse: bool,
) -> Result<(Vec<ValueId>, Option<ValueId>), Fault> {
    let Layer { gates, steps, batch, hidden, inputs } = *layer;
    let (rows, all) = (steps * batch, gates * hidden);
    // The products of the inputs are one; a GRU's reset gate takes the state's bias, too.
    let input = b.view(input, &[rows, inputs])?;
    let mut call = product(input, of.of_input, [rows, all, inputs]);
    if let Some([of_input, of_state]) = of.bias {
        let bias = if gates == 3 { of_input } else { binary(b, "add", of_input, of_state)? };
        call = call.then(Epilogue::Bias, &[bias]);
    }
    let products = b.compute(call)?;
    let zeros = |b: &mut Builder, extents: &[i64]| {
        let count = extents.iter().product::<i64>();
        b.allow(count, 0)?;
        Ok(b.add_constant(Tensor::floats(extents, vec![0.0; count as usize])))
    };
    let (mut state, mut cell) = (of.state, of.cell);
    let mut states = vec![None; steps as usize];
    for step in 0..steps {
        let t = if reverse { steps - 1 - step } else { step };
        let own = part(b, products, &[t * batch, 0], &[batch, all], &[1, 1])?;
        // What the state gives, to which an LSTM's and an RNN's products of the input are added at once.
        let product = match state {
            Some(state) => {
                let call = product(state, of.of_state, [batch, all, hidden]);
                Some(match (gates, of.bias) {
                    (3, Some([_, bias])) => b.compute(call.then(Epilogue::Bias, &[bias]))?,
                    (3, None) => b.compute(call)?,
                    (1, _) => b.compute(call.then(Epilogue::ResidualAdd, &[own]).then(Epilogue::Tanh, &[]))?,
                    _ => b.compute(call.then(Epilogue::ResidualAdd, &[own]))?,
                })
            }
            None => None,
        };
        let of_cell = |kind| Call::new(kind, &[]).key("state", &[batch, hidden]);
        let next = match (gates, product) {
            (4, product) => {
                let gates = product.unwrap_or(own);
                let before = cell.map_or_else(|| zeros(b, &[batch, hidden]), Ok)?;
                let new = b.compute(of_cell("lstm_cell").of(&[gates, before]))?;
                cell = Some(new);
                b.compute(of_cell("lstm_output").of(&[gates, new]))?
            }
            (3, product) => {
                let of_state = match (product, of.bias) {
                    (Some(product), _) => product,
                    // Of a state of zeros only the bias is left, for each sequence.
                    (None, Some([_, bias])) => {
                        let row = b.view(bias, &[1, all])?;
                        let zeros = zeros(b, &[batch, all])?;
                        binary(b, "add", zeros, row)?
                    }
                    (None, None) => zeros(b, &[batch, all])?,
                };
                let before = state.map_or_else(|| zeros(b, &[batch, hidden]), Ok)?;
                b.compute(of_cell("gru_cell").of(&[own, of_state, before]))?
            }
            (_, Some(product)) => product,
            (_, None) => {
                let call = Call::new("identity", &[own]).key("input", &[batch, all]);
                b.compute(call.then(Epilogue::Tanh, &[]))?
            }
        };
        state = Some(next);
        states[t as usize] = Some(next);
    }
    Ok((states.into_iter().flatten().collect(), cell))
}

/// The states of a GRU that resets the state in front of its product: `h' = (1 - z) tanh(x Wh + (r h) Rh + b) + z h`, with the gates
/// `z` and `r` of the input and the state.
fn reset_first(
    b: &mut Builder,
    layer: &Layer,
    input: ValueId,
    of: &Direction,
    reverse: bool,
) -> Result<Vec<ValueId>, Fault> {
    let Layer { steps, batch, hidden, inputs, .. } = *layer;
    let input = b.view(input, &[steps * batch, inputs])?;
    let bias = match of.bias {
        Some([of_input, of_state]) => Some(binary(b, "add", of_input, of_state)?),
        None => None,
    };
    // The gates, and what is new: rows of the weights, and the products of the inputs with them.
    let mut weights = vec![];
    let mut products = vec![];
    for (first, rows) in [(0, 2 * hidden), (2 * hidden, hidden)] {
        weights.push(part(b, of.of_state, &[first, 0], &[rows, hidden], &[1, 1])?);
        let weight = part(b, of.of_input, &[first, 0], &[rows, inputs], &[1, 1])?;
        let call = product(input, weight, [steps * batch, rows, inputs]);
        let call = match bias {
            Some(bias) => {
                let bias = part(b, bias, &[first], &[rows], &[1])?;
                call.then(Epilogue::Bias, &[bias])
            }
            None => call,
        };
        products.push(b.compute(call)?);
    }
    let mut state = of.state;
    let mut states = vec![None; steps as usize];
    for step in 0..steps {
        let t = if reverse { steps - 1 - step } else { step };
        // What the input gives and, if there is a state, its product, through a function.
        let gate = |b: &mut Builder, which: usize, columns: i64, state: Option<ValueId>, then: Epilogue| {
            let own = part(b, products[which], &[t * batch, 0], &[batch, columns], &[1, 1])?;
            let call = match state {
                Some(state) => {
                    product(state, weights[which], [batch, columns, hidden]).then(Epilogue::ResidualAdd, &[own])
                }
                None => Call::new("identity", &[own]).key("input", &[batch, columns]),
            };
            b.compute(call.then(then, &[]))
        };
        let gates = gate(b, 0, 2 * hidden, state, Epilogue::Sigmoid)?;
        let update = part(b, gates, &[0, 0], &[batch, hidden], &[1, 1])?;
        let kept = match state {
            Some(state) => {
                let reset = part(b, gates, &[0, hidden], &[batch, hidden], &[1, 1])?;
                Some(binary(b, "multiply", reset, state)?)
            }
            None => None,
        };
        let new = gate(b, 1, hidden, kept, Epilogue::Tanh)?;
        // new + z (h - new)
        let apart = match state {
            Some(state) => binary(b, "subtract", state, new)?,
            None => b.compute(Call::new("negate", &[new]).key("input", &[batch, hidden]))?,
        };
        let moved = binary(b, "multiply", apart, update)?;
        let next = binary(b, "add", moved, new)?;
        state = Some(next);
        states[t as usize] = Some(next);
    }
    Ok(states.into_iter().flatten().collect())
}
