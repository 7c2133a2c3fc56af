//! Attention, where a model has it as one node.

use super::builder::{Builder, Call};
use super::contraction;
use super::element::{binary, choose};
use super::movement::{along, permuted};
use super::operands::required;
use super::row;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::Epilogue;
use crate::workload::attention::MOST_MASK;

/// Queries, keys and values, each with its extents: all heads of a row side by side, or each head by itself.
struct Operands {
    ids: [ValueId; 3],
    shapes: [[i64; 4]; 3],
    rows_first: bool,
}

impl Operands {
    /// Images, heads of the queries, queries, elements of a head, and keys.
    fn extents(&self) -> [i64; 5] {
        let turned = |s: [i64; 4]| if self.rows_first { [s[0], s[2], s[1], s[3]] } else { s };
        let ([n, heads, m, d], [_, _, keys, _]) = (turned(self.shapes[0]), turned(self.shapes[1]));
        [n, heads, m, d, keys]
    }

    /// The same with each head by itself.
    fn by_heads(self, b: &mut Builder) -> Result<Operands, Fault> {
        if !self.rows_first {
            return Ok(self);
        }
        let (mut ids, mut shapes) = (self.ids, self.shapes);
        for (id, s) in ids.iter_mut().zip(&mut shapes) {
            let whole = b.view(*id, &*s)?;
            *id = permuted(b, whole, &[0, 2, 1, 3])?;
            *s = [s[0], s[2], s[1], s[3]];
        }
        Ok(Operands { ids, shapes, rows_first: false })
    }
}

