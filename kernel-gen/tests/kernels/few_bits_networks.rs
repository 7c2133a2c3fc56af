//! Products with weights of few bits in models: both forms that they have, and what is refused.

use crate::networks::evaluate;
use crate::random_network::{floats, info, int, model, node, tensor};
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, Program, parse};
use kernel_gen::workload::sample::Rng;
use kernel_gen::workload::{ConvLayout, Op};
use rten_onnx::onnx::{DataType, GraphProto, ModelProto, NodeProto, TensorProto};
use std::collections::BTreeMap;
use std::path::Path;

fn read(model: &ModelProto) -> Result<Program, String> {
    let bytes = model.write_buf().unwrap();
    parse(&bytes, Path::new("/nowhere"), &BTreeMap::new()).map_err(|all| all[0].to_string())
}

/// Integers of four bits as ONNX packs them.
fn halves(of: &[i64]) -> Vec<u8> {
    of.chunks(2).map(|pair| (pair[0] & 15) as u8 | ((pair.get(1).unwrap_or(&0) & 15) as u8) << 4).collect()
}

/// A model of the given nodes from `x`, `[m, k]`, to `y`, `[m, n]`.
fn of(node: Vec<NodeProto>, initializer: Vec<TensorProto>, [m, n, k]: [i64; 3]) -> ModelProto {
    model(GraphProto {
        node,
        initializer,
        input: vec![info("x", &[m, k])],
        output: vec![info("y", &[m, n])],
        ..Default::default()
    })
}

/// A product with weights of runs.
struct Case {
    sizes: [i64; 3],
    group: i64,
    bits: i64,
    /// Unsigned, `[n][k]`.
    weights: Vec<i64>,
    /// Unsigned, `[n][run]`; none where they are half of the range.
    zeros: Option<Vec<i64>>,
    scales: Vec<f32>,
}

impl Case {
    fn random(seed: u64, bits: i64, has_zeros: bool) -> Case {
        let mut rng = Rng::new(seed);
        let (sizes, group) = ([rng.between(1, 3), rng.between(1, 5), rng.between(1, 70)], 16 << rng.below(2));
        let [_, n, k] = sizes;
        let runs = (k + group - 1) / group;
        let mut integers = |count: i64| (0..count).map(|_| rng.between(0, (1 << bits) - 1)).collect::<Vec<i64>>();
        let (weights, zeros) = (integers(n * k), integers(n * runs));
        let scales = (0..n * runs).map(|i| 0.01 + i as f32 * 0.003).collect();
        Case { sizes, group, bits, weights, zeros: has_zeros.then_some(zeros), scales }
    }

    fn runs(&self) -> i64 {
        (self.sizes[2] + self.group - 1) / self.group
    }

    /// The result for inputs, by the definition.
    fn result(&self, x: &[f64]) -> Vec<f64> {
        let [m, n, k] = self.sizes.map(|size| size as usize);
        let (group, runs) = (self.group as usize, self.runs() as usize);
        let weight = |j: usize, i: usize| {
            let zero = self.zeros.as_ref().map_or(1 << (self.bits - 1), |zeros| zeros[j * runs + i / group]);
            (self.weights[j * k + i] - zero) as f64 * f64::from(self.scales[j * runs + i / group])
        };
        (0..m * n).map(|at| (0..k).map(|i| x[at / n * k + i] * weight(at % n, i)).sum()).collect()
    }

    /// The model with ONNX Runtime's operator.
    fn of_runtime(&self, extra: &[&str]) -> ModelProto {
        let [_, n, k] = self.sizes;
        let packed = |of_row: Vec<i64>| match self.bits {
            4 => halves(&of_row),
            _ => of_row.iter().map(|q| *q as u8).collect(),
        };
        let row = |j: i64| {
            let mut row = self.weights[(j * k) as usize..][..k as usize].to_vec();
            // What lies behind the last weight may be anything.
            row.resize((self.runs() * self.group) as usize, 5);
            packed(row)
        };
        let bytes = self.group * self.bits / 8;
        let weights = tensor("w", &[n, self.runs(), bytes], DataType::UINT8, (0..n).flat_map(row).collect());
        let mut constants = vec![weights, floats("s", &[n * self.runs()], &self.scales)];
        let mut inputs = vec!["x", "w", "s"];
        if let Some(zeros) = &self.zeros {
            let row = |row: &[i64]| packed(row.to_vec());
            let zeros: Vec<u8> = zeros.chunks(self.runs() as usize).flat_map(row).collect();
            constants.push(tensor("z", &[zeros.len() as i64], DataType::UINT8, zeros));
            inputs.push("z");
        }
        inputs.extend(extra);
        let attributes = [("K", k), ("N", n), ("bits", self.bits), ("block_size", self.group)];
        let mut product = node("MatMulNBits", &inputs, &["y"], attributes.map(|(name, value)| int(name, value)).into());
        product.domain = Some("com.microsoft".into());
        of(vec![product], constants, self.sizes)
    }

