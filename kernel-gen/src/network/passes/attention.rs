//! Recognises attention in the products that exporters write: `softmax(scale * q kT + mask) v`.

use super::patterns::{near, operands, product, scalar, writer};
use super::permutations;
use crate::network::program::{Program, Said, Source, Step, ValueId};
use crate::network::tensor::Tensor;
use crate::workload::attention::{HeadOrder, MOST_MASK, Mask};
use crate::workload::binary::{Function2, broadcast};
use crate::workload::dims::MAX_RANK;
use crate::workload::movement::{Move, Movement};
use crate::workload::row_wise::{RowFunction, RowWise};
use crate::workload::unary::Function;
use crate::workload::{Attention, Binary, Dims, Matmul, Op, Slices, Workload};
use std::cmp::Ordering;

/// How many times its constants' elements a mask may have that is written out for all heads.
const MOST_TIMES: i64 = 8;

/// Replaces the last product of each attention by the whole. What the others were for is dead then.
pub(super) fn recognise(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        if let Some(found) = find(program, at) {
            at += replace(program, at, found);
        }
        at += 1;
    }
}

/// A value, and the extents and the order of the permutation that it needs, if there is one.
type Permuted = (ValueId, Option<(Vec<i64>, Vec<i64>)>);

/// An attention.
struct Found {
    of: Attention,
    /// The queries, in their order.
    q: ValueId,
    /// What they have to be multiplied by, so that attention's own factor makes of it the model's.
    factor: f64,
    /// The keys, in their order but for a permutation of these extents, if there is one.
    k: Permuted,
    v: ValueId,
    mask: MaskOf,
}

/// What is added to the scores.
enum MaskOf {
    Nothing,
    /// A constant of the mask's extents.
    Constant(Vec<f32>),
    /// The sum of what steps or the caller give, and of constants: it broadcasts in this shape to the mask's extents.
    Computed(Vec<Term>, Vec<i64>),
}

/// A summand of a mask.
enum Term {
    Value(ValueId),
    Constant(Tensor),
}

/// The product of matrices in a batch that a step is, if it has no epilogue.
fn batch_matmul(step: &Step) -> Option<Matmul> {
    match step.workload.op {
        Op::Matmul(product) if product.batch > 1 && !product.trans_a && step.workload.epilogue.is_empty() => {
            Some(product)
        }
        _ => None,
    }
}