/// `Attention`: of four dimensions each head by itself, of three all heads of a row side by side. The results are those of
/// the queries, all keys and values, and the scores.
pub(super) fn attention(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault> {
    let mut of = operands(b, node, x)?;
    let was_rows_first = of.rows_first;
    let operand = |at: usize| x.get(at).copied().flatten();
    let wanted = |at: usize| node.outputs.get(at).is_some_and(|name| !name.is_empty());
    let [n, heads, m, d, _] = of.extents();
    // What came before stands in front of keys and values.
    let mut before = 0;
    match (operand(4), operand(5)) {
        (Some(keys), Some(values)) => {
            of = of.by_heads(b)?;
            for (at, past) in [(1, keys), (2, values)] {
                let (past_shape, own) = (b.shape(past), of.shapes[at]);
                let [_, _, rows, _] = past_shape[..] else {
                    return Err(Fault::new(
                        format!("past keys or values of {past_shape:?}"),
                        "give them four dimensions",
                    ));
                };
                before = rows;
                let own_rows = b.view(of.ids[at], &own)?;
                of.ids[at] = along(b, vec![past, own_rows], 2)?;
                of.shapes[at][2] += rows;
            }
        }
        (None, None) => {}
        _ => return Err(Fault::new("it takes past keys or past values, and not both", "export the model again")),
    }
    let softcap = node.float("softcap", 0.0);
    let scores = wanted(3) || softcap > 0.0;
    if scores || (1..3).any(wanted) {
        of = of.by_heads(b)?;
    }
    let [.., keys] = of.extents();
    // Causality is the operator's own, where the first query is that of the first key.
    let is_causal = node.flag("is_causal");
    let own = is_causal && !scores && before == 0 && operand(6).is_none();
    let mask = mask(b, node, [operand(3), operand(6)], (before, is_causal && !own), [n, heads, m, keys])?;
    let [k, v] = [1, 2].map(|at| (of.ids[at], of.shapes[at]));
    let (k, v) = (b.view(k.0, &k.1)?, b.view(v.0, &v.1)?);
    let usual = 1.0 / (d as f32).sqrt();
    let scale = node.float("scale", usual);
    let mut q = b.view(of.ids[0], &of.shapes[0])?;
    let mut found;
    if scores {
        let mode = node.integer("qk_matmul_output_mode", 0);
        if !(0..=3).contains(&mode) {
            return Err(Fault::attribute("qk_matmul_output_mode", mode, "0 to 3"));
        }
        let parts = Parts { q, k, v, mask, scale, softcap, mode };
        let [y, of_scores] = in_parts(b, parts)?;
        found = vec![y, k, v, of_scores];
    } else {
        // Another factor than the usual one is a factor of the queries.
        if (scale - usual).abs() > 1e-6 * usual {
            let factor = b.add_constant(Tensor::floats(&[1], [scale / usual]));
            q = binary(b, "multiply", q, factor)?;
        }
        let mut all = vec![q, k, v];
        all.extend(mask.as_ref().map(|(mask, _)| *mask));
        let mut call = Call::new("attention", &all);
        for (name, shape) in ["q", "k", "v"].into_iter().zip(&of.shapes) {
            call = call.key(name, shape);
        }
        if let Some((_, shape)) = mask {
            call = call.key("mask", &shape);
        }
        let call = call.flag("causal", own).flag("rows_first", of.rows_first);
        found = vec![b.compute(call)?, k, v];
    }
    if was_rows_first {
        let y = if of.rows_first { found[0] } else { permuted(b, found[0], &[0, 2, 1, 3])? };
        let [n, rows, heads, width] = b.shape(y)[..] else { unreachable!("it has four dimensions") };
        found[0] = b.view(y, &[n, rows, heads * width])?;
    }
    Ok(found)
}

/// The first three operands.
fn operands(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<Operands, Fault> {
    let all = [required(x, 0)?, required(x, 1)?, required(x, 2)?];
    let rank = b.shape(all[0]).len();
    let heads = ["q_num_heads", "kv_num_heads", "kv_num_heads"].map(|name| (name, node.integer(name, 0)));
    let mut shapes = [[0; 4]; 3];
    for ((id, (name, heads)), found) in all.into_iter().zip(heads).zip(&mut shapes) {
        let shape = b.shape(id);
        if shape.len() != rank || !(3..=4).contains(&rank) || shape.iter().any(|n| *n < 1) {
            let cause = format!("operands of {:?}", all.map(|id| b.shape(id)));
            return Err(Fault::new(cause, "give all three of them three dimensions, or four, and extents from 1 on"));
        }
        *found = match shape[..] {
            [n, rows, width] if heads > 0 && width % heads == 0 => [n, rows, heads, width / heads],
            [_, _, width] => return Err(Fault::attribute(name, heads, &format!("a number that divides {width}"))),
            _ => [shape[0], shape[1], shape[2], shape[3]],
        };
    }
    Ok(Operands { ids: all, shapes, rows_first: rank == 3 })
}

/// The shape of a mask with four dimensions.
fn wide(shape: &[i64]) -> Vec<i64> {
    [&[1; 4][shape.len().min(4)..], shape].concat()
}

/// What truth values that say which keys are seen add to the scores.
fn added(b: &mut Builder, seen: ValueId) -> Result<ValueId, Fault> {
    let [shown, hidden] = [0.0, f32::NEG_INFINITY].map(|added| b.add_constant(Tensor::floats(&[], [added])));
    choose(b, &Node::default(), &[Some(seen), Some(shown), Some(hidden)])
}

/// Attention whose scores are a result themselves, or go through a function: each head by itself.
struct Parts {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    mask: Option<(ValueId, Vec<i64>)>,
    scale: f32,
    softcap: f32,
    /// Which scores are a result: 0 the products, 1 behind the soft cap, 2 with the mask, 3 the weights of the values.
    mode: i64,
}

/// The result, and the scores that are one.
fn in_parts(b: &mut Builder, Parts { q, k, v, mask, scale, softcap, mode }: Parts) -> Result<[ValueId; 2], Fault> {
    let (q_shape, k_shape) = (b.shape(q), b.shape(k));
    let [n, heads, m, d] = q_shape[..] else { unreachable!("it has four dimensions") };
    let [_, shared, keys, _] = k_shape[..] else { unreachable!("it has four dimensions") };
    let times = if shared > 0 && heads % shared == 0 { heads / shared } else { 1 };
    // Queries that share keys are rows of one product.
    let rows = b.view(q, &[n, heads / times, times * m, d])?;
    let turned = permuted(b, k, &[0, 1, 3, 2])?;
    let products = contraction::matmul(b, &Node::default(), &[Some(rows), Some(turned)])?;
    let products = b.view(products, &[n, heads, m, keys])?;
    let number = |b: &mut Builder, v: f32| b.add_constant(Tensor::floats(&[1], [v]));
    let factor = number(b, scale);
    let products = binary(b, "multiply", products, factor)?;
    let capped = match softcap > 0.0 {
        true => {
            let (cap, within) = (number(b, softcap), number(b, 1.0 / softcap));
            let within = binary(b, "multiply", products, within)?;
            let shape = b.shape(within);
            let bent = Call::new("identity", &[within]).key("input", &shape).then(Epilogue::Tanh, &[]);
            let bent = b.compute(bent)?;
            binary(b, "multiply", bent, cap)?
        }
        false => products,
    };
    let mask = match mask {
        Some((mask, shape)) => Some(b.view(mask, &wide(&shape))?),
        None => None,
    };
    let masked = match mask {
        Some(mask) => binary(b, "add", capped, mask)?,
        None => capped,
    };
    let rows = b.view(masked, &[n * heads * m, keys])?;
    let weights = b.compute(Call::new("softmax", &[rows]).key("input", &[n * heads * m, keys]))?;
    // A query that sees no key has no weights.
    let weights = match mask {
        Some(mask) => {
            let most = Node { op: "ReduceMax".into(), ..Node::default() };
            let axes = b.add_constant(Tensor::integers(&[1], [3]));
            let most = row::reduce(b, &most, &[Some(mask), Some(axes)])?;
            let least = b.add_constant(Tensor::floats(&[1], [f32::NEG_INFINITY]));
            let sees = binary(b, "greater", most, least)?;
            let zero = b.add_constant(Tensor::floats(&[], [0.0]));
            let weights = b.view(weights, &[n, heads, m, keys])?;
            choose(b, &Node::default(), &[Some(sees), Some(weights), Some(zero)])?
        }
        None => weights,
    };
    let by_keys = b.view(weights, &[n, heads / times, times * m, keys])?;
    let y = contraction::matmul(b, &Node::default(), &[Some(by_keys), Some(v)])?;
    let width = b.shape(v)[3];
    let y = b.view(y, &[n, heads, m, width])?;
    let scores = match mode {
        0 => products,
        1 => capped,
        2 => masked,
        _ => b.view(weights, &[n, heads, m, keys])?,
    };
    Ok([y, scores])
}

/// What is added to the scores, in one of the shapes that the operator takes: the mask that is given, what a window or causality hides
/// where the operator does not, and what lengths of keys hide. `before` keys come before those of the queries.
fn mask(
    b: &mut Builder,
    node: &Node,
    [given, lengths]: [Option<ValueId>; 2],
    (before, causal): (i64, bool),
    scores: [i64; 4],
) -> Result<Option<(ValueId, Vec<i64>)>, Fault> {
    let [n, heads, m, keys] = scores;
    let found = given.map(|mask| mask_of(b, mask, scores)).transpose()?;
    // A window of all keys hides none.
    let window = ["left_window_size", "right_window_size"].map(|name| node.integer(name, -1).min(keys + m + before));
    let hides = causal || window.iter().any(|side| *side >= 0);
    let of_all = if lengths.is_some() { n.saturating_mul(heads) } else { 1 };
    let count = of_all.saturating_mul(m).saturating_mul(keys);
    if (hides || lengths.is_some()) && count > MOST_MASK {
        let cause =
            format!("which of {keys} keys each of {m} queries sees is written out as a mask of {count} elements");
        return Err(Fault::new(cause, format!("use shorter sequences: at most {MOST_MASK} elements")));
    }
    if hides {
        b.allow(m.saturating_mul(keys), 0)?;
    }
    let [left, right] = window;
    let mut more = None;
    if let Some(lengths) = lengths {
        let lengths = b.as_integers(lengths)?;
        let lengths = b.view(lengths, &[n, 1, 1, 1])?;
        // The last query is that of the last key, so the key of its own number is `i + length - m`.
        let table = |b: &mut Builder, rows: i64, value: &dyn Fn(i64, i64) -> i64| {
            let all: Vec<i64> =
                (0..rows).flat_map(|i| (0..keys).map(move |j| (i, j))).map(|(i, j)| value(i, j)).collect();
            b.add_constant(Tensor::integers(&[1, 1, rows, keys], all))
        };
        let places = table(b, 1, &|_, j| j);
        let mut seen = binary(b, "less", places, lengths)?;
        let mut limits = vec![];
        if causal {
            limits.push((table(b, m, &|i, j| j - i + m), true));
        }
        if right >= 0 {
            limits.push((table(b, m, &|i, j| j - i + m - right), true));
        }
        if left >= 0 {
            limits.push((table(b, m, &|i, j| j - i + m + left), false));
        }
        for (limit, is_least) in limits {
            let [low, high] = if is_least { [limit, lengths] } else { [lengths, limit] };
            let within = binary(b, "less_or_equal", low, high)?;
            seen = binary(b, "logical_and", seen, within)?;
        }
        more = Some(added(b, seen)?);
    } else if hides {
        let sees = |i: i64, j: i64| {
            let own = i + before;
            (left < 0 || own - j <= left) && (right < 0 || j - own <= right) && (!causal || j <= own)
        };
        let added = |i, j| if sees(i, j) { 0.0 } else { f32::NEG_INFINITY };
        let all: Vec<f32> = (0..m).flat_map(|i| (0..keys).map(move |j| added(i, j))).collect();
        more = Some(b.add_constant(Tensor::floats(&[m, keys], all)));
    }
    Ok(match (found, more) {
        (Some((mask, shape)), Some(more)) => {
            let mask = b.view(mask, &wide(&shape))?;
            let sum = binary(b, "add", mask, more)?;
            Some(mask_of(b, sum, scores)?)
        }
        (None, Some(more)) => Some(mask_of(b, more, scores)?),
        (found, None) => found,
    })
}

/// A mask as what is added to the scores, in one of the shapes that the operator takes.
fn mask_of(b: &mut Builder, mask: ValueId, scores: [i64; 4]) -> Result<(ValueId, Vec<i64>), Fault> {
    let mask = match b.constant(mask) {
        // Truth values say which keys are seen.
        Some(tensor) if tensor.is_integer() && tensor.to_floats().iter().all(|v| [0.0, 1.0].contains(v)) => {
            let added = |seen: &f32| if *seen == 0.0 { f32::NEG_INFINITY } else { 0.0 };
            let added: Vec<f32> = tensor.to_floats().iter().map(added).collect();
            b.add_constant(Tensor::floats(&tensor.shape, added))
        }
        Some(_) => b.numbers(mask),
        None if b.is_truth(mask) || b.is_given_truth(mask) => added(b, mask)?,
        None if b.is_integer(mask) => {
            let help = "give it numbers that are added to the scores, or a constant mask";
            return Err(Fault::new("its mask is of integers that are known when the network runs", help));
        }
        None => mask,
    };
    let shape = b.shape(mask);
    let mut wide = wide(&shape);
    let mut mask = mask;
    // What is shorter than the keys hides the others; of one column it is more likely that it is meant for all.
    let fits = |(extent, all): (&i64, i64)| *extent == all || *extent == 1;
    if let [n, heads, m, short] = wide[..]
        && wide[..3].iter().zip(scores).all(fits)
        && (2..scores[3]).contains(&short)
    {
        let rest = [n, heads, m, scores[3] - short];
        let count = rest.iter().fold(1i64, |count, extent| count.saturating_mul(*extent));
        b.allow(count, count)?;
        let hidden = b.add_constant(Tensor::floats(&rest, vec![f32::NEG_INFINITY; count as usize]));
        let own = b.view(mask, &wide)?;
        mask = along(b, vec![own, hidden], 3)?;
        wide[3] = scores[3];
    }
    if wide.len() != 4 || !wide.iter().zip(scores).all(fits) || wide[3] != scores[3] {
        let cause =
            format!("a mask of {shape:?} does not say which of {} keys each of {} queries sees", scores[3], scores[2]);
        return Err(Fault::new(cause, "export the model with a mask as long as there are keys"));
    }
    // One matrix does for all heads, or one a head for all images, where a mask does not tell them apart.
    let first = match wide[..2] {
        [1, 1] => 2,
        [1, _] if scores[0] > 1 => 1,
        _ => 0,
    };
    let target = [&wide[..first], &scores[first..]].concat();
    let view = b.view(mask, &wide)?;
    let repeats: Vec<i64> = target.iter().zip(&wide).map(|(all, extent)| all / extent).collect();
    let mask = match repeats.iter().all(|n| *n == 1) {
        true => view,
        false => b.compute(Call::new("tile", &[view]).key("input", &wide).key("repeats", &repeats))?,
    };
    Ok((b.view(mask, &target[first..])?, target[first..].to_vec()))
}
