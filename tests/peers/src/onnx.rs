//! Writes ONNX models: the few messages of its format that a layer needs, in the encoding of protocol buffers.
//!
//! Field numbers are those of `onnx.proto` (version 1 of the intermediate representation's schema; the models declare
//! version 8 and operator set 17).

use crate::layers::{Activation, Data, Op, Problem};

/// A message under construction.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn integer(mut self, field: u64, value: i64) -> Message {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    fn float(mut self, field: u64, value: f32) -> Message {
        self.varint(field << 3 | 5);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.bytes.extend(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u64, value: Message) -> Message {
        self.bytes(field, &value.bytes)
    }
}

/// An attribute of a node.
pub(crate) enum Attribute {
    Int(i64),
    Float(f32),
    Ints(Vec<usize>),
}

/// A graph under construction: nodes are added in the order of execution.
pub(crate) struct Graph {
    message: Message,
}

impl Graph {
    pub(crate) fn new(name: &str) -> Graph {
        Graph { message: Message::default().text(2, name) }
    }

    /// An operator with its inputs, its one output and its attributes.
    pub(crate) fn node(&mut self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) {
        let mut node = Message::default();
        for input in inputs {
            node = node.text(1, input);
        }
        node = node.text(2, output).text(3, output).text(4, op);
        for (name, value) in attributes {
            let attribute = Message::default().text(1, name);
            node = node.message(
                5,
                match value {
                    Attribute::Float(v) => attribute.float(2, *v).integer(20, 1),
                    Attribute::Int(v) => attribute.integer(3, *v).integer(20, 2),
                    Attribute::Ints(v) => v.iter().fold(attribute, |a, v| a.integer(8, *v as i64)).integer(20, 7),
                },
            );
        }
        self.push(1, node);
    }

    /// A constant tensor of `f32`.
    pub(crate) fn constant(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let tensor = shape.iter().fold(Message::default(), |t, d| t.integer(1, *d as i64)).integer(2, 1).text(8, name);
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.push(5, tensor.bytes(9, &raw));
    }

    /// An input of the graph.
    pub(crate) fn input(&mut self, name: &str, shape: &[usize]) {
        self.push(11, value_info(name, shape));
    }

    /// An output of the graph.
    pub(crate) fn output(&mut self, name: &str, shape: &[usize]) {
        self.push(12, value_info(name, shape));
    }

    fn push(&mut self, field: u64, value: Message) {
        self.message = std::mem::take(&mut self.message).message(field, value);
    }

    /// The model file.
    pub(crate) fn finish(self) -> Vec<u8> {
        let operators = Message::default().text(1, "").integer(2, 17);
        Message::default().integer(1, 8).message(7, self.message).message(8, operators).bytes
    }
}

fn value_info(name: &str, shape: &[usize]) -> Message {
    let dims = shape.iter().fold(Message::default(), |s, d| s.message(1, Message::default().integer(1, *d as i64)));
    let tensor = Message::default().integer(1, 1).message(2, dims);
    Message::default().text(1, name).message(2, Message::default().message(1, tensor))
}

/// The model of one layer. Inputs: `x`, and `residual` if there is one; output: `y`. Everything else is constant, so that
/// the runtime may pack it.
pub(crate) fn layer(problem: &Problem, data: &Data) -> Vec<u8> {
    let mut graph = Graph::new("layer");
    graph.input("x", &problem.op.input());
    graph.constant("w", &problem.op.weight(), &data.weight);
    if problem.bias {
        graph.constant("bias", &[problem.op.channels()], &data.bias);
    }
    // What remains to be applied, the last step's output being `y`.
    let mut steps: Vec<(&str, Vec<&str>)> = vec![];
    match &problem.op {
        Op::Conv(_) if problem.bias => steps.push(("Conv", vec!["w", "bias"])),
        Op::Conv(_) => steps.push(("Conv", vec!["w"])),
        // A product with a bias, or with a transposed matrix, is a Gemm where it has no batch.
        Op::Product(p) if p.batch == 1 && (problem.bias || p.trans_a || p.trans_b) => {
            steps.push(("Gemm", if problem.bias { vec!["w", "bias"] } else { vec!["w"] }))
        }
        Op::Product(p) => {
            assert!(!p.trans_a && !p.trans_b, "a batch of transposed products is in no list");
            steps.push(("MatMul", vec!["w"]));
            if problem.bias {
                steps.push(("Add", vec!["bias"]));
            }
        }
    }
    if problem.residual {
        graph.input("residual", &problem.op.output());
        steps.push(("Add", vec!["residual"]));
    }
    match problem.activation {
        Activation::None => {}
        Activation::Relu => steps.push(("Relu", vec![])),
        Activation::Relu6 => {
            graph.constant("zero", &[], &[0.0]);
            graph.constant("six", &[], &[6.0]);
            steps.push(("Clip", vec!["zero", "six"]));
        }
        Activation::Gelu => unreachable!("no list has a GELU"),
    }
    let last = steps.len() - 1;
    let mut from = "x".to_string();
    for (i, (op, others)) in steps.iter().enumerate() {
        let to = if i == last { "y".to_string() } else { format!("step{i}") };
        let inputs: Vec<&str> = std::iter::once(from.as_str()).chain(others.iter().copied()).collect();
        graph.node(op, &inputs, &to, &attributes(op, &problem.op));
        from = to;
    }
    graph.output("y", &problem.op.output());
    graph.finish()
}

fn attributes(node: &str, op: &Op) -> Vec<(&'static str, Attribute)> {
    match (node, op) {
        ("Conv", Op::Conv(c)) => vec![
            ("kernel_shape", Attribute::Ints(vec![c.kh, c.kw])),
            ("strides", Attribute::Ints(c.stride.to_vec())),
            ("pads", Attribute::Ints(c.padding.to_vec())),
            ("dilations", Attribute::Ints(c.dilation.to_vec())),
            ("group", Attribute::Int(c.groups as i64)),
        ],
        ("Gemm", Op::Product(p)) => vec![
            ("alpha", Attribute::Float(1.0)),
            ("transA", Attribute::Int(i64::from(p.trans_a))),
            ("transB", Attribute::Int(i64::from(p.trans_b))),
        ],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_protocol_buffers_have_them() {
        // The examples of the format's documentation: field 1 as the integer 150, field 2 as "testing".
        assert_eq!(Message::default().integer(1, 150).bytes, [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "testing").bytes, b"\x12\x07testing");
        assert_eq!(Message::default().float(2, 1.0).bytes, [0x15, 0, 0, 0x80, 0x3f]);
    }
}
