//! Operators that are a few others in a row.

use super::builder::{Builder, Call};
use super::element::{self, binary, choose};
use super::movement::{by_indices, permuted};
use super::operands::{axis, required};
use super::row::reduced;
use super::shape;
use crate::network::model::{Attribute, Node};
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::{Tensor, is_float, is_shape, number_of};

/// Most elements of a tensor whose places are computed: larger integers are not exact in `f32`.
const MOST_PLACES: i64 = 1 << 24;

/// A constant of integers for each index of a shape.
fn of_places(b: &mut Builder, shape: &[i64], value: impl Fn(&[i64]) -> i64) -> Result<ValueId, Fault> {
    let elements: i64 = if is_shape(shape) { shape.iter().product() } else { i64::MAX };
    if elements > MOST_PLACES {
        let cause = format!("it computes places among {shape:?} elements");
        return Err(Fault::new(cause, "use tensors of at most 2^24 elements there"));
    }
    b.allow(elements, 0)?;
    let index = |mut place: i64| {
        let mut index = vec![0; shape.len()];
        for (at, extent) in index.iter_mut().zip(shape).rev() {
            (*at, place) = (place % extent, place / extent);
        }
        index
    };
    let all: Vec<i64> = (0..elements).map(|place| value(&index(place))).collect();
    Ok(b.add_constant(Tensor::integers(shape, all)))
}

/// How far apart in memory neighbours along each dimension are.
fn strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// A constant of one integer.
fn integer(b: &mut Builder, value: i64) -> ValueId {
    b.add_constant(Tensor::integers(&[], [value]))
}

/// A constant of one number.
fn float(b: &mut Builder, value: f32) -> ValueId {
    b.add_constant(Tensor::floats(&[], [value]))
}

/// `GatherElements`: the elements along a dimension that indices name for each element of the result.
pub(super) fn gather_elements(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (input, indices) = (required(x, 0)?, required(x, 1)?);
    let (shape, places) = (b.shape(input), b.shape(indices));
    let at = axis(node.integer("axis", 0), shape.len())?;
    if places.len() != shape.len() || (0..shape.len()).any(|i| i != at && places[i] > shape[i]) {
        return Err(Fault::new(format!("indices of {places:?} into {shape:?}"), "export the model again"));
    }
    if shape.iter().product::<i64>() > MOST_PLACES {
        return Err(Fault::new(format!("indices into {shape:?}"), "use tensors of at most 2^24 elements there"));
    }
    let strides = strides(&shape);
    let others = |index: &[i64]| (0..index.len()).filter(|i| *i != at).map(|i| index[i] * strides[i]).sum();
    let base = of_places(b, &places, others)?;
    let indices = b.as_integers(indices)?;
    let (extent, stride) = (integer(b, shape[at]), integer(b, strides[at]));
    let along = binary(b, "mod", indices, extent)?;
    let along = binary(b, "multiply", along, stride)?;
    let place = binary(b, "add", along, base)?;
    let flat = b.view(input, &[shape.iter().product()])?;
    let y = by_indices(b, flat, 0, place)?;
    b.view(y, &places)
}

/// `TopK`: the first elements in their order, and where they are. Before version 10 their number is an attribute.
pub(super) fn top_k(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let at = axis(node.integer("axis", -1), shape.len())?;
    let k = match x.get(1).copied().flatten() {
        Some(id) => b.integers("number of elements", id)?.first().copied().unwrap_or(0),
        None => node.integer("k", 0),
    };
    let call = Call::new("top_k", &[input]).key("input", &shape).key("axis", &[at as i64]).key("k", &[k]);
    let indices = b.compute(call.flag("smallest", node.integer("largest", 1) == 0))?;
    if node.outputs.first().is_none_or(|name| name.is_empty()) {
        return Ok(vec![indices; 2]);
    }
    let mut along = Node { op: "GatherElements".into(), ..node.clone() };
    along.attributes.insert("axis".into(), Attribute::Integer(at as i64));
    Ok(vec![gather_elements(b, &along, &[Some(input), Some(indices)])?, indices])
}

