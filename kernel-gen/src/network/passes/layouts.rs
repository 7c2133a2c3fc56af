//! Lets images lie with their channels last, which tensor cores want: `[n, h, w, c]` in place of `[n, c, h, w]`.
//!
//! From one convolution to the next, all that can works on images in that order. What cannot gets them as the model has them, by a
//! permutation in between; so do the network's results. A permutation of the model that only says what the order is already costs
//! nothing.

use super::permutations;
use crate::network::program::{Program, Source, Step, ValueId};
use crate::network::tensor::{Data, Tensor};
use crate::workload::epilogue::Per;
use crate::workload::movement::{Move, Movement};
use crate::workload::{
    AvgPool2d, Binary, Concat, Conv2d, ConvLayout, Dims, Lookup, MaxPool2d, Op, Reduce, Resize, Role, Slices, Unary,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the dimensions of `[n, h, w, c]` stand in `[n, c, h, w]`.
const LAST: [usize; 4] = [0, 2, 3, 1];

/// Where the dimensions of a weight `[kh, kw, ci, co]` stand in `[co, ci, kh, kw]`.
const FILTER: [usize; 4] = [2, 3, 1, 0];

/// Turns all images that convolutions work on.
pub(super) fn channels_last(program: &mut Program) {
    let steps = std::mem::take(&mut program.steps);
    let mut turner = Turner { program, turned: BTreeMap::new() };
    for step in steps {
        if !turner.turn(&step) {
            for id in &step.operands {
                turner.plain(*id);
            }
            turner.program.steps.push(step);
        }
    }
    for (_, id) in turner.program.outputs.clone() {
        turner.plain(id);
    }
}

struct Turner<'a> {
    program: &'a mut Program,
    /// Values with their channels last, by the value that has the same elements in the model's order. The latter is there itself if
    /// no step has written it so far.
    turned: BTreeMap<ValueId, Turned>,
}

/// An image with its channels last.
#[derive(Clone, Copy)]
struct Turned {
    /// `[n, h, w, c]`.
    value: ValueId,
    /// Whether the value in the model's order is there, too.
    both: bool,
}

/// A list as another one of its dimensions.
fn permuted(list: &[i64], order: [usize; 4]) -> [i64; 4] {
    order.map(|i| list[i])
}

/// Four extents.
fn image(shape: &[i64]) -> Option<[i64; 4]> {
    shape.try_into().ok()
}

/// The extents of a shape of fewer dimensions, aligned at the last.
fn raised(shape: &[i64]) -> Option<[i64; 4]> {
    let mut all = [1; 4];
    all[4_usize.checked_sub(shape.len())?..].copy_from_slice(shape);
    Some(all)
}

/// Whether both orders of an image are one.
fn is_trivial([_, c, h, w]: [i64; 4]) -> bool {
    c == 1 || h * w == 1
}

fn dims(list: &[i64]) -> Dims {
    Dims::new(list).expect("one to six numbers")
}

/// The elements of a constant in another order.
fn reordered(tensor: &Tensor, order: [usize; 4]) -> Tensor {
    fn of<T: Copy>(data: &[T], shape: [i64; 4], order: [usize; 4]) -> Arc<[T]> {
        let strides = [shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1];
        let ([a, b, c, d], s) = (permuted(&shape, order), permuted(&strides, order));
        let rows = (0..a).flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| i * s[0] + j * s[1] + k * s[2])));
        rows.flat_map(|row| (0..d).map(move |l| data[(row + l * s[3]) as usize])).collect()
    }
    let shape = image(&tensor.shape).expect("four dimensions");
    let data = match &tensor.data {
        Data::Floats(all) => Data::Floats(of(all, shape, order)),
        Data::Integers(all) => Data::Integers(of(all, shape, order)),
    };
    Tensor { shape: permuted(&shape, order).to_vec(), data, byte: tensor.byte, four_bits: tensor.four_bits }
}