/// The attention whose last product step `at` is.
fn find(program: &Program, at: usize) -> Option<Found> {
    let last = &program.steps[at];
    let Matmul { batch, m, n: dv, k: n, trans_b: false, .. } = batch_matmul(last)? else { return None };
    let weights = last.operands[0];
    let softmax = softmax_of(program, weights)?;
    let is_softmax = matches!(softmax.workload.op,
        Op::RowWise(RowWise { rows, columns, function: RowFunction::Softmax }) if rows == batch * m && columns == n);
    if !is_softmax || !softmax.workload.epilogue.is_empty() {
        return None;
    }
    // From the softmax back to the scores: factors, and summands that are constant.
    let (mut id, mut factor, mut masks) = (softmax.operands[0], 1.0, vec![]);
    let mut computed: Vec<(ValueId, Vec<i64>)> = vec![];
    let scores = loop {
        let step = writer(program, id)?;
        if program.elements(id) != batch * m * n {
            return None;
        }
        if batch_matmul(step).is_some() {
            break step;
        }
        if let Some([x, y]) = operands(step, Function2::Add) {
            let (x, y) = if is_summand(program, y, x) { (x, y) } else { (y, x) };
            match program.constant(y) {
                Some(constant) => masks.push((constant, step.workload.output_shape(), factor)),
                // One that is computed is taken as it is.
                None if factor == 1.0 => computed.push((y, step.workload.output_shape())),
                None => return None,
            }
            id = x;
        } else if let Some([x, y]) = operands(step, Function2::Multiply) {
            let (x, y) = if scalar(program, y).is_some() { (x, y) } else { (y, x) };
            factor *= scalar(program, y)?;
            id = x;
        } else {
            let [x, y] = operands(step, Function2::Divide)?;
            factor /= scalar(program, y).filter(|d| *d != 0.0)?;
            id = x;
        }
    };
    let product_of_scores = batch_matmul(scores)?;
    let d = product_of_scores.k;
    if [product_of_scores.batch, product_of_scores.m, product_of_scores.n] != [batch, m, n] {
        return None;
    }
    let ((of_q, q), (of_k, k)) = (product(program, scores.operands[0]), product(program, scores.operands[1]));
    let ([q], [k]) = (&q[..], &k[..]) else { return None };
    let factor = factor * of_q * of_k * (d as f64).sqrt();
    let k = if product_of_scores.trans_b { (*k, None) } else { columns_to_rows(program, *k, [batch, d, n]) };
    // The model's own shapes of the scores and of their weights say which of the products are an image's.
    let shapes = |id: ValueId| {
        let seen = |id: &ValueId| if let Source::View(of) = program.values[*id].source { Some(of) } else { None };
        std::iter::successors(Some(id), seen).map(|id| &program.values[id].shape[..])
    };
    let (b, heads) = shapes(weights)
        .chain(shapes(softmax.operands[0]))
        .find_map(|shape| match *shape {
            [b, heads, rows, keys] if [b * heads, rows, keys] == [batch, m, n] => Some((b, heads)),
            _ => None,
        })
        .unwrap_or((1, batch));
    let of = |kind| Attention {
        b,
        heads,
        kv_heads: heads,
        m,
        n,
        d,
        dv,
        causal: false,
        mask: kind,
        order: HeadOrder::HeadsFirst,
    };
    if !computed.is_empty() {
        let constants =
            masks.into_iter().map(|(tensor, shape, factor)| (Term::Constant(scaled(&tensor, factor)), shape));
        let (terms, sums): (Vec<Term>, Vec<Vec<i64>>) =
            constants.chain(computed.into_iter().map(|(id, shape)| (Term::Value(id), shape))).unzip();
        let (kind, shape) = computed_mask(program, &terms, &sums, &of(Mask::Each))?;
        return Some(Found {
            of: of(kind),
            q: *q,
            factor,
            k,
            v: last.operands[1],
            mask: MaskOf::Computed(terms, shape),
        });
    }
    // One matrix does for all heads, or one a head for all images, where no constant tells them apart.
    let of_heads =
        |(constant, ..): &(Tensor, Vec<i64>, f64)| constant.shape.iter().rev().nth(2).is_some_and(|n| *n != 1);
    let of_images = |mask: &(Tensor, Vec<i64>, f64)| {
        mask.0.shape.iter().rev().skip(3).any(|n| *n != 1)
            || of_heads(mask) && (b == 1 || mask.1.iter().rev().nth(2) != Some(&heads))
    };
    let (kind, extents) = if masks.is_empty() {
        (Mask::None, vec![])
    } else if masks.iter().any(of_images) {
        (Mask::Each, vec![b, heads, m, n])
    } else if masks.iter().any(of_heads) {
        (Mask::Heads, vec![heads, m, n])
    } else {
        (Mask::Shared, vec![m, n])
    };
    let elements = if kind == Mask::None { 0 } else { extents.iter().product() };
    let constants: usize = masks.iter().map(|(constant, ..)| constant.data.len()).sum();
    let written_out = matches!(kind, Mask::Heads | Mask::Each);
    if elements > MOST_MASK || written_out && elements > MOST_TIMES * constants as i64 {
        return None;
    }
    let mut mask: Option<Vec<f32>> = None;
    for (constant, shape, factor) in masks {
        let shape = match kind {
            Mask::Each => &shape[..],
            _ => &shape[shape.len().checked_sub(extents.len())?..],
        };
        add(mask.get_or_insert(vec![0.0; elements as usize]), &constant, shape, factor)?;
    }
    Some(Found {
        of: of(kind),
        q: *q,
        factor,
        k,
        v: last.operands[1],
        mask: mask.map_or(MaskOf::Nothing, MaskOf::Constant),
    })
}

/// The softmax whose weights a value is. Exporters write 0 where these are NaN, as they are where no key is seen: so is attention.
fn softmax_of(program: &Program, weights: ValueId) -> Option<&Step> {
    let step = writer(program, weights)?;
    if !matches!(step.workload.op, Op::Where(_)) || !step.workload.epilogue.is_empty() {
        return Some(step);
    }
    let [condition, zero, of] = step.operands[..] else { return None };
    let is_nan = writer(program, condition)?;
    let tests = matches!(&is_nan.workload.op, Op::Unary(u) if u.function == Function::IsNan);
    let same = program.root(is_nan.operands[0]) == program.root(of);
    (tests && same && scalar(program, zero) == Some(0.0)).then(|| writer(program, of))?
}

/// Whether the first of two summands is a mask, and the second the scores.
fn is_summand(program: &Program, mask: ValueId, scores: ValueId) -> bool {
    let constant = |id| program.constant(id).is_some();
    if constant(mask) != constant(scores) {
        return constant(mask);
    }
    match program.elements(mask).cmp(&program.elements(scores)) {
        Ordering::Equal => product_behind(program, scores),
        order => order == Ordering::Less,
    }
}

/// Whether a value is a product of matrices, times factors.
fn product_behind(program: &Program, id: ValueId) -> bool {
    let (_, terms) = product(program, id);
    terms.iter().any(|id| writer(program, *id).is_some_and(|step| batch_matmul(step).is_some()))
}

