//! Random networks as ONNX models: what exporters write, in any order that is valid.

use kernel_gen::stable::Rng;
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};
use std::cell::RefCell;

/// A tensor: its name and shape.
type Value = (String, Vec<i64>);

/// A graph while it is made.
pub(crate) struct Maker {
    rng: Rng,
    graph: GraphProto,
    live: Vec<Value>,
    made: usize,
}

/// An attribute of one integer.
pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: Some(name.into()), i: Some(value), r#type: Some(AttributeType::INT), ..Default::default() }
}

/// An attribute of several integers.
pub(crate) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    let r#type = Some(AttributeType::INTS);
    AttributeProto { name: Some(name.into()), ints: values.to_vec(), r#type, ..Default::default() }
}

/// An attribute of a number.
pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { name: Some(name.into()), f: Some(value), r#type: Some(AttributeType::FLOAT), ..Default::default() }
}

/// An attribute of text.
pub(crate) fn text(name: &str, value: &str) -> AttributeProto {
    let r#type = Some(AttributeType::STRING);
    AttributeProto { name: Some(name.into()), s: Some(value.into()), r#type, ..Default::default() }
}

/// A constant of numbers.
pub(crate) fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensor(name, dims, DataType::FLOAT, raw)
}

/// A constant of integers.
pub(crate) fn integers(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensor(name, dims, DataType::INT64, raw)
}

/// A constant of raw bytes.
pub(crate) fn tensor(name: &str, dims: &[i64], kind: DataType, raw: Vec<u8>) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(kind),
        raw_data: Some(RefCell::new(raw)),
        ..Default::default()
    }
}

/// A node.
pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let strings = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    NodeProto {
        op_type: Some(op.into()),
        name: outputs.first().map(|name| format!("make_{name}")),
        input: strings(inputs),
        output: strings(outputs),
        attribute,
        domain: None,
    }
}

/// An input or an output; an extent below 0 is one that the file leaves open.
pub(crate) fn info(name: &str, shape: &[i64]) -> ValueInfoProto {
    value(name, shape, DataType::FLOAT)
}