/// `GatherND`: the parts of a tensor that lists of indices name.
pub(super) fn gather_nd(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (input, indices) = (required(x, 0)?, required(x, 1)?);
    let (shape, places) = (b.shape(input), b.shape(indices));
    let wrong = || Fault::new(format!("indices of {places:?} into {shape:?}"), "export the model again");
    let batch = usize::try_from(node.integer("batch_dims", 0)).map_err(|_| wrong())?;
    let (depth, lists) = places.split_last().ok_or_else(wrong)?;
    let depth = *depth as usize;
    let chosen = shape.get(batch..batch + depth).filter(|_| depth > 0).ok_or_else(wrong)?;
    if lists.get(..batch) != Some(&shape[..batch]) {
        return Err(wrong());
    }
    let each: i64 = chosen.iter().product();
    let outer: i64 = shape[..batch].iter().product();
    if outer * each > MOST_PLACES {
        return Err(Fault::new(format!("indices into {shape:?}"), "use tensors of at most 2^24 elements there"));
    }
    let (indices, steps) = (b.as_integers(indices)?, strides(chosen));
    let extents = b.add_constant(Tensor::integers(&[depth as i64], chosen.to_vec()));
    let steps = b.add_constant(Tensor::integers(&[depth as i64], steps));
    let along = binary(b, "mod", indices, extents)?;
    let along = binary(b, "multiply", along, steps)?;
    let mut place = reduced(b, "reduce_sum", along, &[places.len() - 1], false)?;
    if batch > 0 {
        let of_batch = strides(&shape[..batch]);
        let base = of_places(b, lists, |index| (0..batch).map(|i| index[i] * of_batch[i] * each).sum())?;
        place = binary(b, "add", place, base)?;
    }
    let behind = &shape[batch + depth..];
    let rows = b.view(input, &[outer * each, behind.iter().product()])?;
    let y = by_indices(b, rows, 0, place)?;
    b.view(y, &[lists, behind].concat())
}

/// `ScatterElements` and `ScatterND` of computed tensors at constant places: elements of both, chosen by a list.
pub(super) fn scattered(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (data, places, updates) = (required(x, 0)?, required(x, 1)?, required(x, 2)?);
    if node.text("reduction", "none") != "none" {
        return Err(Fault::attribute("reduction", node.text("reduction", "none"), "no reduction"));
    }
    let (shape, lists) = (b.shape(data), b.shape(places));
    let wrong = || Fault::new("its operands do not go together", "export the model again");
    let strides = strides(&shape);
    let list = b.integers("places", places)?;
    let place = |index: i64, dimension: usize| {
        let extent = shape[dimension];
        let at = if index < 0 { index + extent } else { index };
        (0..extent).contains(&at).then_some(at * strides[dimension]).ok_or_else(wrong)
    };
    let (elements, more) = (b.program.elements(data), b.program.elements(updates));
    b.allow(elements, 0)?;
    let mut map: Vec<i64> = (0..elements).collect();
    if node.op == "ScatterND" {
        let depth = lists.last().copied().unwrap_or(0) as usize;
        if depth == 0 || depth > shape.len() {
            return Err(wrong());
        }
        let each = shape[depth..].iter().product::<i64>();
        if more != list.len() as i64 / depth as i64 * each {
            return Err(wrong());
        }
        for (number, index) in (0..).zip(list.chunks_exact(depth)) {
            let starts = index.iter().enumerate().map(|(i, at)| place(*at, i)).collect::<Result<Vec<_>, _>>()?;
            let start = starts.iter().sum::<i64>();
            for i in 0..each {
                map[(start + i) as usize] = elements + number * each + i;
            }
        }
    } else {
        let at = axis(node.integer("axis", 0), shape.len())?;
        let fits = |i: usize| i == at || lists[i] <= shape[i];
        if lists.len() != shape.len() || lists != b.shape(updates) || !(0..shape.len()).all(fits) {
            return Err(wrong());
        }
        let own = self::strides(&lists);
        for (number, index) in (0..).zip(&list) {
            let along = |i: usize| number / own[i] % lists[i] * strides[i];
            let others: i64 = (0..shape.len()).filter(|i| *i != at).map(along).sum();
            map[(others + place(*index, at)?) as usize] = elements + number;
        }
    }
    let both = [b.view(data, &[elements])?, b.view(updates, &[more])?];
    let both =
        b.compute(Call::new("concat", &both).key("input", &[elements]).key("axis", &[0]).key("others", &[more]))?;
    let map = b.add_constant(Tensor::integers(&[elements], map));
    let y = by_indices(b, both, 0, map)?;
    b.view(y, &shape)
}

