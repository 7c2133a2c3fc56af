//! Operators on shapes, and those that compute nothing.

use super::builder::Builder;
use super::operands::{axis, required};
use crate::ir::DType;
use crate::network::model::{Attribute, Node};
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::{BOOLEAN, Data, Tensor, byte_of, is_float, is_number, is_shape};

/// `Identity`, and `Dropout` at inference.
pub(super) fn same(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    if let Some(training) = x.get(2).copied().flatten().filter(|_| node.op == "Dropout")
        && b.integers("mode", training)?.iter().any(|v| *v != 0)
    {
        return Err(Fault::new("it is in training mode", "export the model in inference mode"));
    }
    required(x, 0)
}

/// `Reshape`.
pub(super) fn reshape(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let old = b.shape(input);
    let mut shape = match x.get(1).copied().flatten() {
        Some(id) => b.integers("extents", id)?,
        None => node.integers("shape").unwrap_or_default(),
    };
    for (i, extent) in shape.iter_mut().enumerate() {
        if *extent == 0 && !node.flag("allowzero") {
            *extent = *old
                .get(i)
                .ok_or_else(|| Fault::new("it keeps an extent that is not there", "export the model again"))?;
        }
    }
    let known = shape.iter().filter(|n| **n >= 0).fold(1i64, |n, extent| n.saturating_mul(*extent));
    for extent in &mut shape {
        if *extent == -1 && known != 0 {
            *extent = old.iter().product::<i64>() / known;
        }
    }
    b.view(input, &shape)
}

/// `Flatten` into a matrix.
pub(super) fn flatten(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let shape = b.shape(x);
    let at = node.integer("axis", 1);
    let at = if at == shape.len() as i64 { shape.len() } else { axis(at, shape.len())? };
    b.view(x, &[shape[..at].iter().product(), shape[at..].iter().product()])
}

/// `Squeeze` and `Unsqueeze`: from version 13 on the axes are an operand.
pub(super) fn squeeze(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let axes = match x.get(1).copied().flatten() {
        Some(id) => Some(b.integers("axes", id)?),
        None => node.integers("axes"),
    };
    if node.op == "Squeeze" {
        let axes = match axes {
            Some(axes) => axes.iter().map(|a| axis(*a, shape.len())).collect::<Result<Vec<_>, _>>()?,
            None => (0..shape.len()).filter(|i| shape[*i] == 1).collect(),
        };
        let kept = shape.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, n)| *n);
        return b.view(input, &kept.collect::<Vec<_>>());
    }
    let axes = axes.ok_or_else(|| Fault::new("its axes are missing", "export the model again"))?;
    let rank = shape.len() + axes.len();
    let axes = axes.iter().map(|a| axis(*a, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut old = shape.iter();
    let new = (0..rank).map(|i| if axes.contains(&i) { 1 } else { old.next().copied().unwrap_or(1) });
    b.view(input, &new.collect::<Vec<_>>())
}

/// `Shape`.
pub(super) fn shape(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let shape = b.shape(required(x, 0)?);
    let rank = shape.len() as i64;
    let place = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank);
    let (start, end) = (place(node.integer("start", 0)), place(node.integer("end", rank)));
    let part = shape[start as usize..end.max(start) as usize].to_vec();
    Ok(b.add_constant(Tensor::integers(&[part.len() as i64], part)))
}

/// `Size`.
pub(super) fn size(b: &mut Builder, _: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let elements = b.program.elements(x);
    Ok(b.add_constant(Tensor::integers(&[], [elements])))
}

/// `Constant`.
pub(super) fn constant(b: &mut Builder, node: &Node, _: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let missing = || Fault::new("its value is no tensor of numbers", "export the model again");
    let tensor = node.tensor().ok_or_else(missing)?;
    Ok(b.share_constant(&tensor))
}

/// `ConstantOfShape`.
pub(super) fn filled(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let shape = b.integers("extents", required(x, 0)?)?;
    if !is_shape(&shape) {
        return Err(Fault::new(format!("a shape of {shape:?}"), "use a smaller one"));
    }
    let elements = shape.iter().product::<i64>();
    b.allow(elements, 0)?;
    let elements = elements as usize;
    let data = match node.attributes.get("value") {
        Some(Attribute::Tensor(Tensor { data: Data::Integers(all), .. })) => {
            Data::Integers(vec![all.first().copied().unwrap_or(0); elements].into())
        }
        Some(Attribute::Tensor(Tensor { data: Data::Floats(all), .. })) => {
            Data::Floats(vec![all.first().copied().unwrap_or(0.0); elements].into())
        }
        _ => Data::Floats(vec![0.0; elements].into()),
    };
    let byte = match node.attributes.get("value") {
        Some(Attribute::Tensor(one)) => one.byte,
        _ => None,
    };
    Ok(b.add_constant(Tensor { shape, data, byte, four_bits: false }))
}

/// `Cast` between numbers, integers and truth values; what is computed has 32 bits or eight.
pub(super) fn cast(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let to = node.integer("to", 1);
    if !is_number(to) {
        return Err(Fault::attribute("to", to, "a type of numbers"));
    }
    let Some(tensor) = b.constant(input) else {
        let to_float = is_float(to);
        if to_float && let Some(made) = b.as_numbers(input)? {
            return Ok(made);
        }
        if let Some(dtype) = byte_of(to) {
            return b.as_byte(input, dtype, true);
        }
        let other = || Fault::new("it makes other types of a computed tensor", "keep computed tensors in f32");
        let byte = b.byte(input);
        let is_integer = b.is_integer(input);
        return match (b.program.values[input].dtype.is_float(), to) {
            _ if byte.is_some() && to_float => b.as_floats(input),
            _ if byte.is_some() && to == BOOLEAN => {
                let numbers = b.as_floats(input)?;
                b.as_truth(numbers)
            }
            // Unsigned integers of more bits hold no numbers below 0.
            _ if byte == Some(DType::U8) || byte.is_some() && [5, 6, 7].contains(&to) => b.as_integers(input),
            // Numbers in a tensor that is computed are of one type.
            (true, _) if to_float => Ok(input),
            (_, BOOLEAN) if is_integer => b.as_truth(input),
            (true, BOOLEAN) => b.as_truth(input),
            (true, 6 | 7) => b.as_integers(input),
            _ if is_integer && to_float => b.as_floats(input),
            _ if is_integer && [6, 7].contains(&to) => b.as_integers(input),
            _ => Err(other()),
        };
    };
    Ok(b.add_constant(tensor.cast(to).unwrap_or(tensor)))
}

/// `Range` of constants.
pub(super) fn range(b: &mut Builder, _: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let mut bounds = vec![];
    for (i, what) in ["start", "limit", "delta"].iter().enumerate() {
        let id = required(x, i)?;
        let number = b.constant(id).and_then(|c| Some((c.to_doubles().first().copied()?, c.is_integer())));
        bounds
            .push(number.ok_or_else(|| {
                Fault::new(format!("its {what} is computed when the network runs"), "use a constant")
            })?);
    }
    let [(start, is_integer), (limit, _), (delta, _)] = bounds[..] else { unreachable!("three were read") };
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() {
        return Err(Fault::new(format!("a range from {start} to {limit} by {delta}"), "use a smaller one"));
    }
    b.allow(count as i64, 0)?;
    let values = (0..count as i64).map(|i| start + i as f64 * delta);
    let data = match is_integer {
        true => Data::Integers(values.map(|v| v as i64).collect()),
        false => Data::Floats(values.map(|v| v as f32).collect()),
    };
    Ok(b.add_constant(Tensor { shape: vec![count as i64], data, byte: None, four_bits: false }))
}