/// The same of a type.
pub(crate) fn value(name: &str, shape: &[i64], kind: DataType) -> ValueInfoProto {
    let dim =
        |n: &i64| Dimension { dim_value: (*n >= 0).then_some(*n), dim_param: (*n < 0).then(|| "batch".to_string()) };
    let shape = TensorShapeProto { dim: shape.iter().map(dim).collect() };
    let tensor_type = Some(TypeProtoTensor { elem_type: Some(kind), shape: Some(shape) });
    ValueInfoProto { name: Some(name.into()), r#type: Some(TypeProto { tensor_type, ..Default::default() }) }
}

/// A model of a graph.
pub(crate) fn model(graph: GraphProto) -> ModelProto {
    let version = OperatorSetIdProto { domain: Some(String::new()), version: Some(20) };
    ModelProto { ir_version: Some(9), graph: Some(graph), opset_import: vec![version], ..Default::default() }
}

/// A random model.
pub(crate) fn random(seed: u64) -> ModelProto {
    let mut maker = Maker { rng: Rng::new(seed), graph: GraphProto::default(), live: vec![], made: 0 };
    let channels = maker.rng.between(1, 9);
    let size = [maker.rng.between(4, 12), maker.rng.between(4, 12)];
    let shape = vec![maker.rng.between(1, 2), channels, size[0], size[1]];
    maker.graph.input.push(info("x", &shape));
    maker.live.push(("x".into(), shape));
    for _ in 0..maker.rng.between(2, 14) {
        maker.step();
    }
    let last = maker.live.len() - 1;
    let mut outputs = vec![last];
    if maker.rng.one_in(3) {
        outputs.push(maker.rng.below(last as u64 + 1) as usize);
    }
    outputs.dedup();
    for at in outputs {
        let (name, shape) = maker.live[at].clone();
        maker.graph.output.push(info(&name, &shape));
    }
    model(maker.graph)
}

impl Maker {
    fn name(&mut self) -> String {
        self.made += 1;
        format!("v{}", self.made)
    }

    /// A constant of random numbers of about this size.
    fn numbers(&mut self, dims: &[i64], size: f32) -> String {
        let name = self.name();
        let count = dims.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|_| (self.rng.unit() as f32 * 2.0 - 1.0) * size).collect();
        self.graph.initializer.push(floats(&name, dims, &values));
        name
    }

    /// A constant of random numbers from `low` on.
    fn positive(&mut self, dims: &[i64], low: f32) -> String {
        let name = self.name();
        let count = dims.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|_| low + self.rng.unit() as f32).collect();
        self.graph.initializer.push(floats(&name, dims, &values));
        name
    }

    /// A constant scalar.
    fn scalar(&mut self, value: f32) -> String {
        let name = self.name();
        self.graph.initializer.push(floats(&name, &[], &[value]));
        name
    }

    /// A constant of given integers.
    fn list(&mut self, values: &[i64]) -> String {
        let name = self.name();
        self.graph.initializer.push(integers(&name, &[values.len() as i64], values));
        name
    }

    /// Adds a node with one result.
    fn add(&mut self, op: &str, inputs: &[&str], shape: &[i64], attributes: Vec<AttributeProto>) -> Value {
        let name = self.name();
        self.graph.node.push(node(op, inputs, &[&name], attributes));
        self.live.push((name.clone(), shape.to_vec()));
        (name, shape.to_vec())
    }

    /// A value, mostly one of the latest.
    fn pick(&mut self) -> Value {
        let among = if self.rng.one_in(3) { self.live.len() } else { self.live.len().min(2) };
        let from = self.live.len() - among;
        self.live[from + self.rng.below(among as u64) as usize].clone()
    }

    /// Another value of the same shape, or the value itself.
    fn like(&mut self, value: &Value) -> Value {
        let same: Vec<Value> = self.live.iter().filter(|(_, shape)| *shape == value.1).cloned().collect();
        self.rng.pick(&same).clone()
    }

    /// A node, or a few that belong together.
    fn step(&mut self) {
        let value = self.pick();
        match value.1.len() {
            4 => self.of_images(&value),
            _ => self.of_rows(&value),
        }
    }

    fn of_images(&mut self, value: &Value) {
        let (x, shape) = (value.0.as_str(), &value.1);
        let [n, c, h, w] = shape[..] else { unreachable!("images have four dimensions") };
        match self.rng.below(21) {
            0..=3 => self.conv(x, shape),
            19 => self.of_several_steps(value),
            20 => self.recurrent(value),
            4 => {
                let operands = [
                    self.positive(&[c], 0.5),
                    self.numbers(&[c], 0.5),
                    self.numbers(&[c], 0.5),
                    self.positive(&[c], 0.5),
                ];
                let [a, b, m, v] = operands.each_ref().map(String::as_str);
                self.add("BatchNormalization", &[x, a, b, m, v], shape, vec![float("epsilon", 1e-4)]);
            }
            5 | 6 => self.activation(value),
            7 => {
                let other = self.like(value);
                let op = *self.rng.pick(&["Add", "Mul", "Sub", "Max"]);
                self.add(op, &[x, &other.0], shape, vec![]);
            }
            8 => {
                // Squeeze and excite.
                let (mean, _) = self.add("GlobalAveragePool", &[x], &[n, c, 1, 1], vec![]);
                let weight = self.numbers(&[c, c, 1, 1], 0.5);
                let (gate, _) = self.add("Conv", &[&mean, &weight], &[n, c, 1, 1], vec![]);
                let (gate, _) = self.add("Sigmoid", &[&gate], &[n, c, 1, 1], vec![]);
                self.add("Mul", &[x, &gate], shape, vec![]);
            }
            9 => {
                let same = |(_, s): &&Value| s.len() == 4 && [s[0], s[2], s[3]] == [n, h, w];
                let all: Vec<Value> = self.live.iter().filter(same).cloned().collect();
                let other = self.rng.pick(&all).clone();
                self.add("Concat", &[x, &other.0], &[n, c + other.1[1], h, w], vec![int("axis", 1)]);
            }
            10 if h >= 2 && w >= 2 => {
                let op = *self.rng.pick(&["MaxPool", "AveragePool"]);
                let stride = self.rng.between(1, 2);
                let out = |size: i64| (size - 2) / stride + 1;
                let attributes = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[stride, stride])];
                self.add(op, &[x], &[n, c, out(h), out(w)], attributes);
            }
            11 if h * w <= 100 => {
                let scales = self.name();
                self.graph.initializer.push(floats(&scales, &[4], &[1.0, 1.0, 2.0, 2.0]));
                let attributes = vec![
                    text("mode", "nearest"),
                    text("coordinate_transformation_mode", "asymmetric"),
                    text("nearest_mode", "floor"),
                ];
                self.add("Resize", &[x, "", &scales], &[n, c, 2 * h, 2 * w], attributes);
            }
            12 => {
                let dims = self
                    .rng
                    .pick(&[vec![c, 1, 1], vec![1, c, 1, 1], vec![1], vec![], vec![w], vec![1, 1, h, 1]])
                    .clone();
                let op = *self.rng.pick(&["Add", "Mul", "Sub", "Div"]);
                let other = self.positive(&dims, 0.5);
                let sides = if self.rng.one_in(3) && op != "Div" { [other.as_str(), x] } else { [x, other.as_str()] };
                self.add(op, &sides, shape, vec![]);
            }
            13 if c >= 2 => {
                let (start, end) = (self.rng.between(0, c - 2), c);
                let bounds = [self.list(&[start]), self.list(&[end]), self.list(&[1])];
                self.add("Slice", &[x, &bounds[0], &bounds[1], &bounds[2]], &[n, end - start, h, w], vec![]);
            }
            14 => {
                let pads = self.list(&[0, 0, 1, 0, 0, 0, 0, 1]);
                let mode = *self.rng.pick(&["constant", "edge"]);
                self.add("Pad", &[x, &pads], &[n, c, h + 1, w + 1], vec![text("mode", mode)]);
            }
            15 => {
                let (rows, _) = self.add("Transpose", &[x], &[n, h, w, c], vec![ints("perm", &[0, 2, 3, 1])]);
                let flat = self.list(&[n, h * w, c]);
                self.add("Reshape", &[&rows, &flat], &[n, h * w, c], vec![]);
            }
            16 if c % 2 == 0 => {
                // ShuffleNet's exchange of channels.
                let (apart, back) = (self.list(&[n, 2, c / 2, h, w]), self.list(&[n, c, h, w]));
                let (y, _) = self.add("Reshape", &[x, &apart], &[n, 2, c / 2, h, w], vec![]);
                let (y, _) = self.add("Transpose", &[&y], &[n, c / 2, 2, h, w], vec![ints("perm", &[0, 2, 1, 3, 4])]);
                self.add("Reshape", &[&y, &back], shape, vec![]);
            }
            17 => {
                // A block of ConvNeXt works on rows.
                let (y, of) = self.add("Transpose", &[x], &[n, h, w, c], vec![ints("perm", &[0, 2, 3, 1])]);
                let weight = self.numbers(&[c, c], 1.0 / (c as f32).sqrt());
                let (y, _) = self.add("MatMul", &[&y, &weight], &of, vec![]);
                let (y, _) = self.add("Transpose", &[&y], shape, vec![ints("perm", &[0, 3, 1, 2])]);
                self.add("Add", &[x, &y], shape, vec![]);
            }
            _ => {
                self.add("Flatten", &[x], &[n, c * h * w], vec![int("axis", 1)]);
            }
        }
    }

    fn conv(&mut self, x: &str, shape: &[i64]) {
        let [n, c, h, w] = shape[..] else { unreachable!("images have four dimensions") };
        let groups = *self.rng.pick(&[1, 1, c]);
        let outputs = if groups == 1 { self.rng.between(1, 12) } else { c };
        let taps = *self.rng.pick(&[1, 3]);
        let stride = self.rng.between(1, 2);
        let pad = taps / 2;
        let out = |size: i64| (size + 2 * pad - taps) / stride + 1;
        let size = 1.5 / ((c / groups * taps * taps) as f32).sqrt();
        let weight = self.numbers(&[outputs, c / groups, taps, taps], size);
        let bias = self.rng.one_in(2).then(|| self.numbers(&[outputs], 0.5));
        let mut operands = vec![x, &weight];
        operands.extend(bias.as_deref());
        let attributes = vec![ints("strides", &[stride, stride]), ints("pads", &[pad; 4]), int("group", groups)];
        self.add("Conv", &operands, &[n, outputs, out(h), out(w)], attributes);
    }

    /// Operators that become several others.
    fn of_several_steps(&mut self, value: &Value) {
        let (x, shape) = (value.0.as_str(), &value.1);
        let [n, c, h, w] = shape[..] else { unreachable!("images have four dimensions") };
        let axis = self.rng.between(0, 3);
        let extent = shape[axis as usize];
        match self.rng.below(8) {
            0 => {
                let at = self.list(&[axis]);
                let attributes = vec![int("exclusive", self.rng.between(0, 1)), int("reverse", self.rng.between(0, 1))];
                self.add("CumSum", &[x, &at], shape, attributes);
            }
            1 => {
                let columns = self.rng.between(1, 6);
                let weight = self.numbers(&[columns, w], 1.0 / (w as f32).sqrt());
                let equation = *self.rng.pick(&["nchw,kw->nchk", "...w,kw->...k", "abcd,ed->abce"]);
                self.add("Einsum", &[x, &weight], &[n, c, h, columns], vec![text("equation", equation)]);
            }
            2 if n * h * c * c <= 1 << 14 => {
                let other = self.like(value);
                self.add("Einsum", &[x, &other.0], &[n, h, c, c], vec![text("equation", "nchw,nkhw->nhck")]);
            }
            3 => {
                // The largest element, by its index.
                let mut one = shape.clone();
                one[axis as usize] = 1;
                let (index, _) = self.add("ArgMax", &[x], &one, vec![int("axis", axis), int("keepdims", 1)]);
                // Integers are no value for others.
                self.live.pop();
                self.add("GatherElements", &[x, &index], &one, vec![int("axis", axis)]);
            }
            4 => {
                let k = self.rng.between(1, extent.min(5));
                let count = self.list(&[k]);
                let mut first = shape.clone();
                first[axis as usize] = k;
                let attributes = vec![int("axis", axis), int("largest", self.rng.between(0, 1))];
                let (values, indices) = (self.name(), self.name());
                self.graph.node.push(node("TopK", &[x, &count], &[&values, &indices], attributes));
                self.live.push((values, first));
            }
            5 => {
                let places = [n, self.rng.between(1, 6), self.rng.between(1, 6), 2];
                let grid = self.numbers(&places, 1.4);
                let beyond = *self.rng.pick(&["zeros", "border", "reflection"]);
                let attributes = vec![
                    text("mode", "linear"),
                    text("padding_mode", beyond),
                    int("align_corners", self.rng.between(0, 1)),
                ];
                self.add("GridSample", &[x, &grid], &[n, c, places[1], places[2]], attributes);
            }
            6 => {
                let k = self.name();
                self.graph.initializer.push(integers(&k, &[], &[self.rng.between(-2, 2)]));
                let upper = self.rng.between(0, 1);
                self.add("Trilu", &[x, &k], shape, vec![int("upper", upper)]);
            }
            _ => {
                let attributes = vec![int("axis", axis), int("p", self.rng.between(1, 2))];
                self.add("LpNormalization", &[x], shape, attributes);
            }
        }
    }

    /// A recurrent layer along the channels, of rows of pixels.
    fn recurrent(&mut self, value: &Value) {
        let (x, [n, c, h, w]) = (value.0.as_str(), value.1[..].try_into().expect("four dimensions"));
        let (op, gates) = *self.rng.pick(&[("LSTM", 4), ("GRU", 3), ("RNN", 1)]);
        let (direction, directions) = *self.rng.pick(&[("forward", 1), ("reverse", 1), ("bidirectional", 2)]);
        let hidden = self.rng.between(1, 6);
        let (y, _) = self.add("Transpose", &[x], &[c, n, h, w], vec![ints("perm", &[1, 0, 2, 3])]);
        let rows = self.list(&[c, n * h, w]);
        let (y, _) = self.add("Reshape", &[&y, &rows], &[c, n * h, w], vec![]);
        let of_input = self.numbers(&[directions, gates * hidden, w], 1.0 / (w as f32).sqrt());
        let of_state = self.numbers(&[directions, gates * hidden, hidden], 0.7);
        let bias = self.rng.one_in(2).then(|| self.numbers(&[directions, 2 * gates * hidden], 0.5));
        let state = self.rng.one_in(2).then(|| self.numbers(&[directions, n * h, hidden], 0.5));
        let operands = [&y, &of_input, &of_state, bias.as_deref().unwrap_or(""), "", state.as_deref().unwrap_or("")];
        let mut attributes = vec![text("direction", direction), int("hidden_size", hidden)];
        attributes.extend((op == "GRU").then(|| int("linear_before_reset", 1)));
        self.add(op, &operands, &[c, directions, n * h, hidden], attributes);
    }

    /// Attention in the pieces that exporters write.
    fn attention(&mut self, value: &Value) {
        let (x, [n, rows, columns]) = (value.0.as_str(), value.1[..].try_into().expect("three dimensions"));
        let (heads, d) = (self.rng.between(1, 3), *self.rng.pick(&[2, 4, 8, 16]));
        let product = |of: &mut Self, width: i64| {
            let weight = of.numbers(&[columns, width], 1.5 / (columns as f32).sqrt());
            of.add("MatMul", &[x, &weight], &[n, rows, width], vec![]).0
        };
        // Heads first, of rows of all heads.
        let turned = |of: &mut Self, y: &str| {
            let shape = of.list(&[n, rows, heads, d]);
            let (y, _) = of.add("Reshape", &[y, &shape], &[n, rows, heads, d], vec![]);
            of.add("Transpose", &[&y], &[n, heads, rows, d], vec![ints("perm", &[0, 2, 1, 3])]).0
        };
        let [mut q, k, v] = match self.rng.below(3) {
            0 => {
                let y = product(self, 3 * heads * d);
                let apart = self.list(&[n, rows, 3, heads, d]);
                let (y, _) = self.add("Reshape", &[&y, &apart], &[n, rows, 3, heads, d], vec![]);
                let (y, _) =
                    self.add("Transpose", &[&y], &[3, n, heads, rows, d], vec![ints("perm", &[2, 0, 3, 1, 4])]);
                [0, 1, 2].map(|i| {
                    let index = self.name();
                    self.graph.initializer.push(integers(&index, &[], &[i]));
                    self.add("Gather", &[&y, &index], &[n, heads, rows, d], vec![int("axis", 0)]).0
                })
            }
            1 => {
                let y = product(self, 3 * heads * d);
                [0, 1, 2].map(|i| {
                    let [start, end, axis] = [i * heads * d, (i + 1) * heads * d, 2].map(|at| self.list(&[at]));
                    let (y, _) = self.add("Slice", &[&y, &start, &end, &axis], &[n, rows, heads * d], vec![]);
                    turned(self, &y)
                })
            }
            _ => [(); 3].map(|()| {
                let y = product(self, heads * d);
                turned(self, &y)
            }),
        };
        let factor = *self.rng.pick(&[1.0, 1.0, 1.0, 1.5]);
        let scale = self.scalar(factor / (d as f32).sqrt());
        let first = self.rng.one_in(2);
        if first {
            q = self.add("Mul", &[&q, &scale], &[n, heads, rows, d], vec![]).0;
        }
        let (k, _) = self.add("Transpose", &[&k], &[n, heads, d, rows], vec![ints("perm", &[0, 1, 3, 2])]);
        let scores = [n, heads, rows, rows];
        let (mut s, _) = self.add("MatMul", &[&q, &k], &scores, vec![]);
        if !first {
            s = self.add("Mul", &[&s, &scale], &scores, vec![]).0;
        }
        if self.rng.one_in(2) {
            let dims = self
                .rng
                .pick(&[vec![rows, rows], vec![1, heads, rows, rows], vec![n, 1, rows, rows], vec![rows]])
                .clone();
            let mask = self.numbers(&dims, 1.0);
            s = self.add("Add", &[&s, &mask], &scores, vec![]).0;
        }
        if self.rng.one_in(3) {
            // A mask that is computed: a number for each key, or each query.
            let axes = self.list(&[2]);
            let (mask, _) = self.add("ReduceMean", &[x, &axes], &[n, rows], vec![int("keepdims", 0)]);
            let dims = self.rng.pick(&[[n, 1, 1, rows], [n, 1, rows, 1]]).to_vec();
            let extents = self.list(&dims);
            let (mask, _) = self.add("Reshape", &[&mask, &extents], &dims, vec![]);
            s = self.add("Add", &[&s, &mask], &scores, vec![]).0;
        }
        let (mut s, _) = self.add("Softmax", &[&s], &scores, vec![int("axis", -1)]);
        if self.rng.one_in(3) {
            let (is_nan, zero) = (self.add("IsNaN", &[&s], &scores, vec![]).0, self.scalar(0.0));
            // Truth values are no value for others.
            self.live.pop();
            s = self.add("Where", &[&is_nan, &zero, &s], &scores, vec![]).0;
        }
        let (y, _) = self.add("MatMul", &[&s, &v], &[n, heads, rows, d], vec![]);
        let (y, _) = self.add("Transpose", &[&y], &[n, rows, heads, d], vec![ints("perm", &[0, 2, 1, 3])]);
        let together = self.list(&[n, rows, heads * d]);
        self.add("Reshape", &[&y, &together], &[n, rows, heads * d], vec![]);
    }

    /// Attention as PyTorch's exporter writes `MultiheadAttention`: words before images, and the heads of all images counted as one's.
    fn attention_of_words(&mut self, value: &Value) {
        let (x, [n, rows, columns]) = (value.0.as_str(), value.1[..].try_into().expect("three dimensions"));
        let (heads, d) = (self.rng.between(1, 3), *self.rng.pick(&[2, 4, 8]));
        let (all, width) = (n * heads, heads * d);
        let swap = || vec![ints("perm", &[1, 0, 2])];
        let (y, _) = self.add("Transpose", &[x], &[rows, n, columns], swap());
        let weight = self.numbers(&[columns, 3 * width], 1.5 / (columns as f32).sqrt());
        let (mut y, shape) = self.add("MatMul", &[&y, &weight], &[rows, n, 3 * width], vec![]);
        if self.rng.one_in(2) {
            let bias = self.numbers(&[3 * width], 0.5);
            y = self.add("Add", &[&bias, &y], &shape, vec![]).0;
        }
        let apart = self.list(&[rows, n, 3, width]);
        let (y, _) = self.add("Reshape", &[&y, &apart], &[rows, n, 3, width], vec![]);
        let (y, _) = self.add("Transpose", &[&y], &[3, rows, n, width], vec![ints("perm", &[2, 0, 1, 3])]);
        let [q, k, v] = [0, 1, 2].map(|i| {
            let index = self.name();
            self.graph.initializer.push(integers(&index, &[], &[i]));
            let (y, _) = self.add("Gather", &[&y, &index], &[rows, n, width], vec![int("axis", 0)]);
            let heads_apart = self.list(&[rows, all, d]);
            let (y, _) = self.add("Reshape", &[&y, &heads_apart], &[rows, all, d], vec![]);
            self.add("Transpose", &[&y], &[all, rows, d], swap()).0
        });
        let (k, _) = self.add("Transpose", &[&k], &[all, d, rows], vec![ints("perm", &[0, 2, 1])]);
        let scale = self.scalar(1.0 / (d as f32).sqrt());
        let (q, _) = self.add("Mul", &[&q, &scale], &[all, rows, d], vec![]);
        let scores = [all, rows, rows];
        let (mut s, _) = self.add("MatMul", &[&q, &k], &scores, vec![]);
        if self.rng.one_in(2) {
            let dims = self.rng.pick(&[vec![rows, rows], vec![all, rows, rows]]).clone();
            let mask = self.numbers(&dims, 1.0);
            s = self.add("Add", &[&s, &mask], &scores, vec![]).0;
        }
        let (s, _) = self.add("Softmax", &[&s], &scores, vec![int("axis", -1)]);
        let (y, _) = self.add("MatMul", &[&s, &v], &[all, rows, d], vec![]);
        let (y, _) = self.add("Transpose", &[&y], &[rows, all, d], swap());
        let together = self.list(&[rows, n, width]);
        let (y, _) = self.add("Reshape", &[&y, &together], &[rows, n, width], vec![]);
        let weight = self.numbers(&[width, columns], 1.5 / (width as f32).sqrt());
        let (y, _) = self.add("MatMul", &[&y, &weight], &[rows, n, columns], vec![]);
        let (y, shape) = self.add("Transpose", &[&y], &[n, rows, columns], swap());
        if self.rng.one_in(2) {
            self.add("Add", &[x, &y], &shape, vec![]);
        }
    }

    fn activation(&mut self, value: &Value) {
        let (x, shape) = (value.0.as_str(), &value.1);
        match self.rng.below(8) {
            0 => drop(self.add("Relu", &[x], shape, vec![])),
            1 => drop(self.add("LeakyRelu", &[x], shape, vec![float("alpha", 0.1)])),
            2 => {
                // Exporters write SiLU so.
                let (gate, _) = self.add("Sigmoid", &[x], shape, vec![]);
                self.add("Mul", &[x, &gate], shape, vec![]);
            }
            3 => {
                let (low, high) = (self.name(), self.name());
                self.graph.initializer.push(floats(&low, &[], &[0.0]));
                self.graph.initializer.push(floats(&high, &[], &[6.0]));
                self.add("Clip", &[x, &low, &high], shape, vec![]);
            }
            4 => drop(self.add("HardSwish", &[x], shape, vec![])),
            5 => {
                // As opset 12 has it: x * clip(x + 3, 0, 6) / 6.
                let [three, zero, six] = [3.0, 0.0, 6.0].map(|number| self.scalar(number));
                let (y, _) = self.add("Add", &[x, &three], shape, vec![]);
                let (y, _) = self.add("Clip", &[&y, &zero, &six], shape, vec![]);
                let (y, _) = self.add("Mul", &[x, &y], shape, vec![]);
                self.add("Div", &[&y, &six], shape, vec![]);
            }
            6 => {
                // GELU: x * (1 + erf(x / sqrt(2))) / 2.
                let [root, one, half] = [std::f32::consts::SQRT_2, 1.0, 0.5].map(|number| self.scalar(number));
                let (y, _) = self.add("Div", &[x, &root], shape, vec![]);
                let (y, _) = self.add("Erf", &[&y], shape, vec![]);
                let (y, _) = self.add("Add", &[&y, &one], shape, vec![]);
                let (y, _) = self.add("Mul", &[x, &y], shape, vec![]);
                self.add("Mul", &[&y, &half], shape, vec![]);
            }
            _ => drop(self.add("Tanh", &[x], shape, vec![])),
        }
    }

    fn of_rows(&mut self, value: &Value) {
        let (x, shape) = (value.0.as_str(), &value.1);
        let columns = shape[shape.len() - 1];
        let with = |last: i64| [&shape[..shape.len() - 1], &[last]].concat();
        // Scores of all pairs of rows are computed by the reference, too.
        let is_short = shape.len() == 3 && shape[0] * shape[1] * shape[1] <= 1 << 16;
        match self.rng.below(10) {
            8 if is_short => self.attention(value),
            9 if is_short && self.rng.one_in(2) => self.attention(value),
            9 if is_short => self.attention_of_words(value),
            0 | 1 => {
                let outputs = self.rng.between(1, 12);
                let weight = self.numbers(&[columns, outputs], 1.5 / (columns as f32).sqrt());
                let (y, shape) = self.add("MatMul", &[x, &weight], &with(outputs), vec![]);
                let bias = self.numbers(&[outputs], 0.5);
                self.add("Add", &[&y, &bias], &shape, vec![]);
            }
            2 if shape.len() == 2 => {
                let outputs = self.rng.between(1, 12);
                let weight = self.numbers(&[outputs, columns], 1.5 / (columns as f32).sqrt());
                let bias = self.numbers(&[outputs], 0.5);
                self.add("Gemm", &[x, &weight, &bias], &with(outputs), vec![int("transB", 1)]);
            }
            3 => self.activation(value),
            7 => {
                // A norm in pieces.
                let rows = with(1);
                let last = self.list(&[-1]);
                let (mean, _) = self.add("ReduceMean", &[x, &last], &rows, vec![]);
                let (centred, _) = self.add("Sub", &[x, &mean], shape, vec![]);
                let [two, epsilon] = [2.0, 1e-3].map(|number| self.scalar(number));
                let (squares, _) = self.add("Pow", &[&centred, &two], shape, vec![]);
                let (variance, _) = self.add("ReduceMean", &[&squares, &last], &rows, vec![]);
                let (variance, _) = self.add("Add", &[&variance, &epsilon], &rows, vec![]);
                let (deviation, _) = self.add("Sqrt", &[&variance], &rows, vec![]);
                let (y, _) = self.add("Div", &[&centred, &deviation], shape, vec![]);
                let (scale, shift) = (self.positive(&[columns], 0.5), self.numbers(&[columns], 0.5));
                let (y, _) = self.add("Mul", &[&y, &scale], shape, vec![]);
                self.add("Add", &[&y, &shift], shape, vec![]);
            }
            4 => drop(self.add("Softmax", &[x], shape, vec![int("axis", -1)])),
            5 => {
                let (scale, shift) = (self.positive(&[columns], 0.5), self.numbers(&[columns], 0.5));
                self.add(
                    "LayerNormalization",
                    &[x, &scale, &shift],
                    shape,
                    vec![int("axis", -1), float("epsilon", 1e-3)],
                );
            }
            _ => {
                let other = self.like(value);
                self.add("Add", &[x, &other.0], shape, vec![]);
            }
        }
    }
}