/// `CumSum` along a constant axis.
pub(super) fn cumulative_sum(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let listed = b.integers("axis", required(x, 1)?)?;
    let at = axis(listed.first().copied().unwrap_or(0), shape.len())?;
    let (exclusive, reverse, n) = (node.flag("exclusive"), node.flag("reverse"), shape[at]);
    // Whether the term `j` is in the sum `i`.
    let is_in = |j: i64, i: i64| match (reverse, exclusive) {
        (false, false) => j <= i,
        (false, true) => j < i,
        (true, false) => j >= i,
        (true, true) => j > i,
    };
    let mut order: Vec<usize> = (0..shape.len()).filter(|i| *i != at).collect();
    order.push(at);
    let mut back: Vec<usize> = (0..shape.len() - 1).collect();
    back.insert(at, shape.len() - 1);
    let last = permuted(b, input, &order)?;
    let (turned, rows) = (b.shape(last), shape.iter().product::<i64>() / n.max(1));
    let y = if b.holds_integers(input) {
        // Each term of each sum, or 0: integers stay integers.
        let terms = of_places(b, &[n, n], |index| i64::from(is_in(index[1], index[0])))?;
        let each = b.view(last, &[rows, 1, n])?;
        let all = binary(b, "multiply", each, terms)?;
        reduced(b, "reduce_sum", all, &[2], false)?
    } else {
        let terms = of_places(b, &[n, n], |index| i64::from(is_in(index[0], index[1])))?;
        let (each, terms) = (b.view(last, &[rows, n])?, b.numbers(terms));
        b.compute(Call::new("matmul", &[each, terms]).key("a", &[rows, n]).key("b", &[n, n]))?
    };
    let y = b.view(y, &turned)?;
    permuted(b, y, &back)
}

/// `Trilu`: 0 on one side of a diagonal.
pub(super) fn triangle(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let [.., rows, columns] = shape[..] else {
        return Err(Fault::new(format!("an input of {shape:?}"), "triangles are of matrices"));
    };
    let k = match x.get(1).copied().flatten() {
        Some(id) => b.integers("diagonal", id)?.first().copied().unwrap_or(0),
        None => 0,
    };
    let upper = node.integer("upper", 1) != 0;
    let stays = |index: &[i64]| {
        let right = index[1].saturating_sub(index[0]);
        i64::from(if upper { right >= k } else { right <= k })
    };
    let mask = of_places(b, &[rows, columns], stays)?;
    let zero = if b.holds_integers(input) { integer(b, 0) } else { float(b, 0.0) };
    choose(b, node, &[Some(mask), Some(input), Some(zero)])
}

/// `EyeLike`: 1 on a diagonal.
pub(super) fn diagonal(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let [rows, columns] = shape[..] else {
        return Err(Fault::new(format!("an input of {shape:?}"), "diagonals are of matrices"));
    };
    let k = node.integer("k", 0);
    let y = of_places(b, &[rows, columns], |index| i64::from(index[1] - index[0] == k))?;
    let is_integer = b.holds_integers(input);
    let floats = node.attributes.get("dtype").map_or(!is_integer, |_| is_float(node.integer("dtype", 1)));
    Ok(if floats { b.numbers(y) } else { y })
}

/// `OneHot`: one value where an index is the place along a new dimension, else another.
pub(super) fn one_hot(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (indices, values) = (required(x, 0)?, required(x, 2)?);
    let depth = b.floats("depth", required(x, 1)?)?.first().copied().unwrap_or(0.0) as i64;
    let shape = b.shape(indices);
    let at = axis(node.integer("axis", -1), shape.len() + 1)?;
    let indices = b.as_integers(indices)?;
    let spread = b.view(indices, &[&shape[..at], &[1], &shape[at..]].concat())?;
    let mut extents = vec![1; shape.len() + 1];
    extents[at] = depth;
    let places = of_places(b, &extents, |index| index[at])?;
    let from_end = of_places(b, &extents, |index| index[at] - depth)?;
    let (here, there) = (binary(b, "equal", spread, places)?, binary(b, "equal", spread, from_end)?);
    let is_one = binary(b, "logical_or", here, there)?;
    let constant = b.constant(values).filter(|values| values.data.len() == 2);
    let constant = constant.ok_or_else(|| Fault::new("its values are computed", "use two constants"))?;
    let [off, on] = [0, 1].map(|i| match constant.to_integers() {
        Some(all) => integer(b, all[i]),
        None => float(b, constant.to_floats()[i]),
    });
    choose(b, node, &[Some(is_one), Some(on), Some(off)])
}

