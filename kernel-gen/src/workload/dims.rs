//! Tensors of any number of dimensions, as sizes of operators.

use super::WorkloadError;
use super::operator::{Fault, Size, Values};
use super::stage::{Axis, AxisRole, Combine, Stage, axis};
use crate::ir::{DType, Expr};
use std::fmt;

/// Most dimensions that such a tensor has.
pub const MAX_RANK: usize = 6;

/// What stands in sizes behind the last number of a list.
pub(crate) const ABSENT: i64 = i64::MIN;

/// How many integers a spec's key of a list may have.
pub(crate) const RANKS: &[usize] = &[1, 2, 3, 4, 5, 6];

/// A list of one to [`MAX_RANK`] numbers, one for each dimension of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dims {
    numbers: [i64; MAX_RANK],
    rank: usize,
}

impl Dims {
    /// The list, if it has one to [`MAX_RANK`] numbers.
    pub fn new(numbers: &[i64]) -> Option<Dims> {
        let mut all = [ABSENT; MAX_RANK];
        all.get_mut(..numbers.len())?.copy_from_slice(numbers);
        (!numbers.is_empty()).then_some(Dims { numbers: all, rank: numbers.len() })
    }

    /// The lists that sizes are.
    pub(crate) fn of_sizes<const N: usize>(sizes: &[i64]) -> Option<[Dims; N]> {
        let list = |list: &[i64]| {
            let rank = list.iter().position(|size| *size == ABSENT).unwrap_or(list.len());
            list[rank..].iter().all(|size| *size == ABSENT).then(|| Dims::new(&list[..rank])).flatten()
        };
        sizes.chunks(MAX_RANK).map(list).collect::<Option<Vec<_>>>()?.try_into().ok()
    }

    /// The list of a spec's key that has a number for each of `rank` dimensions; the number `missing` for all where there is no key.
    pub(crate) fn read(values: &Values, key: &'static str, rank: usize, missing: i64) -> Result<Dims, Fault> {
        let numbers = values.get(key).map_or(vec![missing; rank], <[i64]>::to_vec);
        let fault = || {
            let cause = format!("`{key}` has {} integers", numbers.len());
            Fault::new(key, cause, format!("write one for each of the {rank} dimensions of `input`"))
        };
        Dims::new(&numbers).filter(|dims| dims.len() == rank).ok_or_else(fault)
    }

    /// As it stands in sizes.
    pub(crate) fn sizes(&self) -> [i64; MAX_RANK] {
        self.numbers
    }

    /// The axes of an output with these extents. The second dimension counts channels, as in the layouts of most frameworks; the
    /// only one of a vector does.
    pub(crate) fn axes(&self) -> Vec<Axis> {
        const NAMES: [&str; MAX_RANK] = ["i0", "i1", "i2", "i3", "i4", "i5"];
        let role = |i: usize| match i {
            _ if i == self.len().min(2) - 1 => AxisRole::Channel,
            0 => AxisRole::Batch,
            _ => AxisRole::Space,
        };
        self.iter().enumerate().map(|(i, extent)| Axis::new(NAMES[i], *extent, role(i))).collect()
    }

    /// The stage `acc` of an output with these extents, each element of which is one expression of its index.
    pub(crate) fn stage(&self, sums: DType, value: impl FnOnce(&[Expr]) -> Expr) -> Stage {
        let index: Vec<Expr> = (0..self.len()).map(|i| axis(i).into()).collect();
        Stage {
            name: "acc",
            dtype: sums,
            shape: self.to_vec(),
            loops: self.axes().iter().map(|axis| (axis.name, axis.extent)).collect(),
            reduce: 0,
            combine: Combine::One,
            value: value(&index),
            index,
        }
    }
}

impl std::ops::Deref for Dims {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.numbers[..self.rank]
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Whether `axis` counts a dimension of the operand `input`.
pub(super) fn check_axis(axis: i64, input: &Dims) -> Result<(), WorkloadError> {
    if !(0..input.len() as i64).contains(&axis) {
        let cause = format!("the axis is {axis} and `input` has {} dimensions", input.len());
        return Err(WorkloadError::Sizes { cause, help: "axes are counted from 0" });
    }
    Ok(())
}

/// The sizes of lists.
pub(crate) const fn lists<const N: usize>(lists: &[Size]) -> [Size; N] {
    lists_and(lists, &[])
}

/// The sizes of lists, and other sizes behind them.
pub(crate) const fn lists_and<const N: usize>(lists: &[Size], behind: &[Size]) -> [Size; N] {
    let of_lists = MAX_RANK * lists.len();
    assert!(N == of_lists + behind.len());
    let mut all = [lists[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < of_lists { lists[i / MAX_RANK] } else { behind[i - of_lists] };
        i += 1;
    }
    all
}

/// The key `axis` of a spec, which counts the dimensions of a tensor of that shape.
pub(super) fn axis_of(values: &Values, shape: &Dims) -> Result<i64, Fault> {
    let axis = values.get("axis").expect("it must be there")[0];
    if !(0..shape.len() as i64).contains(&axis) {
        let help = format!("write one from 0 to {}", shape.len() - 1);
        return Err(Fault::new("axis", format!("the axis is {axis}"), help));
    }
    Ok(axis)
}