    /// The model with ONNX's own operators: weights `[k, n]`, signed or not, with scales of blocks.
    fn of_pairs(&self, signed: bool) -> ModelProto {
        let [_, n, k] = self.sizes;
        let (offset, runs) = (if signed { 1 << (self.bits - 1) } else { 0 }, self.runs());
        let turned = |of: &[i64], rows: i64| -> Vec<i64> {
            (0..rows * n).map(|at| of[(at % n * rows + at / n) as usize] - offset).collect()
        };
        let constant = |name: &str, rows: i64, of: Vec<i64>| {
            let (kind, raw) = match (self.bits, signed) {
                (4, false) => (DataType(21), halves(&of)),
                (4, true) => (DataType(22), halves(&of)),
                (_, false) => (DataType::UINT8, of.iter().map(|q| *q as u8).collect()),
                (_, true) => (DataType::INT8, of.iter().map(|q| *q as u8).collect()),
            };
            tensor(name, &[rows, n], kind, raw)
        };
        let middle = vec![1 << (self.bits - 1); (n * runs) as usize];
        let scales: Vec<f32> = (0..runs * n).map(|at| self.scales[(at % n * runs + at / n) as usize]).collect();
        let constants = vec![
            constant("q", k, turned(&self.weights, k)),
            floats("s", &[runs, n], &scales),
            constant("z", runs, turned(self.zeros.as_ref().unwrap_or(&middle), runs)),
        ];
        let attributes = vec![int("axis", 0), int("block_size", self.group)];
        let nodes = vec![
            node("DequantizeLinear", &["q", "s", "z"], &["w"], attributes),
            node("MatMul", &["x", "w"], &["y"], vec![]),
        ];
        of(nodes, constants, self.sizes)
    }
}

#[test]
fn products_with_weights_of_few_bits_are_recognised_in_both_forms() {
    let mut kept = 0;
    for seed in 0..48 {
        let case = Case::random(seed, [4, 8][seed as usize % 2], seed % 3 == 0);
        let [m, _, k] = case.sizes;
        let x: Vec<f64> = (0..m * k).map(|i| (i * 7 % 11) as f64 * 0.25 - 1.0).collect();
        let expected = case.result(&x);
        for model in [case.of_runtime(&[]), case.of_pairs(false), case.of_pairs(true)] {
            let program = read(&model).unwrap_or_else(|e| panic!("{seed}: {e}"));
            let network = Network::of("net", program, Form { dtype: DType::F32, layout: ConvLayout::Nchw });
            let [step] = &network.plans[0].program.steps[..] else { panic!("{seed}: one product") };
            let Op::MatmulNbits(product) = step.workload.op else { panic!("{seed}: {}", step.workload.key()) };
            assert!(product.bits.count() <= case.bits, "{seed}: {}", step.workload.key());
            assert_eq!(product.asymmetric, case.zeros.is_some(), "{seed}: {}", step.workload.key());
            kept += i64::from(product.bits.count() == 4);
            let result = evaluate(&network.plans[0].program, std::slice::from_ref(&x), Some(&network)).remove(0);
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
            assert!(result.iter().zip(&expected).all(near), "{seed}: {result:?} and should be {expected:?}");
        }
    }
    assert!(kept >= 3 * 24, "weights of four bits stay so: {kept}");
}

#[test]
fn weights_that_are_no_runs_become_numbers() {
    // Blocks of 8.
    let case = Case { group: 8, scales: vec![0.5; 10], ..Case::random(1, 8, false) };
    let case = Case { sizes: [2, 2, 40], weights: (0..80).collect(), ..case };
    let x: Vec<f64> = (0..80).map(|i| (i % 9) as f64 - 4.0).collect();
    let program = read(&case.of_pairs(true)).unwrap();
    assert!(program.steps.iter().all(|step| step.workload.matmul().is_some()));
    assert_eq!(evaluate(&program, std::slice::from_ref(&x), None)[0], case.result(&x));
}

#[test]
fn what_products_with_weights_of_few_bits_cannot_be_is_said_in_one_line() {
    let case = Case::random(5, 4, true);
    let changed = |change: &dyn Fn(&mut NodeProto)| {
        let mut model = case.of_runtime(&[]);
        change(&mut model.graph.as_mut().unwrap().node[0]);
        read(&model).unwrap_err()
    };
    let attribute = |name: &'static str, value: i64| {
        changed(&move |node: &mut NodeProto| {
            let found = node.attribute.iter_mut().find(|a| a.name.as_deref() == Some(name)).unwrap();
            *found = int(name, value);
        })
    };
    for (error, expected) in [
        (attribute("bits", 2), "4 or 8"),
        (attribute("block_size", 8), "16, 32, 64, 128 or 256"),
        (attribute("block_size", i64::MAX), "16, 32, 64, 128 or 256"),
        (attribute("K", 0), "weights of"),
        (attribute("K", i64::MAX), "weights of"),
        (attribute("N", 1 << 40), "cannot take the shape"),
        (changed(&|node| node.input.push("s".into())), "g_idx"),
        (changed(&|node| node.input[3] = "s".into()), "zero points are no u8"),
        (changed(&|node| node.input[2] = "".into()), "operand 2 is missing"),
    ] {
        assert!(!error.contains('\n') && error.contains(expected), "{error}");
    }
}