/// A constant times a factor.
fn scaled(tensor: &Tensor, factor: f64) -> Tensor {
    let numbers: Vec<f32> = tensor.to_floats().iter().map(|v| (factor * f64::from(*v)) as f32).collect();
    Tensor::floats(&tensor.shape, numbers)
}

/// The shape of a term of a mask.
fn shape_of<'a>(program: &'a Program, term: &'a Term) -> &'a [i64] {
    match term {
        Term::Value(id) => &program.values[*id].shape,
        Term::Constant(tensor) => &tensor.shape,
    }
}

/// The kind of mask that terms are together, whose sums with the scores have these shapes, and their own shape, as long as the mask's.
/// It is repeated along its extents of 1.
fn computed_mask(program: &Program, terms: &[Term], sums: &[Vec<i64>], of: &Attention) -> Option<(Mask, Vec<i64>)> {
    let sum = &sums[0];
    if sums.iter().any(|other| other != sum) {
        return None;
    }
    if sum.len() > MAX_RANK || terms.iter().any(|term| shape_of(program, term).len() > sum.len()) {
        return None;
    }
    let own = terms.iter().fold(vec![1; sum.len()], |own, term| broadcast(&own, shape_of(program, term)));
    // Heads and images may be one dimension.
    let ([outer @ .., rows, columns], [of_sum @ .., m, n]) = (&own[..], &sum[..]) else { return None };
    if [*m, *n] != [of.m, of.n] {
        return None;
    }
    let outer = match (outer, of_sum) {
        ([images, heads], [b, all]) if [*b, *all] == [of.b, of.heads] => [*images, *heads],
        (all, _) if all.iter().all(|n| *n == 1) => [1, 1],
        ([heads], _) if of.b == 1 && *heads == of.heads => [1, *heads],
        _ => return None,
    };
    let kind = match outer {
        [1, 1] => Mask::Shared,
        [1, _] => Mask::Heads,
        _ => Mask::Each,
    };
    let extents = Attention { mask: kind, ..*of }.mask_shape()?;
    let shape = [outer[0], outer[1], *rows, *columns][4 - extents.len()..].to_vec();
    (extents.iter().product::<i64>() <= MOST_MASK).then_some((kind, shape))
}

/// Adds a constant times a factor to a mask; `shape` is what it broadcasts to.
fn add(mask: &mut [f32], constant: &Tensor, shape: &[i64], factor: f64) -> Option<()> {
    // Leading extents of 1 that the shape lacks.
    let extents = &constant.shape[constant.shape.len().saturating_sub(shape.len())..];
    let raised = shape.len() - extents.len();
    if constant.data.is_empty() || shape.iter().product::<i64>() != mask.len() as i64 {
        return None;
    }
    let numbers = constant.to_floats();
    let mut index = vec![0; shape.len()];
    for sum in mask.iter_mut() {
        let own = index[raised..].iter().zip(extents);
        let at = own.fold(0, |at, (i, extent)| at * extent + if *extent == 1 { 0 } else { *i });
        *sum += (factor * f64::from(numbers[at as usize])) as f32;
        for (i, extent) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *extent {
                break;
            }
            *i = 0;
        }
    }
    Some(())
}

/// Where the keys `[batch, n, d]` are of which a value is `[batch, d, n]`: the value, and how it must be permuted.
fn columns_to_rows(program: &Program, k: ValueId, [batch, d, n]: [i64; 3]) -> Permuted {
    let own = (k, Some((vec![batch, d, n], vec![0, 2, 1])));
    let Some(step) = writer(program, k) else { return own };
    let Op::Movement(Movement { input, function: Move::Permute { order } }) = &step.workload.op else { return own };
    let output: Vec<i64> = order.iter().map(|i| input[*i as usize]).collect();
    let product = |part: &[i64]| part.iter().product::<i64>();
    let rank = output.len();
    let cut = (0..rank).flat_map(|i| (i + 1..rank).map(move |j| (i, j)));
    let mut fitting = cut.filter(|(i, j)| product(&output[*i..*j]) == d && product(&output[*j..]) == n);
    let Some((i, j)) = fitting.next().filter(|_| step.workload.epilogue.is_empty()) else { return own };
    let swapped = [&order[..i], &order[j..], &order[i..j]].concat();
    let is_identity = swapped.iter().filter(|a| input[**a as usize] != 1).is_sorted();
    (step.operands[0], (!is_identity).then(|| (input.to_vec(), swapped)))
}

