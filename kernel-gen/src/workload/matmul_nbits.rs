//! Products with weights of four or eight bits.

use super::matmul::{Matmul, transposed};
use super::operator::{
    FLOATS, Fault, Kind, Likeness, Operand, Operator, Shared, Size, SizeRole, SpecKey, Values, check_sizes,
};
use super::products::Sums;
use super::stage::{Axis, Stage, axis, input};
use super::{Op, Role, Workload, WorkloadError};
use crate::integer::ceil_div;
use crate::ir::{DType, Expr};

/// `c[i, j] = sum_k a[i, k] * (b[j, k] - z[j, k / g]) * b_scale[j, k / g]`: weights of four or eight bits, each run of `g` of a row with a
/// scale and a zero point of its own, by inputs that stay floats (`MatMulNBits` of ONNX Runtime; Frantar et al., arXiv:2210.17323).
///
/// A row of `b` is whole runs; of four bits the lower half of a byte comes first. What lies behind `k` counts for nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MatmulNbits {
    /// Rows of `a` and `c`.
    pub m: i64,
    /// Rows of `b`, columns of `c`.
    pub n: i64,
    /// Columns of `a`: the length of the reduction.
    pub k: i64,
    /// Bits of a weight.
    pub bits: Bits,
    /// Weights of a row that share a scale: 16, 32, 64, 128 or 256.
    pub group: i64,
    /// Whether zero points are a parameter, `b_zero`, packed as the weights are. Else they are half of the range, 8 or 128.
    pub asymmetric: bool,
}

/// Bits of a weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bits {
    /// Two weights are a byte.
    Four,
    /// A weight is a byte.
    Eight,
}

impl Bits {
    /// The number of them.
    pub fn count(self) -> i64 {
        match self {
            Bits::Four => 4,
            Bits::Eight => 8,
        }
    }

    /// Weights of a byte.
    pub fn in_byte(self) -> i64 {
        8 / self.count()
    }

    /// The zero point of weights without a parameter for it.
    pub fn middle(self) -> i64 {
        1 << (self.count() - 1)
    }
}

