//! A workload: an operator at one shape, with everything that decides its result.
//!
//! It holds an operator, and operators are asked of whole workloads: they import each other.

use super::conv2d::Conv2d;
use super::epilogue::{self, Epilogue, Per};
use super::error::WorkloadError;
use super::integers;
use super::math::Math;
use super::matmul::Matmul;
use super::operator::{FLOATS, INDICES, OfBytes};
use super::operators::Op;
use super::param::{MAX_ELEMENTS, Param, Role, product};
use super::quant::{self, Quant};
use super::stage::{Axis, AxisRole};
use crate::ir::{Access, DType};

/// No workload has more multiplications than this.
const MAX_MACS: i64 = 1 << 61;

/// An operator at one shape, with everything that decides its result.
///
/// Arithmetic is in `f32`; 16-bit types are storage. Operands of the epilogue with a number for each channel (bias, scale, shift)
/// or for each image and channel (gate) are stored in the inputs' type, those like the output in the output's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Workload {
    /// Operator and shape.
    pub op: Op,
    /// Type of inputs and weights in memory.
    pub dtype: DType,
    /// Type of the output in memory.
    pub out_dtype: DType,
    /// Precision class.
    pub math: Math,
    /// What is done to each output element, in this order.
    pub epilogue: Vec<Epilogue>,
    /// Weights and zero points where the inputs are integers of eight bits.
    pub quant: Quant,
}

impl Workload {
    /// An operator on `f32` tensors without an epilogue. Indices are `i64`.
    pub fn f32(op: impl Into<Op>) -> Workload {
        let (op, dtype) = (op.into(), DType::F32);
        Workload {
            out_dtype: op.output_type(dtype),
            op,
            dtype,
            math: Math::default(),
            epilogue: vec![],
            quant: Quant::default(),
        }
    }

    /// The same with an epilogue.
    pub fn with_epilogue(self, epilogue: &[Epilogue]) -> Workload {
        Workload { epilogue: epilogue.to_vec(), ..self }
    }

    /// The same with inputs stored in `dtype`, and the output, unless it holds indices.
    pub fn with_dtype(self, dtype: DType) -> Workload {
        Workload { dtype, out_dtype: self.op.output_type(dtype), ..self }
    }

    /// The convolution, if it is one.
    pub fn conv2d(&self) -> Option<&Conv2d> {
        if let Op::Conv2d(c) = &self.op { Some(c) } else { None }
    }

    /// The matrix product, if it is one.
    pub fn matmul(&self) -> Option<&Matmul> {
        if let Op::Matmul(m) = &self.op { Some(m) } else { None }
    }

    /// The two workloads that a pair of convolutions is in one: the second takes what the first gives. Together they
    /// compute the same, but for what lies between them: a pair keeps it in `f32`, as the output of the first is here,
    /// while the second's input has the type of its weights.
    pub fn parts(&self) -> Option<[Workload; 2]> {
        let Op::DepthwisePointwise(p) = &self.op else { return None };
        let first = Workload { op: p.depthwise.into(), out_dtype: DType::F32, epilogue: p.between(), ..self.clone() };
        Some([first, Workload { op: p.pointwise().into(), ..self.clone() }])
    }

