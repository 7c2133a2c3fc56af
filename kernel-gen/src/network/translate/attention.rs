//! Attention, where a model has it as one node.

use super::builder::{Builder, Call};
use super::element::binary;
use super::operands::required;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;

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
        shapes.push(match b.shape(id)[..] {
            [n, heads, rows, width] if rank == 4 => [n, heads, rows, width],
            [n, rows, width] if rank == 3 => match heads {
                heads if heads > 0 && width % heads == 0 => [n, rows, heads, width / heads],
                heads => return Err(Fault::attribute(name, heads, &format!("a number that divides {width}"))),
            },
            ref shape => {
                return Err(Fault::new(format!("an operand of {shape:?}"), "give it three or four dimensions"));
            }
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
    let mask = match x.get(3).copied().flatten() {
        Some(mask) => Some(mask_of(b, mask, [n, heads, m, keys])?),
        None => None,
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

/// A mask as what is added to the scores, in one of the shapes that the operator takes.
fn mask_of(b: &mut Builder, mask: ValueId, scores: [i64; 4]) -> Result<(ValueId, Vec<i64>), Fault> {
    let mask = match b.constant(mask) {
        // Truth values say which keys are seen.
        Some(truths) if truths.is_integer() => {
            let added = |seen: &f32| if *seen == 0.0 { f32::NEG_INFINITY } else { 0.0 };
            let added: Vec<f32> = truths.to_floats().iter().map(added).collect();
            b.add_constant(Tensor::floats(&truths.shape, added))
        }
        _ => mask,
    };
    let shape = b.shape(mask);
    let wide: Vec<i64> = [&[1; 4][shape.len().min(4)..], &shape[..]].concat();
    let fits = wide.len() == 4 && wide.iter().zip(scores).all(|(extent, all)| *extent == all || *extent == 1);
    if !fits {
        let cause = format!("a mask of {shape:?} does not broadcast to scores of {scores:?}");
        return Err(Fault::new(cause, "check the extents that the spec gives the inputs"));
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