impl Turner<'_> {
    fn shape(&self, id: ValueId) -> &[i64] {
        &self.program.values[id].shape
    }

    /// A view of a value.
    fn view(&mut self, of: ValueId, shape: &[i64]) -> ValueId {
        let dtype = self.program.values[of].dtype;
        self.program.add(shape, dtype, Source::View(of))
    }

    /// The value with its channels last that is there for a value of four dimensions.
    fn known(&self, id: ValueId) -> Option<ValueId> {
        let wanted = permuted(&image(self.shape(id))?, LAST);
        let all = [self.program.root(id), id];
        let all = all.into_iter().filter_map(|id| self.turned.get(&id).map(|turned| turned.value));
        all.into_iter().find(|value| *self.shape(*value) == wanted)
    }

    /// Lets a value be there as the model has it.
    fn plain(&mut self, id: ValueId) {
        let root = self.program.root(id);
        let Some(Turned { value, both: false }) = self.turned.get(&root).copied() else { return };
        self.turned.insert(root, Turned { value, both: true });
        let [n, h, w, c] = image(self.shape(value)).expect("turned values are images");
        if is_trivial([n, c, h, w]) {
            self.program.values[root].source = Source::View(value);
        } else {
            self.permute(value, [n, h * w, c], root);
        }
    }

    /// Adds a step that exchanges the last two of three dimensions.
    fn permute(&mut self, from: ValueId, shape: [i64; 3], output: ValueId) {
        let nodes = vec![format!("order of {}", self.name(output))];
        let of = (from, self.program.values[from].dtype);
        let step = permutations::step(nodes, &shape, &[0, 2, 1], of, output);
        self.program.steps.push(step);
    }

    /// What a value is called in descriptions.
    fn name(&self, id: ValueId) -> String {
        let name = &self.program.values[id].name;
        if name.is_empty() { "a result".into() } else { name.clone() }
    }

    /// A value of four dimensions with its channels last, by a permutation if it must be.
    fn last(&mut self, id: ValueId) -> ValueId {
        if let Some(known) = self.known(id) {
            return known;
        }
        let shape = image(self.shape(id)).expect("four dimensions");
        let turned = permuted(&shape, LAST);
        let value = if let Some(constant) = self.program.constant(id) {
            self.program.add_constant(reordered(&constant, LAST))
        } else {
            self.plain(id);
            if is_trivial(shape) {
                self.view(id, &turned)
            } else {
                let [n, c, h, w] = shape;
                let dtype = self.program.values[id].dtype;
                let value = self.program.add(&turned, dtype, Source::Step);
                self.program.values[value].name = self.program.values[id].name.clone();
                self.permute(id, [n, c, h * w], value);
                value
            }
        };
        self.turned.insert(id, Turned { value, both: true });
        value
    }

    /// Lets a step work on images whose channels are last, if it can.
    fn turn(&mut self, step: &Step) -> bool {
        if !step.slices.is_empty() {
            return false;
        }
        match &step.workload.op {
            Op::Movement(Movement { function: Move::Permute { order }, .. }) => self.permutation(step, order),
            Op::Reduce(reduce) => self.reduction(step, reduce),
            _ => self.of_images(step),
        }
    }

    /// A permutation that makes the channels of an image its last dimension, or back, or that shuffles channels.
    fn permutation(&mut self, step: &Step, order: &[i64]) -> bool {
        let (of, rank) = (step.operands[0], order.len() as i64);
        if !step.workload.epilogue.is_empty() {
            return false;
        }
        let shape = self.shape(of).to_vec();
        let root = self.program.root(of);
        let turned = self.turned.get(&root).map(|turned| turned.value);
        let image_of = turned.map(|value| (value, image(self.shape(value)).expect("turned values are images")));
        if let Some((value, [n, _, _, c])) = image_of
            && shape.len() as i64 == rank
            && shape[..2] == [n, c]
            && order.iter().copied().eq([0].into_iter().chain(2..rank).chain([1]))
        {
            self.program.values[step.output].source = Source::View(value);
            return true;
        }
        if let [0, 2, 1, 3, 4] = order
            && let Some((value, [n, h, w, c])) = image_of
            && let [_, groups, each, ..] = shape[..]
            && shape == [n, groups, each, h, w]
            && c == groups * each
        {
            let output = self.program.add(&[n, h, w, c], self.program.values[of].dtype, Source::Step);
            self.permute(value, [n * h * w, groups, each], output);
            self.program.steps.last_mut().expect("it was added").nodes = step.nodes.clone();
            self.turned.insert(step.output, Turned { value: output, both: false });
            return true;
        }
        if order == [0, 3, 1, 2] {
            self.plain(of);
            let value = self.view(of, &shape);
            self.turned.insert(step.output, Turned { value, both: false });
            return true;
        }
        false
    }

    /// A reduction of all pixels of each channel: what it gives is the same in both orders.
    fn reduction(&mut self, step: &Step, reduce: &Reduce) -> bool {
        let of = step.operands[0];
        let Some(turned) = self.turned.get(&self.program.root(of)).map(|turned| turned.value) else { return false };
        let [n, h, w, c] = image(self.shape(turned)).expect("turned values are images");
        let (input, marks) = (&reduce.input[..], &reduce.combined[..]);
        let fits = input == [n * c, h * w] && marks == [0, 1]
            || input == [n, c, h * w] && marks == [0, 0, 1]
            || input == [n, c, h, w] && marks == [0, 0, 1, 1];
        if !fits || step.operands.len() > 1 || c == 1 {
            return false;
        }
        let (input, combined) = ([n, h * w, c], [0, 1, 0]);
        let mut step = step.clone();
        step.operands = vec![self.view(turned, &input)];
        step.said.keys = vec![list("input", &input), list("axes", &[1])];
        step.workload.op = Reduce { input: dims(&input), combined: dims(&combined), ..*reduce }.into();
        if step.workload.validate().is_err() {
            return false;
        }
        self.program.steps.push(step);
        true
    }

    /// A step whose operands and result are images.
    fn of_images(&mut self, step: &Step) -> bool {
        let Some((op, keys)) = self.channels_last_of(step) else { return false };
        let mut workload = step.workload.clone();
        let inputs = workload.op.get().inputs().len();
        workload.op = op;
        let output = step.output;
        let Some(shape) = image(self.shape(output)) else { return false };
        // Operands of the epilogue: those of elements are images, too.
        let steps = workload.epilogue.iter().flat_map(|step| step.operands());
        let per: Vec<Per> = steps.map(|operand| operand.per).collect();
        let zeros = workload.operator_params();
        let rest = &step.operands[zeros..];
        let fits = |(per, id): (&Per, &ValueId)| *per != Per::Element || *self.shape(*id) == shape;
        if workload.validate().is_err() || !per.iter().zip(rest).all(fits) {
            return false;
        }
        let is_conv = matches!(workload.op, Op::Conv2d(_));
        let is_weight: Vec<bool> = workload.op.get().inputs().iter().map(|o| o.role == Role::Weight).collect();
        let mut operands = vec![];
        for (i, id) in step.operands.iter().enumerate() {
            let is_image = i >= zeros && per[i - zeros] == Per::Element || i < inputs && !is_weight[i];
            operands.push(if is_conv && i == 1 {
                let weight = self.program.constant(*id).expect("it was asked for");
                self.program.add_constant(reordered(&weight, FILTER))
            } else if is_image {
                let four = match self.shape(*id).len() {
                    4 => *id,
                    _ => {
                        let shape = raised(self.shape(*id)).expect("at most four dimensions");
                        self.view(*id, &shape)
                    }
                };
                self.last(four)
            } else {
                self.plain(*id);
                *id
            });
        }
        let value = self.program.add(&permuted(&shape, LAST), self.program.values[output].dtype, Source::Step);
        self.program.values[value].name = self.program.values[output].name.clone();
        let mut said = step.said.clone();
        for (key, text) in keys {
            match said.keys.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = text,
                None => said.keys.push((key, text)),
            }
        }
        let nodes = step.nodes.clone();
        self.program.steps.push(Step { nodes, workload, said, slices: Slices::default(), operands, output: value });
        self.turned.insert(output, Turned { value, both: false });
        true
    }

    /// The operator of a step with the channels last, and the keys of a spec that say so; nothing if that is not to be.
    fn channels_last_of(&self, step: &Step) -> Option<(Op, Vec<(&'static str, String)>)> {
        let output = image(self.shape(step.output)).filter(|shape| *shape == step.workload.output_shape()[..])?;
        let params = step.workload.params();
        let has_shape = |(id, shape): (&ValueId, &Vec<i64>)| raised(self.shape(*id)) == raised(shape);
        let all = step.operands.iter().zip(params.iter().map(|param| &param.shape));
        all.take(step.workload.op.get().inputs().len()).all(has_shape).then_some(())?;
        let [n, h, w, c] = permuted(&output, LAST);
        let layout = ConvLayout::Nhwc;
        let given = |i: usize| image(self.shape(step.operands[i])).map(|shape| permuted(&shape, LAST));
        // A convolution is worth a permutation; all others only go on with what is turned already.
        let inputs = step.workload.op.get().inputs().len();
        let goes_on = || step.operands[..inputs].iter().any(|id| self.known(*id).is_some());
        let per_channel = step.workload.epilogue.iter().flat_map(|step| step.operands()).any(|o| o.per == Per::Channel);
        let per_image = step.workload.epilogue.iter().flat_map(|step| step.operands()).any(|o| o.per == Per::Image);
        let op: (Op, Vec<(&'static str, String)>) = match step.workload.op {
            Op::Conv2d(conv) if conv.layout == ConvLayout::Nchw => {
                let weight = self.program.constant(step.operands[1])?;
                let filter = permuted(&image(&weight.shape)?, FILTER);
                let is_plain = conv.groups == 1 || conv.multiplier() == Some(1);
                let turned = Conv2d { layout, ..conv };
                is_plain.then(|| (turned.into(), vec![list("weight", &filter)]))?
            }
            Op::MaxPool2d(pool) if goes_on() => (MaxPool2d { window: Conv2d { layout, ..pool.window } }.into(), vec![]),
            Op::AvgPool2d(pool) if goes_on() => {
                (AvgPool2d { window: Conv2d { layout, ..pool.window }, ..pool }.into(), vec![])
            }
            Op::Lookup(_) if goes_on() => (Lookup { input: dims(&[n, h, w, c]) }.into(), vec![]),
            Op::Resize(resize) if goes_on() => (Resize { layout, ..resize }.into(), vec![]),
            Op::Unary(unary) if goes_on() && !per_image && unary.input[..] == output => {
                // The second dimension of a tensor counts channels.
                let input = if per_channel { vec![n * h * w, c] } else { vec![n, h, w, c] };
                return Some((Unary { input: dims(&input), ..unary }.into(), vec![list("input", &input)]));
            }
            Op::Binary(binary) if goes_on() && !per_image => {
                let (a, b) = (permuted(&raised(&binary.a)?, LAST), permuted(&raised(&binary.b)?, LAST));
                let whole = a == [n, h, w, c] && b == a;
                let (a, b) = match per_channel {
                    true if whole => (vec![n * h * w, c], vec![n * h * w, c]),
                    true => return None,
                    false => (a.to_vec(), b.to_vec()),
                };
                let keys = vec![list("a", &a), list("b", &b)];
                return Some((Binary { a: dims(&a), b: dims(&b), ..binary }.into(), keys));
            }
            Op::Concat(concat) if goes_on() && concat.axis == 1 && !per_channel && !per_image => {
                (Concat { input: dims(&given(0)?), axis: 3, ..concat }.into(), vec![("axis", "3".into())])
            }
            Op::Movement(Movement { input, function: Move::Slice { start, size, step } })
                if goes_on() && !per_channel && !per_image =>
            {
                let [start, size, step] = [start, size, step].map(|list| permuted(&list, LAST));
                let keys = vec![list("start", &start), list("size", &size), list("step", &step)];
                let function = Move::Slice { start: dims(&start), size: dims(&size), step: dims(&step) };
                (Movement { input: dims(&permuted(&input, LAST)), function }.into(), keys)
            }
            Op::Movement(Movement { input, function: Move::Pad { before, after, outside } })
                if goes_on() && !per_channel && !per_image =>
            {
                let [before, after] = [before, after].map(|list| permuted(&list, LAST));
                let keys = vec![list("before", &before), list("after", &after)];
                let function = Move::Pad { before: dims(&before), after: dims(&after), outside };
                (Movement { input: dims(&permuted(&input, LAST)), function }.into(), keys)
            }
            _ => return None,
        };
        let mut keys = op.1;
        keys.push(list("input", &given(0)?));
        Some((op.0, keys))
    }
}

/// A key of a spec that is a list.
fn list(key: &'static str, numbers: &[i64]) -> (&'static str, String) {
    (key, format!("{numbers:?}"))
}