    /// Checks sizes, types and the epilogue. Everything else in this module, and every module below it, takes a
    /// workload that passed; for one that did not, results are meaningless (but nothing here is unsafe).
    pub fn validate(&self) -> Result<(), WorkloadError> {
        let f8 = |dtype: &DType| dtype.is_f8();
        if [self.dtype, self.out_dtype].iter().any(f8) {
            quant::check_f8(self)?;
        }
        let of_i32 = integers::check(self)?;
        let outputs = if of_i32
            || self.is_quantised()
            || f8(&self.out_dtype)
            || self.epilogue.last() == Some(&Epilogue::Quantize)
        {
            std::slice::from_ref(&self.out_dtype)
        } else {
            self.op.get().kind().outputs
        };
        let inputs =
            if of_i32 || self.is_quantised() || f8(&self.dtype) { std::slice::from_ref(&self.dtype) } else { FLOATS };
        for (which, dtype, types) in [("input", self.dtype, inputs), ("output", self.out_dtype, outputs)] {
            if !types.contains(&dtype) {
                let (dtype, indices) = (dtype.name(), types == INDICES);
                return Err(WorkloadError::UnsupportedType { which, dtype, indices });
            }
        }
        let of_indices = self.op.get().kind().outputs == INDICES;
        if of_indices && !self.epilogue.is_empty() {
            return Err(WorkloadError::IndexEpilogue);
        }
        if self.math == Math::Tf32 && self.dtype != DType::F32 {
            return Err(WorkloadError::Tf32NeedsF32 { dtype: self.dtype.name() });
        }
        epilogue::check_order(&self.epilogue)?;
        self.op.get().validate()?;
        if !of_i32 {
            quant::check(self)?;
        }
        quant::check_padding(self)?;
        for (what, shape) in self.op.get().inner_tensors() {
            if product(&shape) > MAX_ELEMENTS {
                return Err(WorkloadError::TooLarge { what });
            }
        }
        for p in self.params() {
            if p.elements() > MAX_ELEMENTS {
                return Err(WorkloadError::TooLarge {
                    what: match p.role {
                        Role::Input | Role::Mask | Role::Index => "the input",
                        Role::Weight | Role::DepthwiseWeight => "the weight",
                        _ => "the output",
                    },
                });
            }
        }
        if self.macs() > MAX_MACS {
            return Err(WorkloadError::TooLarge { what: "the amount of arithmetic" });
        }
        Ok(())
    }

    /// Shape of the output as stored.
    pub fn output_shape(&self) -> Vec<i64> {
        self.op.get().output().1.iter().map(|axis| axis.extent).collect()
    }

    /// Number of output channels (columns of a matmul): the length of bias, scale and shift.
    pub fn channels(&self) -> i64 {
        channels(&self.op.get().output().1)
    }

    /// How many parameters stand before the operands of the epilogue.
    pub(crate) fn operator_params(&self) -> usize {
        self.op.get().inputs().len() + quant::zero_points(self, self.channels()).len()
    }

    /// The kernel's parameters in order: the inputs of the operator, the operands of the epilogue in its
    /// order, the output.
    pub fn params(&self) -> Vec<Param> {
        let (output, axes) = self.op.get().output();
        let shape: Vec<i64> = axes.iter().map(|axis| axis.extent).collect();
        let read = |name, dtype, shape, role| Param { name, dtype, shape, access: Access::Read, role };
        let inputs = self.op.get().inputs().into_iter();
        let mut params: Vec<Param> =
            inputs.map(|i| read(i.name, i.dtype.unwrap_or(self.operand_type(i.role)), i.shape, i.role)).collect();
        let zeros = quant::zero_points(self, channels(&axes)).into_iter();
        params.extend(zeros.map(|(name, dtype, elements)| read(name, dtype, vec![elements], Role::ZeroPoint)));
        for operand in self.epilogue.iter().flat_map(|step| step.operands()) {
            let shape = match operand.per {
                Per::Channel => vec![channels(&axes)],
                Per::Image => vec![images(&axes), channels(&axes)],
                Per::Element => shape.clone(),
                Per::Tensor => vec![1],
            };
            // Where inputs or output have eight bits, what is no integer by nature is an `f32`.
            let number = |dtype: DType| if dtype.bytes() > 1 && dtype.is_float() { dtype } else { DType::F32 };
            let dtype = match (operand.role, operand.per) {
                // The integers of a tensor like the output.
                (Role::ZeroPoint, _) => self.out_dtype,
                (Role::Residual, _) if self.epilogue.contains(&Epilogue::RequantizeAdd) => self.out_dtype,
                (Role::Multiplier, _) => DType::F32,
                (Role::Bias, _) => self.operand_type(Role::Bias),
                (_, Per::Element) => number(self.out_dtype),
                _ => number(self.dtype),
            };
            params.push(read(operand.name, dtype, shape, operand.role));
        }
        params.push(Param { name: output, dtype: self.out_dtype, shape, access: Access::Write, role: Role::Output });
        params
    }

    /// The type in memory of an operand that has none of its own.
    fn operand_type(&self, role: Role) -> DType {
        match role {
            Role::Weight if self.op.get().of_bytes() == OfBytes::Bytes => self.out_dtype,
            Role::Weight if self.is_quantised() => self.quant.weight,
            Role::Bias if self.is_quantised() => DType::I32,
            _ => self.dtype,
        }
    }

