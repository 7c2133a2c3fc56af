//! Attention, where a model has it as one node.

use super::builder::{Builder, Call};
use super::element::{binary, choose};
use super::operands::required;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::attention::MOST_MASK;

/// `Attention`: of four dimensions each head by itself, of three all heads of a row side by side.
pub(super) fn attention(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let without = "export the model for one pass over whole sequences";
    for (at, what) in [(4, "past keys"), (5, "past values"), (6, "lengths of keys")] {
        if x.get(at).is_some_and(Option::is_some) {
            return Err(Fault::new(format!("it takes {what}"), without));
        }
    }
    let softcap = node.float("softcap", 0.0);
    if softcap != 0.0 {
        return Err(Fault::attribute("softcap", softcap, "0"));
    }
    let all = [required(x, 0)?, required(x, 1)?, required(x, 2)?];
    let rank = b.shape(all[0]).len();
    let heads = ["q_num_heads", "kv_num_heads", "kv_num_heads"].map(|name| (name, node.integer(name, 0)));
    let mut shapes = vec![];
    for (id, (name, heads)) in all.into_iter().zip(heads) {
        let shape = b.shape(id);
        if shape.len() != rank || !(3..=4).contains(&rank) || shape.iter().any(|n| *n < 1) {
            let cause = format!("operands of {:?}", all.map(|id| b.shape(id)));
            return Err(Fault::new(cause, "give all three of them three dimensions, or four, and extents from 1 on"));
        }
        shapes.push(match shape[..] {
            [n, rows, width] if heads > 0 && width % heads == 0 => [n, rows, heads, width / heads],
            [_, _, width] => return Err(Fault::attribute(name, heads, &format!("a number that divides {width}"))),
            _ => [shape[0], shape[1], shape[2], shape[3]],
        });
    }
    let [q_shape, k_shape, v_shape] = [shapes[0], shapes[1], shapes[2]];
    let rows_first = rank == 3;
    let turned = |s: [i64; 4]| if rows_first { [s[0], s[2], s[1], s[3]] } else { s };
    let ([n, heads, m, d], [_, _, keys, _]) = (turned(q_shape), turned(k_shape));
    // Another factor than the usual one is a factor of the queries.
    let usual = 1.0 / (d as f32).sqrt();
    let scale = node.float("scale", usual);
    let mut q = b.view(all[0], &q_shape)?;
    if (scale - usual).abs() > 1e-6 * usual {
        let factor = b.add_constant(Tensor::floats(&[1], [scale / usual]));
        q = binary(b, "multiply", q, factor)?;
    }
    let (k, v) = (b.view(all[1], &k_shape)?, b.view(all[2], &v_shape)?);
    let mut operands = vec![q, k, v];
    let given = match x.get(3).copied().flatten() {
        Some(mask) => Some(mask_of(b, mask, [n, heads, m, keys])?),
        None => None,
    };
    let mask = match (given, window(node, [m, keys])?) {
        (Some((mask, shape)), Some(window)) => {
            let window = b.add_constant(window);
            Some((binary(b, "add", mask, window)?, shape))
        }
        (None, Some(window)) => Some((b.add_constant(window), vec![m, keys])),
        (given, None) => given,
    };
    operands.extend(mask.as_ref().map(|(mask, _)| *mask));
    let mut call = Call::new("attention", &operands).key("q", &q_shape).key("k", &k_shape).key("v", &v_shape);
    if let Some((_, shape)) = mask {
        call = call.key("mask", &shape);
    }
    let call = call.flag("causal", node.flag("is_causal")).flag("rows_first", rows_first);
    let y = b.compute(call)?;
    match b.shape(y)[..] {
        [n, rows, heads, width] if rows_first => b.view(y, &[n, rows, heads * width]),
        _ => Ok(y),
    }
}

/// The window of keys that a query sees, as a mask, if it has one: so many before and behind the key of its own number.
fn window(node: &Node, [m, n]: [i64; 2]) -> Result<Option<Tensor>, Fault> {
    let [left, right] = ["left_window_size", "right_window_size"].map(|name| node.integer(name, -1));
    if left < 0 && right < 0 {
        return Ok(None);
    }
    if m.saturating_mul(n) > MOST_MASK {
        let cause = format!("a window of {n} keys for each of {m} queries is written out as a mask");
        return Err(Fault::new(cause, format!("use sequences whose product of lengths is at most {MOST_MASK}")));
    }
    let sees = |i: i64, j: i64| (left < 0 || i - j <= left) && (right < 0 || j - i <= right);
    let added = |i, j| if sees(i, j) { 0.0 } else { f32::NEG_INFINITY };
    let all: Vec<f32> = (0..m).flat_map(|i| (0..n).map(move |j| added(i, j))).collect();
    Ok(Some(Tensor::floats(&[m, n], all)))
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
        None if b.is_truth(mask) => {
            let [seen, hidden] = [0.0, f32::NEG_INFINITY].map(|added| b.add_constant(Tensor::floats(&[], [added])));
            choose(b, &Node::default(), &[Some(mask), Some(seen), Some(hidden)])?
        }
        None if b.is_integer(mask) => {
            let help = "give it numbers that are added to the scores, or a constant mask";
            return Err(Fault::new(
                "its mask is of truth values or integers that are given when the network runs",
                help,
            ));
        }
        None => mask,
    };
    let shape = b.shape(mask);
    let wide: Vec<i64> = [&[1; 4][shape.len().min(4)..], &shape[..]].concat();
    // What is shorter than the keys is not repeated: the standard has it hide the others.
    let fits = |(extent, all): (&i64, i64)| *extent == all || *extent == 1;
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