/// `matmul_nbits` in specs and keys.
pub(crate) static MATMUL_NBITS: Kind = Kind {
    name: "matmul_nbits",
    pattern: "m{}n{}k{}-{w4|w8}-{s|z}-{g16|g32|g64|g128|g256}",
    sizes: &[
        Size::new("m", "m", SizeRole::Images),
        Size::new("n", "n", SizeRole::Channels),
        Size::new("k", "k", SizeRole::Channels),
        Size::new("bits", "bits", SizeRole::Choice),
        Size::new("asymmetric", "asymmetric", SizeRole::Choice),
        Size::new("group", "group", SizeRole::Choice),
    ],
    layouts: &[],
    flags: &["asymmetric"],
    between: &[],
    outputs: FLOATS,
    keys,
    read,
    of_sizes: |_, sizes| {
        let [m, n, k, bits, asymmetric, group] = *sizes else { return None };
        let bits = [Bits::Four, Bits::Eight].into_iter().nth(usize::try_from(bits).ok()?)?;
        let group = *GROUPS.get(usize::try_from(group).ok()?)?;
        Some(Op::MatmulNbits(MatmulNbits { m, n, k, bits, group, asymmetric: asymmetric == 1 }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "n", .. } => "b",
        WorkloadError::Sizes { .. } => "group",
        _ => "a",
    },
};

/// The lengths of runs.
pub(crate) const GROUPS: [i64; 5] = [16, 32, 64, 128, 256];

/// What `group` is where nobody says.
const GROUP: i64 = 32;

fn keys(_: &Shared) -> Vec<SpecKey> {
    vec![
        SpecKey::required("a", &[2], "[m, k]"),
        SpecKey::required("b", &[2], "[n, k]"),
        SpecKey::optional("bits", &[]),
        SpecKey::optional("group", &[]),
    ]
}

fn read(shared: &Shared, values: &Values) -> Result<Op, Fault> {
    let [m, n, k] = transposed(values, "the shapes are a = [m, k] and b = [n, k], as weights, not as bytes")?;
    let bits = match values.get("bits").map_or(4, |value| value[0]) {
        4 => Bits::Four,
        8 => Bits::Eight,
        other => return Err(Fault::new("bits", format!("weights have {other} bits"), "write 4 or 8")),
    };
    let group = values.get("group").map_or(GROUP, |value| value[0]);
    Ok(Op::MatmulNbits(MatmulNbits { m, n, k, bits, group, asymmetric: shared.flags[0] }))
}

impl MatmulNbits {
    /// The product of numbers.
    pub fn product(&self) -> Matmul {
        Matmul { trans_b: true, ..Matmul::new(self.m, self.n, self.k) }
    }

    /// Runs of a row of weights.
    pub fn groups(&self) -> i64 {
        ceil_div(self.k, self.group.max(1))
    }

    /// Bytes of a row of `b`.
    pub fn row_bytes(&self) -> i64 {
        self.groups().saturating_mul(self.group) / self.bits.in_byte()
    }

    /// Bytes of a row of `b_zero`, where there is one.
    pub(crate) fn row_zeros(&self) -> i64 {
        ceil_div(self.groups(), self.bits.in_byte())
    }

    /// The integers of a byte, in their order.
    pub(crate) fn parts(&self, byte: Expr) -> Vec<Expr> {
        let sixteen = Expr::Int(16).cast(DType::I32);
        match self.bits {
            Bits::Eight => vec![byte],
            Bits::Four => vec![byte.clone().floor_mod(sixteen.clone()), byte.floor_div(sixteen)],
        }
    }

    /// The integer at a place of a packed row, of which `byte` reads the byte.
    pub(crate) fn unpacked(&self, at: Expr, byte: impl FnOnce(Expr) -> Expr) -> Expr {
        let byte = byte(at.clone().floor_div(self.bits.in_byte()));
        match &self.parts(byte)[..] {
            [lower, upper] => at.floor_mod(2).eq(0).select(lower.clone(), upper.clone()),
            whole => whole[0].clone(),
        }
    }
}

impl Operator for MatmulNbits {
    fn kind(&self) -> &'static Kind {
        &MATMUL_NBITS
    }

    fn sizes(&self) -> Vec<i64> {
        let group = GROUPS.iter().position(|group| *group == self.group).map_or(-1, |at| at as i64);
        vec![self.m, self.n, self.k, (self.bits == Bits::Eight).into(), self.asymmetric.into(), group]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        if !GROUPS.contains(&self.group) {
            let cause = format!("{} weights share a scale", self.group);
            return Err(WorkloadError::Sizes { cause, help: "group is 16, 32, 64, 128 or 256" });
        }
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        let a = Operand::new("a", Role::Input, vec![self.m, self.k]);
        let packed = |name, of_row| Operand::new(name, Role::Weight, vec![self.n, of_row]).of_type(DType::U8);
        let scales = Operand::new("b_scale", Role::Weight, vec![self.n, self.groups()]);
        let zeros = self.asymmetric.then(|| packed("b_zero", self.row_zeros()));
        [a, packed("b", self.row_bytes()), scales].into_iter().chain(zeros).collect()
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        self.product().output()
    }

    fn terms(&self) -> i64 {
        self.k
    }

    /// Two roundings more than a product: of the weight's scale and of the product with that.
    fn roundings(&self) -> i64 {
        self.k + 2
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        let [i, j, k] = [0, 1, 2].map(|at| Expr::from(axis(at)));
        let run = k.clone().floor_div(self.group);
        let weight = self.unpacked(k.clone(), |byte| Expr::load(input(1), vec![j.clone(), byte]));
        let zero = match self.asymmetric {
            true => self.unpacked(run.clone(), |byte| Expr::load(input(3), vec![j.clone(), byte])),
            false => Expr::Int(self.bits.middle()).cast(DType::I32),
        };
        let weight = (weight - zero).cast(DType::F32) * Expr::load(input(2), vec![j, run]);
        let product = Expr::load(input(0), vec![i, k]) * weight;
        let plain = self.product().stages(dtype, sums);
        plain.into_iter().map(|stage| Stage { value: product.clone(), ..stage }).collect()
    }

    fn likeness(&self) -> Likeness {
        // With few rows it is reading weights, with many arithmetic.
        let class = [i64::from(self.m <= 8), self.bits.count(), self.asymmetric.into()];
        let sizes = [(self.m, 1.0), (self.n, 1.0), (self.k, 1.0), (self.group, 0.1)];
        Likeness { class: class.to_vec(), sizes: sizes.to_vec() }
    }

    /// Sums of runs, each with its scale. Where a scale is so large that its products with weights are no finite numbers, those of single
    /// terms may be NaN, as the difference of two infinities.
    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        let [n, k, group] = [self.n, self.k, self.group].map(|size| size as usize);
        let integer = |bytes: &[f64], row: usize, at: usize| {
            let of_row = &bytes[row * bytes.len() / n..];
            match self.bits {
                Bits::Eight => of_row[at],
                Bits::Four if at.is_multiple_of(2) => f64::from(of_row[at / 2] as u8 & 15),
                Bits::Four => f64::from(of_row[at / 2] as u8 >> 4),
            }
        };
        let zero = |row: usize, run: usize| match self.asymmetric {
            true => integer(inputs[3], row, run),
            false => self.bits.middle() as f64,
        };
        let mut sums = Sums { values: vec![], magnitudes: vec![], or_nan: vec![] };
        for (at, (row, left)) in inputs[0].chunks(k).flat_map(|left| (0..n).map(move |row| (row, left))).enumerate() {
            let (mut value, mut magnitude) = (0.0, 0.0);
            for (run, left) in left.chunks(group).enumerate() {
                let (scale, zero) = (inputs[2][row * self.groups() as usize + run], zero(row, run));
                let term = |(i, a): (usize, &f64)| a * (integer(inputs[1], row, run * group + i) - zero);
                let terms = || left.iter().enumerate().map(term);
                value += terms().sum::<f64>() * scale;
                magnitude += terms().map(f64::abs).sum::<f64>() * scale.abs();
                let is_finite = scale.abs() * 255.0 <= f64::from(f32::MAX);
                if !is_finite && sums.or_nan.last() != Some(&at) {
                    sums.or_nan.push(at);
                }
            }
            sums.values.push(value);
            sums.magnitudes.push(magnitude);
        }
        sums
    }
}