    /// Number of terms in the sum behind each output element, terms that meet padding included; of a pair those of the
    /// pointwise sum.
    pub fn reduction_length(&self) -> i64 {
        self.op.get().terms()
    }

    /// Multiply-adds of the reduction, those with padding included; half of the operations of what has no such.
    pub fn macs(&self) -> i64 {
        if let Some(flops) = self.op.get().flops() {
            return flops / 2;
        }
        let sums = product(&self.output_shape()).saturating_mul(self.reduction_length());
        sums.saturating_add(self.parts().map_or(0, |[first, _]| first.macs()))
    }

    /// Floating-point operations: two a multiply-add, those with padding included as is customary, and the epilogue.
    pub fn flops(&self) -> i64 {
        if let Some([first, second]) = self.parts() {
            return first.flops().saturating_add(second.flops());
        }
        let epilogue: i64 = self.epilogue.iter().map(|e| e.flops()).sum();
        let op = self.op.get();
        op.flops()
            .unwrap_or_else(|| self.macs().saturating_mul(op.flops_per_term()))
            .saturating_add(product(&self.output_shape()).saturating_mul(epilogue))
    }

    /// Bytes that must move at least: every parameter once.
    pub fn bytes(&self) -> i64 {
        self.params().iter().map(Param::bytes).fold(0, i64::saturating_add)
    }

    /// The operator's name in specs and keys.
    pub fn op_name(&self) -> &'static str {
        self.op.get().kind().name
    }

    /// The [`key`](Workload::key) as the name of a kernel: `_` stands for what cannot stand in an identifier.
    pub fn kernel_name(&self) -> String {
        self.key().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
    }

    /// A hash of [`Workload::key`] that stays the same from build to build and from machine to machine (FNV-1a,
    /// 64 bits).
    pub fn stable_hash(&self) -> u64 {
        crate::stable::fnv1a(self.key().as_bytes())
    }
}

/// Channels of an output with these axes.
fn channels(axes: &[Axis]) -> i64 {
    let counted = axes.iter().filter(|a| matches!(a.role, AxisRole::Channel | AxisRole::ChannelBlock));
    counted.map(|axis| axis.extent).product()
}

