//! What a recurrent layer does with the products of one step of time.

use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Stage, axis, input};
use super::{Op, Role, Workload, WorkloadError, reference_elements};
use crate::ir::{BinOp, DType, Expr, UnOp};

/// One step of time of a recurrent layer behind its products, element by element of the state `[n, h]`. `s` is the sigmoid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Recurrent {
    /// Sequences.
    pub n: i64,
    /// Elements of a state.
    pub h: i64,
    /// What is computed.
    pub part: RecurrentPart,
}

/// What is computed of a step; gates are in ONNX's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum RecurrentPart {
    /// An LSTM's cell: `s(f) cell + s(i) tanh(c)` of the gates `[n, 4, h]`, which are `i, o, f, c`, and the cell before.
    LstmCell,
    /// An LSTM's output: `s(o) tanh(cell)` of the same gates and the new cell.
    LstmOutput,
    /// A GRU's output: `(1 - s(z)) tanh(h + s(r) h') + s(z) state`, where `z` and `r` are sums of both operands `[n, 3, h]`: the gates
    /// `z, r, h` of the input, and those of the state.
    GruCell,
}

/// A kind of a part.
macro_rules! kind {
    ($name:literal, $part:expr) => {
        Kind {
            name: $name,
            pattern: "n{}h{}",
            sizes: &[
                Size::new("n", "n (the sequences)", SizeRole::Images),
                Size::new("h", "h (the elements of a state)", SizeRole::Channels),
            ],
            layouts: &[],
            flags: &[],
            between: &[],
            outputs: FLOATS,
            keys: |_| vec![SpecKey::required("state", &[2], "[n, h]")],
            read: |_, values| {
                let [n, h] = values.shape("state");
                Ok(Op::Recurrent(Recurrent { n, h, part: $part }))
            },
            of_sizes: |_, sizes| {
                let [n, h] = *sizes else { return None };
                Some(Op::Recurrent(Recurrent { n, h, part: $part }))
            },
            guilty: |_| "state",
        }
    };
}

/// `lstm_cell` in specs and keys.
pub(crate) static LSTM_CELL: Kind = kind!("lstm_cell", RecurrentPart::LstmCell);

/// `lstm_output`.
pub(crate) static LSTM_OUTPUT: Kind = kind!("lstm_output", RecurrentPart::LstmOutput);

/// `gru_cell`.
pub(crate) static GRU_CELL: Kind = kind!("gru_cell", RecurrentPart::GruCell);

impl Operator for Recurrent {
    fn kind(&self) -> &'static Kind {
        match self.part {
            RecurrentPart::LstmCell => &LSTM_CELL,
            RecurrentPart::LstmOutput => &LSTM_OUTPUT,
            RecurrentPart::GruCell => &GRU_CELL,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        vec![self.n, self.h]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        let operand = |name, gates: Option<i64>| {
            let shape = [self.n].into_iter().chain(gates).chain([self.h]).collect();
            Operand::new(name, Role::Input, shape)
        };
        match self.part {
            RecurrentPart::LstmCell | RecurrentPart::LstmOutput => {
                vec![operand("gates", Some(4)), operand("cell", None)]
            }
            RecurrentPart::GruCell => {
                vec![operand("gates", Some(3)), operand("of_state", Some(3)), operand("state", None)]
            }
        }
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", vec![Axis::new("n", self.n, AxisRole::Batch), Axis::new("h", self.h, AxisRole::Channel)])
    }

    fn terms(&self) -> i64 {
        1
    }

    /// Exponentials, each of which counts as one operation, divisions, products and sums.
    fn flops_per_term(&self) -> i64 {
        match self.part {
            RecurrentPart::LstmCell => 12,
            RecurrentPart::LstmOutput => 6,
            RecurrentPart::GruCell => 16,
        }
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let f = |value: f64| Expr::Float(value, sums.compute());
        let gate = |operand: usize, gate: i64| {
            Expr::load(input(operand), vec![axis(0).into(), Expr::Int(gate), axis(1).into()])
        };
        let state = |operand: usize| Expr::load(input(operand), vec![axis(0).into(), axis(1).into()]);
        let sigmoid = |x: Expr| {
            let falling = Expr::un(UnOp::Exp, Expr::un(UnOp::Neg, x));
            Expr::bin(BinOp::Div, f(1.0), f(1.0) + falling)
        };
        let tanh = |x: Expr| Expr::un(UnOp::Tanh, x);
        let value = match self.part {
            RecurrentPart::LstmCell => sigmoid(gate(0, 2)) * state(1) + sigmoid(gate(0, 0)) * tanh(gate(0, 3)),
            RecurrentPart::LstmOutput => sigmoid(gate(0, 1)) * tanh(state(1)),
            RecurrentPart::GruCell => {
                let update = sigmoid(gate(0, 0) + gate(1, 0));
                let reset = sigmoid(gate(0, 1) + gate(1, 1));
                let new = tanh(gate(0, 2) + reset * gate(1, 2));
                (f(1.0) - update.clone()) * new + update * state(2)
            }
        };
        vec![Stage {
            name: "acc",
            dtype: sums,
            shape: vec![self.n, self.h],
            loops: vec![("n", self.n), ("h", self.h)],
            reduce: 0,
            combine: Combine::One,
            index: vec![axis(0).into(), axis(1).into()],
            value,
        }]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_elements::of_states(self, inputs)
    }
}