/// Puts a step in front of step `at`, behind those that were `added` there. Gives its result.
fn insert(
    program: &mut Program,
    at: usize,
    added: &mut usize,
    op: Op,
    keys: Vec<(&'static str, String)>,
    operands: Vec<ValueId>,
) -> ValueId {
    let workload = Workload::f32(op);
    let output = program.add(&workload.output_shape(), workload.out_dtype, Source::Step);
    let nodes = program.steps[at + *added].nodes.clone();
    let step =
        Step { nodes, workload, said: Said { flags: vec![], keys }, slices: Slices::default(), operands, output };
    program.steps.insert(at + *added, step);
    *added += 1;
    output
}

/// A function of two tensors in front of step `at`.
fn insert_binary(
    program: &mut Program,
    at: usize,
    added: &mut usize,
    function: Function2,
    operands: [ValueId; 2],
) -> ValueId {
    let shapes = operands.map(|id| {
        let shape = program.values[id].shape.clone();
        match shape.len() {
            0 => vec![1],
            // What has more dimensions than operators take is multiplied by one number.
            rank if rank > MAX_RANK => vec![program.elements(id)],
            _ => shape,
        }
    });
    let [a, b] = [&shapes[0], &shapes[1]].map(|shape| Dims::new(shape).expect("it is an operand of a step"));
    let keys = vec![("a", format!("{:?}", shapes[0])), ("b", format!("{:?}", shapes[1]))];
    insert(program, at, added, Binary { a, b, function }.into(), keys, operands.to_vec())
}

/// The sum of terms of a mask, by steps in front of step `at`.
fn summed(program: &mut Program, terms: Vec<Term>, at: usize, added: &mut usize) -> ValueId {
    let mut sum = None;
    for term in terms {
        let id = match term {
            Term::Value(id) => id,
            Term::Constant(tensor) => program.add_constant(tensor),
        };
        sum = Some(sum.map_or(id, |sum| insert_binary(program, at, added, Function2::Add, [sum, id])));
    }
    sum.expect("there is a term")
}

/// Puts an attention in the place of its last product. Gives how many steps stand before it in addition.
fn replace(program: &mut Program, at: usize, found: Found) -> usize {
    let Found { of, mut q, factor, k: (k, order), v, mask } = found;
    let nodes = program.steps[at].nodes.clone();
    let (mut k, mut added) = (k, 0);
    if !near(factor, 1.0) {
        let factor = program.add_constant(Tensor::floats(&[1], [factor as f32]));
        let root = program.root(q);
        let moved = program.steps.iter().find(|step| step.output == root && permutations::permutation(step).is_some());
        // In front of a permutation, which attention may do without. Others may read it as it is.
        q = match moved.cloned() {
            Some(moved) => {
                let product = insert_binary(program, at, &mut added, Function2::Multiply, [moved.operands[0], factor]);
                let output = program.add(&moved.workload.output_shape(), moved.workload.out_dtype, Source::Step);
                program.steps.insert(at + added, Step { operands: vec![product], output, ..moved });
                added += 1;
                output
            }
            None => insert_binary(program, at, &mut added, Function2::Multiply, [q, factor]),
        };
    }
    if let Some((input, order)) = order {
        let dtype = program.values[k].dtype;
        let shape: Vec<i64> = order.iter().map(|i| input[*i as usize]).collect();
        let output = program.add(&shape, dtype, Source::Step);
        program.steps.insert(at + added, permutations::step(nodes, &input, &order, (k, dtype), output));
        (k, added) = (output, added + 1);
    }
    let shape = |rows, columns| format!("{:?}", [of.b, of.heads, rows, columns]);
    let mut keys = vec![("q", shape(of.m, of.d)), ("k", shape(of.n, of.d)), ("v", shape(of.n, of.dv))];
    let mut operands = vec![q, k, v];
    if let Some(extents) = of.mask_shape() {
        keys.push(("mask", format!("{extents:?}")));
        operands.push(match mask {
            MaskOf::Nothing => unreachable!("an attention with a mask has one"),
            MaskOf::Constant(mask) => program.add_constant(Tensor::floats(&extents, mask)),
            MaskOf::Computed(terms, shape) => {
                let mask = summed(program, terms, at, &mut added);
                let repeats: Vec<i64> = extents.iter().zip(&shape).map(|(n, own)| n / own).collect();
                let dims = |list: &[i64]| Dims::new(list).expect("two to four dimensions");
                if repeats.iter().all(|n| *n == 1) {
                    program.add(&extents, program.values[mask].dtype, Source::View(mask))
                } else {
                    let op = Movement { input: dims(&shape), function: Move::Tile { repeats: dims(&repeats) } };
                    let keys = vec![("input", format!("{shape:?}")), ("repeats", format!("{repeats:?}"))];
                    insert(program, at, &mut added, op.into(), keys, vec![mask])
                }
            }
        });
    }
    let step = &mut program.steps[at + added];
    (step.workload, step.said, step.operands) = (Workload::f32(of), Said { flags: vec![], keys }, operands);
    added
}