/// Images of an output with these axes: products of a batch, heads of a batch, rows of a single product.
fn images(axes: &[Axis]) -> i64 {
    axes.iter().filter(|axis| axis.role == AxisRole::Batch).map(|axis| axis.extent).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Bits, DepthwisePointwise, MatmulNbits, ScaledMatmul};

    #[test]
    fn keys_are_short_and_readable() {
        let layer =
            Workload::f32(Conv2d::nchw(1, 512, 7, 7, 512, 3, 1, 1)).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]);
        assert_eq!(layer.key(), "conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu");
        let product = Workload {
            dtype: DType::F16,
            out_dtype: DType::F32,
            ..Workload::f32(Matmul { trans_b: true, ..Matmul::new(64, 128, 256) })
        };
        assert_eq!(product.key(), "matmul-f16.f32-m64n128k256-nt");
        let tf32 = Workload { math: Math::Tf32, ..Workload::f32(Matmul { batch: 8, ..Matmul::new(2, 3, 4) }) };
        assert_eq!(tf32.key(), "batch_matmul-f32-tf32-b8m2n3k4-nn");
        let depthwise = Workload::f32(Conv2d::nchw(1, 32, 112, 112, 32, 3, 1, 1).depthwise(1));
        assert_eq!(depthwise.key(), "depthwise_conv2d-nchw-f32-n1c32h112w112-o32k3x3-s1x1-p1.1.1.1-d1x1-g32");
    }

    #[test]
    fn parameters_come_in_the_order_of_the_epilogue() {
        let w = Workload {
            out_dtype: DType::F32,
            ..Workload::f32(Conv2d::nchw(1, 8, 5, 5, 16, 3, 1, 1)).with_dtype(DType::F16)
        }
        .with_epilogue(&[Epilogue::Scale, Epilogue::ResidualAdd, Epilogue::Relu]);
        let params = w.params();
        let names: Vec<&str> = params.iter().map(|p| p.name).collect();
        assert_eq!(names, ["x", "w", "scale", "shift", "residual", "y"]);
        assert_eq!(params[2].shape, [16]);
        assert_eq!((params[3].dtype, params[4].dtype), (DType::F16, DType::F32));
        assert_eq!(params[5].access, Access::Write);
    }

    #[test]
    fn work_and_traffic_are_counted() {
        let w = Workload::f32(Matmul::new(2, 3, 5)).with_epilogue(&[Epilogue::Bias]);
        assert_eq!(w.flops(), 2 * 2 * 3 * 5 + 2 * 3);
        assert_eq!(w.bytes(), 4 * (2 * 5 + 5 * 3 + 3 + 2 * 3));
        let layer = Workload::f32(Conv2d::nchw(1, 512, 7, 7, 512, 3, 1, 1));
        assert_eq!(layer.flops(), 2 * 49 * 512 * 512 * 9);
    }

    #[test]
    fn a_pair_counts_both_convolutions_and_no_intermediate() {
        let pair = DepthwisePointwise::new(Conv2d::nchw(1, 32, 112, 112, 32, 3, 2, 1), 64)
            .with_between(&[Epilogue::Bias, Epilogue::Relu6]);
        let w = Workload::f32(pair).with_epilogue(&[Epilogue::Bias, Epilogue::Relu6]);
        assert_eq!(
            w.key(),
            "depthwise_pointwise-nchw-f32-n1c32h112w112-o64k3x3-s2x2-p1.1.1.1-d1x1-dw.bias.relu6-bias.relu6"
        );
        assert_eq!(Workload::from_key(&w.key()), Ok(w.clone()));
        let names: Vec<&str> = w.params().iter().map(|p| p.name).collect();
        assert_eq!(names, ["x", "dw", "dw_bias", "w", "bias", "y"]);
        let pixels = 56 * 56;
        assert_eq!(w.flops(), pixels * (32 * (2 * 9 + 3) + 64 * (2 * 32 + 3)));
        assert_eq!(w.bytes(), 4 * (32 * 112 * 112 + 32 * 9 + 32 + 64 * 32 + 64 + 64 * pixels));
        let [first, second] = w.parts().unwrap();
        assert_eq!(first.output_shape(), second.params()[0].shape);
        let bare = Workload::f32(DepthwisePointwise::new(Conv2d::nchw(1, 4, 5, 5, 4, 3, 1, 1), 8));
        assert!(bare.key().ends_with("-d1x1-dw"), "{}", bare.key());
        assert_eq!(Workload::from_key(&bare.key()), Ok(bare));
    }

    #[test]
    fn absurd_sizes_are_refused_without_overflow() {
        let huge = i64::MAX / 2;
        for op in [
            Op::from(Matmul::new(huge, huge, huge)),
            Op::from(Matmul { batch: huge, ..Matmul::new(1, 1, 1) }),
            Op::from(Conv2d::nchw(huge, huge, huge, huge, huge, 1, 1, huge)),
            Op::from(Conv2d::nchw(1, 3, 8, 8, 8, 3, 1, 1 << 40)),
            Op::from(Matmul::new(1 << 36, 1, 1 << 36)),
            Op::from(ScaledMatmul { m: 1, n: 1, k: i64::MAX, block: 128 }),
            Op::from(MatmulNbits { m: 1, n: 1, k: i64::MAX, bits: Bits::Four, group: 16, asymmetric: true }),
            Op::from(MatmulNbits { m: 1, n: huge, k: huge, bits: Bits::Eight, group: 256, asymmetric: true }),
        ] {
            let w = Workload::f32(op);
            assert!(matches!(w.validate(), Err(WorkloadError::TooLarge { .. })), "{w:?}");
        }
    }

    #[test]
    fn types_that_operators_do_not_take_are_refused() {
        let w = Workload::f32(Matmul::new(2, 3, 5));
        let bad = Workload { dtype: DType::I32, ..w.clone() };
        assert!(
            bad.validate().unwrap_err().to_string().starts_with("matmul does not take inputs of type i32; use f32")
        );
        let bad = Workload { dtype: DType::F64, ..w.clone() };
        assert_eq!(
            bad.validate().unwrap_err().to_string(),
            "the input type f64 is not supported; use f32, f16 or bf16"
        );
        let tf32 = Workload { math: Math::Tf32, ..w.with_dtype(DType::F16) };
        assert!(tf32.validate().unwrap_err().to_string().contains("use math fp32"));
    }
}
