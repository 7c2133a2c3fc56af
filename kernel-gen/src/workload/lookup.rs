//! Functions of integers of eight bits, as tables.

use super::dims::{Dims, MAX_RANK, RANKS, lists};
use super::operator::{FLOATS, Kind, OfBytes, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage, input};
use super::{Op, Role, Workload, WorkloadError};
use crate::ir::{DType, Expr};

/// `y[i] = table[x[i] mod 256]`: any function of integers of eight bits, as the 256 integers that it gives. Where an activation stands
/// between a `DequantizeLinear` and a `QuantizeLinear` of ONNX, the table is what all three are together, computed once, so that every device gives the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lookup {
    /// The shape of input and output.
    pub input: Dims,
}

/// Integers of eight bits.
pub const ENTRIES: i64 = 256;

/// `lookup` in specs and keys.
pub(crate) static LOOKUP: Kind = Kind {
    name: "lookup",
    pattern: "{x}",
    sizes: &lists::<MAX_RANK>(&[Size::new("input", "input", SizeRole::Dimension)]),
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| vec![SpecKey::required("input", RANKS, "[the input's shape]")],
    read: |_, values| {
        let input = values.get("input").and_then(Dims::new).expect("its length was checked");
        Ok(Op::Lookup(Lookup { input }))
    },
    of_sizes: |_, sizes| {
        let [input] = Dims::of_sizes(sizes)?;
        Some(Op::Lookup(Lookup { input }))
    },
    guilty: |_| "input",
};

impl Operator for Lookup {
    fn kind(&self) -> &'static Kind {
        &LOOKUP
    }

    fn sizes(&self) -> Vec<i64> {
        self.input.sizes().to_vec()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        let table = Operand::new("table", Role::Weight, vec![ENTRIES]);
        vec![Operand::new("x", Role::Input, self.input.to_vec()), table]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.input.axes())
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Bytes
    }

    fn terms(&self) -> i64 {
        1
    }

    /// An element that is moved counts as one operation, so that what is faster has a higher rate here too.
    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let value = |index: &[Expr]| {
            let integer = Expr::load(input(0), index.to_vec()).cast(DType::I64);
            Expr::load(input(1), vec![integer.floor_mod(ENTRIES)])
        };
        vec![self.input.stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        let entry = |x: &f64| inputs[1][(*x as i64).rem_euclid(ENTRIES) as usize];
        let values: Vec<f64> = inputs[0].iter().map(entry).collect();
        Sums { magnitudes: vec![0.0; values.len()], values, or_nan: vec![] }
    }
}