/// `Hardmax`: 1 at the first of the largest elements along a dimension, else 0.
pub(super) fn hardmax(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let at = axis(node.integer("axis", if b.opset >= 13 { -1 } else { 1 }), shape.len())?;
    // Before version 13 all dimensions from the axis on are one.
    let last = if b.opset >= 13 { at + 1 } else { shape.len() };
    let product = |part: &[i64]| part.iter().product::<i64>();
    let planes = [product(&shape[..at]), product(&shape[at..last]), product(&shape[last..])];
    let view = b.view(input, &planes)?;
    let most = b.compute(Call::new("arg_max", &[view]).key("input", &planes).key("axis", &[1]))?;
    let most = b.view(most, &[planes[0], 1, planes[2]])?;
    let places = of_places(b, &[1, planes[1], 1], |index| index[1])?;
    let y = binary(b, "equal", most, places)?;
    let y = b.numbers(y);
    b.view(y, &shape)
}

/// `LpNormalization`: elements over the norm of those along a dimension; of zeros alone zeros.
pub(super) fn lp_norm(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let at = axis(node.integer("axis", -1), b.shape(input).len())?;
    let norm = reduced(b, of_power(node)?, input, &[at], true)?;
    let least = float(b, f32::MIN_POSITIVE);
    let norm = binary(b, "maximum", norm, least)?;
    binary(b, "divide", input, norm)
}

/// The norm that `p` is.
fn of_power(node: &Node) -> Result<&'static str, Fault> {
    match node.integer("p", 2) {
        1 => Ok("reduce_l1"),
        2 => Ok("reduce_l2"),
        p => Err(Fault::attribute("p", p, "a p of 1 or 2")),
    }
}

/// `GlobalLpPool`: the norm of each channel's pixels.
pub(super) fn lp_pool(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let pixels: Vec<usize> = (2..shape.len()).collect();
    if pixels.is_empty() {
        return Err(Fault::new(format!("an input of {shape:?}"), "pooling takes images"));
    }
    reduced(b, of_power(node)?, input, &pixels, true)
}

/// What elements are above the mean along dimensions, and the mean of its squares.
fn deviation(b: &mut Builder, x: ValueId, axes: &[usize]) -> Result<[ValueId; 2], Fault> {
    let mean = reduced(b, "reduce_mean", x, axes, true)?;
    let above = binary(b, "subtract", x, mean)?;
    let squares = binary(b, "multiply", above, above)?;
    Ok([above, reduced(b, "reduce_mean", squares, axes, true)?])
}

/// The square root of each element.
fn root(b: &mut Builder, x: ValueId) -> Result<ValueId, Fault> {
    let shape = b.extents(x);
    b.compute(Call::new("sqrt", &[x]).key("input", &shape))
}

/// `MeanVarianceNormalization`.
pub(super) fn mean_variance_norm(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let rank = b.shape(input).len();
    let axes = node.integers("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let axes = axes.iter().map(|a| axis(*a, rank)).collect::<Result<Vec<_>, _>>()?;
    let [above, variance] = deviation(b, input, &axes)?;
    let (spread, least) = (root(b, variance)?, float(b, 1e-9));
    let spread = binary(b, "add", spread, least)?;
    binary(b, "divide", above, spread)
}

/// `BatchNormalization`. In training mode, in which models standardise their weights, it is by mean and variance of the batch.
pub(super) fn batch_norm(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    if !node.flag("training_mode") {
        return element::batch_norm(b, node, x);
    }
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let axes: Vec<usize> = (0..shape.len()).filter(|i| *i != 1).collect();
    let channels = shape.get(1).copied().unwrap_or(0);
    let of_channels: Vec<i64> = (0..shape.len()).map(|i| if i == 1 { channels } else { 1 }).collect();
    let (scale, shift) = (b.view(required(x, 1)?, &of_channels)?, b.view(required(x, 2)?, &of_channels)?);
    let [above, variance] = deviation(b, input, &axes)?;
    let epsilon = float(b, node.float("epsilon", 1e-5));
    let variance = binary(b, "add", variance, epsilon)?;
    let spread = root(b, variance)?;
    let factor = binary(b, "divide", scale, spread)?;
    let y = binary(b, "multiply", above, factor)?;
    binary(b, "add", y, shift)
}

/// `CastLike`: a cast to the type of another tensor, as far as it is told apart here.
pub(super) fn cast_like(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let like = required(x, 1)?;
    let dtype = b.program.values[like].dtype;
    let to = number_of(dtype).unwrap_or(if dtype.is_int() { 7 } else { 1 });
    let mut as_cast = node.clone();
    as_cast.attributes.insert("to".into(), Attribute::Integer(to));
    shape::cast(b, &as_cast, x)
}
