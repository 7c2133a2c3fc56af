//! Random workloads and inputs, for tests: the same seed gives the same on every machine.

use super::attention::{Attention, HeadOrder, Mask};
use super::dims::MAX_RANK;
use super::matmul_nbits::{Bits, GROUPS, MatmulNbits};
use super::number::Number;
use super::operator::{F8, FLOATS, OfBytes, OfI32, Size, SizeRole};
use super::operators::{KINDS, draw, kind};
use super::{
    Conv2d, ConvLayout, DepthwisePointwise, Epilogue, Math, Matmul, Op, Param, Quant, Role, ScaledMatmul, Slice,
    Slices, WeightZero, Workload, epilogue,
};
use crate::ir::DType;
pub use crate::stable::Rng;

/// Extents that divide badly: primes, odd numbers, one more and one less than a power of two.
const EXTENTS: [i64; 14] = [1, 2, 3, 5, 7, 8, 11, 13, 14, 15, 16, 17, 19, 23];

/// A valid workload of any operator, small enough for the interpreter: at most about a million multiply-adds.
pub fn workload(rng: &mut Rng) -> Workload {
    loop {
        let op = match rng.below(9) {
            0 => drawn(rng, |rng| *rng.pick(&EXTENTS)),
            1..4 => Op::Matmul(matmul(rng)),
            _ => Op::Conv2d(conv2d(rng)),
        };
        let dtype = if rng.one_in(4) { *rng.pick(&[DType::F16, DType::Bf16]) } else { DType::F32 };
        let out_dtype = if rng.one_in(2) { DType::F32 } else { dtype };
        let workload = Workload { out_dtype, dtype, epilogue: epilogue(rng), ..Workload::f32(op) };
        if workload.validate().is_ok() && work(&workload) <= 1_000_000 {
            return workload;
        }
    }
}

/// A small valid workload of the operator of that name, one of [`operator_names`](super::operator_names), with any epilogue.
///
/// # Panics
/// If there is no such operator.
pub fn of_operator(name: &str, rng: &mut Rng) -> Workload {
    let kind = kind(name).unwrap_or_else(|| panic!("there is no operator `{name}`"));
    loop {
        let Some(op) = draw(kind, rng, |rng| *rng.pick(&EXTENTS)) else { continue };
        let dtype = *rng.pick(&[DType::F32, DType::F32, DType::F16, DType::Bf16]);
        let workload = of_type(op, dtype, rng);
        if workload.validate().is_ok() && workload.op_name() == name && work(&workload) <= 60_000 {
            return workload;
        }
    }
}

/// An operator on numbers of a type with any epilogue, or on integers where it takes nothing else; it may be invalid.
fn of_type(op: Op, dtype: DType, rng: &mut Rng) -> Workload {
    match op.get().of_bytes() {
        OfBytes::Bytes => with_integers(op, rng),
        _ => Workload { epilogue: epilogue(rng), ..Workload::f32(op).with_dtype(dtype) },
    }
}

/// A valid workload of the operator of that name with extents that networks have, of up to 2^26 elements.
///
/// # Panics
/// If there is no such operator.
pub fn of_network_size(name: &str, rng: &mut Rng) -> Workload {
    const OF_NETWORKS: [i64; 16] = [1, 2, 3, 7, 14, 16, 20, 28, 32, 56, 64, 96, 112, 128, 197, 224];
    let kind = kind(name).unwrap_or_else(|| panic!("there is no operator `{name}`"));
    loop {
        let Some(op) = draw(kind, rng, |rng| *rng.pick(&OF_NETWORKS)) else { continue };
        let dtype = *rng.pick(&[DType::F32, DType::F16]);
        let workload = of_type(op, dtype, rng);
        let fits = |p: &Param| p.elements() <= 1 << 26;
        if workload.validate().is_ok() && workload.op_name() == name && workload.params().iter().all(fits) {
            return workload;
        }
    }
}

/// A small valid workload on integers of 32 bits: any operator that takes or gives them.
pub fn integers32(rng: &mut Rng) -> Workload {
    loop {
        let op = drawn(rng, |rng| *rng.pick(&EXTENTS));
        let workload = on_i32(op, rng);
        if workload.validate().is_ok() && workload.has_i32() && work(&workload) <= 60_000 {
            return workload;
        }
    }
}

/// An operator on integers of 32 bits, or one that gives them; it may be invalid.
pub(super) fn on_i32(op: Op, rng: &mut Rng) -> Workload {
    let out = *rng.pick(&[DType::I32, DType::I32, DType::F32, DType::F16]);
    let dtype = if op.get().of_i32() == OfI32::Converts { *rng.pick(&[DType::I32, DType::F32]) } else { DType::I32 };
    let plain = Workload::f32(op).with_dtype(dtype);
    if op.get().of_i32() == OfI32::Moves { plain } else { Workload { out_dtype: out, ..plain } }
}

/// A small valid workload on integers of eight bits: any operator that takes them, signs, zero points and results. One in eight is on
/// integers of 32 bits.
pub fn quantised(rng: &mut Rng) -> Workload {
    if rng.one_in(8) {
        return integers32(rng);
    }
    let names: Vec<&str> = super::operator_names().filter(|name| takes_bytes(name)).collect();
    loop {
        let op = match rng.below(4) {
            0 => Op::Matmul(matmul(rng)),
            1 => Op::Conv2d(conv2d(rng)),
            _ => {
                let name: &str = names[rng.below(names.len() as u64) as usize];
                let kind = kind(name).expect("it was listed");
                let Some(op) = draw(kind, rng, |rng| *rng.pick(&EXTENTS)) else { continue };
                op
            }
        };
        let workload = with_integers(op, rng);
        if workload.validate().is_ok() && work(&workload) <= 200_000 {
            return workload;
        }
    }
}

/// A small valid workload on floats of eight bits: any operator that takes them, either type, as input, output or both.
pub fn f8(rng: &mut Rng) -> Workload {
    loop {
        let op = if rng.one_in(6) { of_operator("scaled_matmul", rng).op } else { quantised(rng).op };
        let f8 = *rng.pick(F8);
        let (dtype, out_dtype) = match rng.below(4) {
            0 => (*rng.pick(FLOATS), f8),
            1 => (f8, f8),
            _ => (f8, *rng.pick(FLOATS)),
        };
        let math = *rng.pick(&[Math::Fp32, Math::Local, Math::Strict]);
        let workload = Workload { dtype, out_dtype, math, epilogue: epilogue(rng), ..Workload::f32(op) };
        if workload.validate().is_ok() {
            return workload;
        }
    }
}

/// An operator on integers of eight bits, with zero points and an epilogue drawn; it may be invalid.
pub fn with_integers(op: impl Into<Op>, rng: &mut Rng) -> Workload {
    let mut byte = || *rng.pick(&[DType::I8, DType::U8]);
    let (dtype, weight, out) = (byte(), byte(), byte());
    let plain = Workload::f32(op).with_dtype(dtype);
    match plain.op.get().of_bytes() {
        OfBytes::Moves => return plain,
        OfBytes::Bytes => return Workload { out_dtype: out, ..plain },
        _ => {}
    }
    let weight_zero = *rng.pick(&[WeightZero::None, WeightZero::None, WeightZero::Tensor, WeightZero::Channel]);
    let quant = match plain.has_weight() {
        true => Quant { weight, input_zero: rng.one_in(2), weight_zero },
        false => Quant { input_zero: rng.one_in(2), ..Quant::default() },
    };
    let mut steps: Vec<Epilogue> = rng.one_in(2).then_some(Epilogue::Bias).into_iter().collect();
    let out_dtype = match rng.below(4) {
        0 => DType::I32,
        1 => {
            steps.push(if rng.one_in(2) { Epilogue::Requantize } else { Epilogue::RequantizeAdd });
            out
        }
        number => {
            steps.push(Epilogue::Dequantize);
            steps.extend(epilogue(rng).into_iter().filter(|step| *step != Epilogue::Bias).take(2));
            if number == 2 {
                steps.push(Epilogue::Quantize);
            }
            if number == 2 { out } else { *rng.pick(&[DType::F32, DType::F16, DType::Bf16]) }
        }
    };
    Workload { out_dtype, epilogue: steps, quant, ..plain }
}

/// A workload on integers of eight bits whose weights have no zero points, and whose left operand, where it is a matrix, is not transposed
/// and has rows of whole words.
pub fn on_words(op: impl Into<Op>, rng: &mut Rng) -> Workload {
    let op = match op.into() {
        Op::Matmul(m) => Op::Matmul(Matmul { k: (m.k + 3) / 4 * 4, trans_a: false, ..m }),
        op => op,
    };
    let of = with_integers(op, rng);
    Workload { quant: Quant { weight_zero: WeightZero::None, ..of.quant }, ..of }
}

/// A workload on floats of eight bits as tensor cores take them: the reduction in whole pieces of 16. Some products have scales of blocks.
pub fn on_f8(op: impl Into<Op>, rng: &mut Rng) -> Workload {
    let whole = on_tensor_cores(op, rng);
    let op = match whole.op {
        Op::Matmul(m) if m.batch == 1 && rng.one_in(3) => {
            Op::ScaledMatmul(ScaledMatmul { m: m.m, n: m.n, k: m.k, block: 128 })
        }
        op => op,
    };
    let dtype = *rng.pick(F8);
    let out_dtype = *rng.pick(&[DType::F32, DType::F16, DType::Bf16, dtype]);
    Workload { op, dtype, out_dtype, epilogue: epilogue(rng), quant: Quant::default(), ..whole }
}

/// A workload on integers of eight bits without zero points, with an epilogue for them: whose reduction and channels divide by 16 and
/// whose left operand is not transposed, as tensor cores take them.
pub fn on_tensor_cores(op: impl Into<Op>, rng: &mut Rng) -> Workload {
    let whole = |n: i64| (n + 15) / 16 * 16;
    let op = match op.into() {
        Op::Matmul(m) => Op::Matmul(Matmul { k: whole(m.k), n: whole(m.n), trans_a: false, ..m }),
        Op::Conv2d(c) => Op::Conv2d(Conv2d { ci: whole(c.ci), co: whole(c.co), ..c }),
        op => op,
    };
    without_zero_points(op, rng)
}

/// A workload on integers of eight bits without zero points, with an epilogue for them.
pub fn without_zero_points(op: impl Into<Op>, rng: &mut Rng) -> Workload {
    let of = with_integers(op, rng);
    Workload { quant: Quant { weight: of.quant.weight, ..Quant::default() }, ..of }
}

/// A product with weights of few bits and up to eight rows, whose reduction is whole loads of weights; of every fourth it is not.
pub fn few_bits(rng: &mut Rng) -> MatmulNbits {
    let cut = if rng.one_in(4) { rng.between(1, 31) } else { 0 };
    MatmulNbits {
        m: rng.between(1, 8),
        n: *rng.pick(&EXTENTS),
        k: 32 * rng.between(1, 20) - cut,
        bits: *rng.pick(&[Bits::Four, Bits::Eight]),
        group: *rng.pick(&GROUPS),
        asymmetric: rng.one_in(2),
    }
}

/// Whether the operator of that name is also one of integers of eight bits.
fn takes_bytes(name: &str) -> bool {
    let kind = kind(name).expect("it was listed");
    let sizes: Vec<i64> = kind.sizes.iter().map(|size| i64::from(size.role != SizeRole::Padding)).collect();
    let layout = kind.layouts.first().copied().unwrap_or(ConvLayout::Nchw);
    (kind.of_sizes)(layout, &sizes)
        .is_some_and(|op| matches!(op.get().of_bytes(), OfBytes::Sums | OfBytes::Moves | OfBytes::Bytes))
}

/// Multiply-adds, or elements of the output if that is more.
pub(super) fn work(workload: &Workload) -> i64 {
    workload.macs().max(workload.output_shape().iter().product())
}

/// The operator of that name with each of its sizes in turn `large` and all others 1, as far as that is valid. Padding is at most
/// 2^17, as that of [`any_size`] is.
///
/// # Panics
/// If there is no such operator.
pub fn one_large_size(name: &str, large: i64) -> Vec<Workload> {
    let kind = kind(name).unwrap_or_else(|| panic!("there is no operator `{name}`"));
    let of = |at: usize| {
        let size = |(i, size): (usize, &Size)| match size.role {
            SizeRole::Padding if i == at => large.min(1 << 17),
            SizeRole::Number => Number::of(1.0).to_size(),
            _ if i == at => large,
            SizeRole::Padding | SizeRole::Choice | SizeRole::Offset => 0,
            SizeRole::Order | SizeRole::Mark => (i % MAX_RANK) as i64,
            _ => 1,
        };
        let sizes: Vec<i64> = kind.sizes.iter().enumerate().map(size).collect();
        (kind.of_sizes)(ConvLayout::Nchw, &sizes).map(Workload::f32)
    };
    (0..kind.sizes.len()).filter_map(of).filter(|w| w.validate().is_ok()).collect()
}

/// An operator of any kind, its sizes drawn by what they count. It may be invalid.
fn drawn(rng: &mut Rng, extent: fn(&mut Rng) -> i64) -> Op {
    loop {
        let kind = *rng.pick(KINDS);
        if let Some(op) = draw(kind, rng, extent) {
            return op;
        }
    }
}

/// A convolution in any layout: odd and prime sizes, stride 1 to 3, dilation, asymmetric padding, groups, depthwise,
/// kernels from 1x1 to 7x7, batch 1 to 5. It may be invalid where the kernel happens to be larger than the input.
pub fn conv2d(rng: &mut Rng) -> Conv2d {
    // Tiles of images would make every sample large; they have samples of their own.
    let layout = *rng.pick(&ConvLayout::ALL[..4]);
    let block = if let ConvLayout::NchwC(block) = layout { block } else { 1 };
    let size = |rng: &mut Rng| if rng.one_in(3) { 3 } else { rng.between(1, 7) };
    let mut c = Conv2d {
        layout,
        n: if rng.one_in(2) { 1 } else { rng.between(2, 5) },
        ci: *rng.pick(&EXTENTS) * block,
        h: *rng.pick(&EXTENTS),
        w: *rng.pick(&EXTENTS),
        co: *rng.pick(&EXTENTS) * block,
        kh: size(rng),
        kw: size(rng),
        stride: [rng.between(1, 3), rng.between(1, 3)],
        padding: [0; 4],
        dilation: [1; 2],
        groups: 1,
    };
    if rng.one_in(3) {
        c.dilation = [rng.between(1, 3), rng.between(1, 3)];
    }
    if !rng.one_in(3) {
        c.padding = [c.kh / 2, c.kw / 2, c.kh / 2, c.kw / 2];
    }
    if rng.one_in(3) {
        c.padding = [rng.between(0, 3), rng.between(0, 3), rng.between(0, 3), rng.between(0, 3)];
    }
    if rng.one_in(5) {
        let multiplier = rng.between(1, 3);
        return c.depthwise(multiplier);
    }
    if rng.one_in(4) {
        c.groups = rng.between(2, 4);
        // Multiples of the groups that keep the blocks whole.
        c.ci *= c.groups;
        c.co *= c.groups;
    }
    c
}

/// A depthwise and a pointwise convolution in NCHW, with anything that may stand between them. It may be invalid where
/// the kernel happens to be larger than the input.
pub fn pair(rng: &mut Rng) -> DepthwisePointwise {
    let conv = Conv2d { layout: ConvLayout::Nchw, ..conv2d(rng) };
    let bias = rng.one_in(2).then_some(Epilogue::Bias);
    let activation = [None, Some(Epilogue::Relu), Some(Epilogue::Relu6), Some(Epilogue::Gelu)];
    let between: Vec<Epilogue> = bias.into_iter().chain(*rng.pick(&activation)).collect();
    DepthwisePointwise::new(Conv2d { ci: conv.ci.min(40), ..conv }, *rng.pick(&EXTENTS)).with_between(&between)
}

/// A small convolution on tiles of 16 images by 16 channels.
pub fn conv2d_tiles(rng: &mut Rng) -> Conv2d {
    let c = conv2d(rng);
    let blocks = |rng: &mut Rng| 16 * rng.between(1, 3);
    let (n, ci, co) = (16 * rng.between(1, 2), blocks(rng), blocks(rng));
    Conv2d { layout: ConvLayout::NhwcNc(16), n, ci, co, groups: 1, h: c.h.min(5), w: c.w.min(5), ..c }
}

/// A product or a batch of products of odd sizes, in any transposition.
pub fn matmul(rng: &mut Rng) -> Matmul {
    let mut size = |small: bool| if small { *rng.pick(&EXTENTS) } else { rng.between(24, 96) };
    let (m, n, k) = (size(false), size(true), size(false));
    let (m, n) = if rng.one_in(2) { (m, n) } else { (n, m) };
    Matmul {
        batch: if rng.one_in(3) { rng.between(2, 5) } else { 1 },
        m,
        n,
        k,
        trans_a: rng.one_in(2),
        trans_b: rng.one_in(2),
    }
}

/// A product whose matrices have rows of whole 16-byte units in 16-bit types, as the copy engine wants them; sizes up to
/// `most`.
pub fn matmul_rows_of_eight(rng: &mut Rng, most: i64) -> Matmul {
    let mut size = || 8 * rng.between(1, most / 8);
    let (m, n, k) = (size(), size(), size());
    let batch = if rng.one_in(3) { rng.between(2, 3) } else { 1 };
    Matmul { batch, m, n, k, trans_a: rng.one_in(2), trans_b: rng.one_in(2) }
}

/// Attention of up to `most` queries and keys, of heads with an even number of elements.
pub fn attention(rng: &mut Rng, most: i64) -> Attention {
    let kv_heads = rng.between(1, 2);
    let width = |rng: &mut Rng| *rng.pick(&[2, 16, 24, 40, 64, 72, 128]);
    let d = width(rng);
    let of = Attention {
        b: rng.between(1, 2),
        heads: kv_heads * rng.between(1, 3),
        kv_heads,
        m: rng.between(1, most),
        n: rng.between(1, most),
        d,
        dv: if rng.one_in(3) { width(rng) } else { d },
        causal: rng.one_in(2),
        mask: *rng.pick(&Mask::ALL),
        order: *rng.pick(&HeadOrder::ALL),
    };
    match of.order {
        HeadOrder::Packed => Attention { n: of.m, dv: of.d, ..of },
        _ => of,
    }
}

/// A convolution in NHWC with one group and whole 16-byte units of channels in 16-bit types; channels up to `most`.
pub fn conv2d_rows_of_eight(rng: &mut Rng, most: i64) -> Conv2d {
    let c = conv2d(rng);
    let (ci, co) = (8 * rng.between(1, most / 8), 8 * rng.between(1, most / 8));
    Conv2d { layout: ConvLayout::Nhwc, groups: 1, ci, co, ..c }
}

/// A pointwise convolution likewise, of several images in half of the samples.
pub fn pointwise_rows_of_eight(rng: &mut Rng, most: i64) -> Conv2d {
    let (n, h, w) = (if rng.one_in(2) { rng.between(2, 9) } else { 1 }, rng.between(1, 14), rng.between(1, 14));
    let (ci, co) = (8 * rng.between(1, most / 8), 8 * rng.between(1, most / 8));
    Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(n, ci, h, w, co, 1, 1, 0) }
}

/// A depthwise convolution in NCHW or NHWC, in half of the samples with whole vectors of columns and of channels.
pub fn depthwise(rng: &mut Rng) -> Conv2d {
    let c = conv2d(rng);
    let layout = *rng.pick(&[ConvLayout::Nchw, ConvLayout::Nhwc]);
    let multiplier = if layout == ConvLayout::Nchw && rng.one_in(4) { 2 } else { 1 };
    let ci = *rng.pick(&EXTENTS) + 1;
    let (ci, w) = if rng.one_in(2) { (8 * rng.between(1, 5), 4 * rng.between(1, 5)) } else { (ci, c.w) };
    Conv2d { layout, ci, w, ..c }.depthwise(multiplier)
}

/// Any valid workload, of any size that a spec may have: shapes as in networks, shapes that divide badly, and in one of
/// eight samples sizes near the limits. Every operator, layout, type, class of arithmetic and epilogue.
pub fn any_size(rng: &mut Rng) -> Workload {
    loop {
        let op = match rng.below(11) {
            10 => drawn(rng, channels),
            0..3 => Op::Matmul(any_matmul(rng)),
            3 => {
                let conv = Conv2d { layout: ConvLayout::Nchw, groups: 1, ..any_conv2d(rng) };
                Op::DepthwisePointwise(DepthwisePointwise::new(conv, channels(rng)).with_between(&pair(rng).between()))
            }
            _ => Op::Conv2d(any_conv2d(rng)),
        };
        let dtype = *rng.pick(&[DType::F32, DType::F32, DType::F16, DType::Bf16]);
        let out_dtype = if rng.one_in(4) { *rng.pick(&[DType::F32, DType::F16, DType::Bf16]) } else { dtype };
        let math = if dtype == DType::F32 && rng.one_in(3) { *rng.pick(&Math::ALL) } else { Math::default() };
        let epilogue = if rng.one_in(2) { vec![] } else { epilogue(rng) };
        let workload = Workload { op, dtype, out_dtype, math, epilogue, quant: Quant::default() };
        if workload.validate().is_ok() {
            return workload;
        }
    }
}

/// A size between two powers of two, all scales alike: often a round number, sometimes one beside it.
fn scaled(rng: &mut Rng, least: i64, most: i64) -> i64 {
    let octave = rng.between(least, most);
    let size = match rng.below(4) {
        0 => 1 << octave,
        1 => (1 << octave) + rng.between(-1, 1),
        2 => 3 << (octave - 1).max(0),
        _ => rng.between(1 << octave, (2 << octave) - 1),
    };
    size.max(1)
}

fn channels(rng: &mut Rng) -> i64 {
    match rng.below(4) {
        0 => *rng.pick(&[1, 3, 4, 5, 6, 7, 9, 10, 33]),
        1 => 8 * rng.between(1, 160),
        2 => *rng.pick(&EXTENTS),
        _ => *rng.pick(&[16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048]),
    }
}

fn any_conv2d(rng: &mut Rng) -> Conv2d {
    let extreme = rng.one_in(8);
    let pixels = |rng: &mut Rng| match rng.below(4) {
        _ if extreme => scaled(rng, 0, 13),
        0 => *rng.pick(&[7, 14, 28, 56, 112, 224, 8, 17, 35, 73, 147, 149, 299]),
        1 => *rng.pick(&[19, 38, 129, 257, 513, 551, 640, 1080, 1920]),
        _ => rng.between(1, 64),
    };
    let tap = |rng: &mut Rng| if extreme { scaled(rng, 0, 5) } else { *rng.pick(&[1, 1, 2, 3, 3, 3, 5, 7]) };
    let layout = *rng.pick(&ConvLayout::ALL);
    let of_block = |rng: &mut Rng| match layout {
        ConvLayout::NchwC(block) | ConvLayout::NhwcNc(block) => block * rng.between(1, 24),
        _ => channels(rng),
    };
    let images = match rng.below(4) {
        0 => *rng.pick(&[2, 3, 4, 8, 16, 32, 64, 128, 256]),
        1 if extreme => scaled(rng, 0, 16),
        _ => 1,
    };
    let (kh, h) = (tap(rng), pixels(rng));
    let square = !rng.one_in(4);
    let (kw, w) = if square { (kh, h) } else { (tap(rng), pixels(rng)) };
    let stride = *rng.pick(&[1, 1, 1, 2, 2, 3, 4]);
    let far = |rng: &mut Rng| if extreme && rng.one_in(3) { scaled(rng, 0, 17) } else { rng.between(0, 4) };
    let padding = match rng.below(3) {
        0 => [0; 4],
        1 => [kh / 2, kw / 2, kh / 2, kw / 2],
        _ => [far(rng), far(rng), far(rng), far(rng)],
    };
    let mut c = Conv2d {
        layout,
        n: if let ConvLayout::NhwcNc(block) = layout { block * rng.between(1, 4) } else { images },
        ci: of_block(rng),
        h,
        w,
        co: of_block(rng),
        kh,
        kw,
        stride: [stride, if square { stride } else { rng.between(1, 4) }],
        padding,
        dilation: if rng.one_in(4) { [rng.between(1, 4), rng.between(1, 4)] } else { [1; 2] },
        groups: 1,
    };
    match rng.below(5) {
        0 => return c.depthwise(if rng.one_in(4) { rng.between(2, 4) } else { 1 }),
        1 => {
            c.groups = *rng.pick(&[2, 3, 4, 8, 32]);
            c.ci = c.groups * (c.ci / c.groups).max(1);
            c.co = c.groups * (c.co / c.groups).max(1);
        }
        _ => {}
    }
    c
}

fn any_matmul(rng: &mut Rng) -> Matmul {
    let extreme = rng.one_in(8);
    let most = if rng.one_in(4) { 36 } else { 14 };
    let size = |rng: &mut Rng| match rng.below(4) {
        _ if extreme => scaled(rng, 0, most),
        0 => 8 * rng.between(1, 512),
        1 => *rng.pick(&[1, 2, 3, 49, 64, 196, 197, 768, 1000, 3072, 4096]),
        _ => rng.between(1, 1024),
    };
    let batch = if rng.one_in(4) { *rng.pick(&[2, 3, 8, 12, 96, 128, 384]) } else { 1 };
    let (trans_a, trans_b) = (rng.one_in(3), rng.one_in(2));
    Matmul { batch, m: size(rng), n: size(rng), k: size(rng), trans_a, trans_b }
}

/// Slices of a workload's input and output, as far as it has any: in front, behind, or between other channels.
pub fn slices(workload: &Workload, rng: &mut Rng) -> Slices {
    let params = workload.params();
    let mut drawn = |role: Role| {
        let param = params.iter().find(|p| p.role == role)?;
        let (before, behind) = (8 * rng.between(0, 2), 8 * rng.between(1, 3));
        // No dimension is longer than that, whichever counts channels; rows stay whole pieces of 16 bytes where they are.
        let longest = (param.shape.iter().max()? + 7) / 8 * 8;
        Some(Slice { of: before + longest + behind, at: before })
    };
    let (from, into) = (drawn(Role::Input), drawn(Role::Output));
    let all = [Slices { from, into }, Slices { from: None, into }];
    all.into_iter().find(|slices| slices.check(workload).is_ok()).unwrap_or_default()
}

/// An epilogue of up to four steps in a sensible order, often none.
pub fn epilogue(rng: &mut Rng) -> Vec<Epilogue> {
    let mut steps = vec![];
    while steps.len() < 4 && !rng.one_in(3) {
        steps.push(*rng.pick(&Epilogue::ALL));
        if epilogue::check_order(&steps).is_err() {
            steps.pop();
        }
    }
    steps
}

/// Inputs of a workload in the order of its parameters, the output left out: numbers of [-1, 1), negative and
/// positive, that the storage type holds exactly. About half of the elements of a mask are 0.
pub fn inputs(workload: &Workload, rng: &mut Rng) -> Vec<Vec<f64>> {
    let params = workload.params();
    params[..params.len() - 1].iter().map(|p| (0..p.elements()).map(|_| of_param(p, rng)).collect()).collect()
}

/// The inputs that tests draw: those of [`inputs`], but where an output's error may depend on its own operands alone, about one in
/// 48 of them is larger or smaller by a power of two. The default class of `f32` is for operands of one magnitude.
pub fn uneven_inputs(workload: &Workload, rng: &mut Rng) -> Vec<Vec<f64>> {
    let mut all = inputs(workload, rng);
    let most = match workload.dtype {
        DType::F32 if !workload.math.is_local() => return all,
        DType::F32 => 20,
        // Their numbers are uneven as they are.
        DType::E4m3 | DType::E5m2 => return all,
        // The smallest and the largest must still be numbers of the type, with all their bits.
        _ => 7,
    };
    let params = workload.params();
    let uneven = all.iter_mut().zip(&params).filter(|(_, p)| p.dtype.is_float());
    for element in uneven.flat_map(|(elements, _)| elements) {
        if rng.one_in(48) {
            *element *= 2f64.powi(rng.between(-most, most) as i32);
        }
    }
    all
}

/// An element of a parameter; every other one of a mask is 0.
fn of_param(param: &Param, rng: &mut Rng) -> f64 {
    match param.role {
        Role::Mask if rng.one_in(2) => 0.0,
        // Any integer is one: most are small, on either side of 0.
        Role::Index if rng.one_in(16) => rng.between(i32::MIN.into(), i32::MAX.into()) as f64,
        Role::Index => rng.between(-64, 64) as f64,
        // Sums of many products become all integers of eight bits, and some go beyond them.
        Role::Multiplier => rng.between(1, 255) as f64 / 2f64.powi(rng.between(10, 24) as i32),
        Role::Bias if param.dtype == DType::I32 => rng.between(-30_000, 30_000) as f64,
        _ => element(param.dtype, rng),
    }
}

fn element(dtype: DType, rng: &mut Rng) -> f64 {
    match dtype {
        // Eight significant bits are what a bfloat16 has.
        DType::F16 | DType::Bf16 => rng.between(-128, 127) as f64 / 128.0,
        // Significant bits of an `e4m3` and an `e5m2`, and exponents on both sides of 0.
        DType::E4m3 => rng.between(-15, 15) as f64 / 16.0 * 2f64.powi(rng.between(-3, 3) as i32),
        DType::E5m2 => rng.between(-7, 7) as f64 / 8.0 * 2f64.powi(rng.between(-3, 3) as i32),
        DType::I8 => rng.between(-128, 127) as f64,
        DType::U8 => rng.between(0, 255) as f64,
        DType::I32 => rng.between(-64, 64) as f64,
        _ => rng.between(-(1 << 23), (1 << 23) - 1) as f64 / f64::from(1 << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uneven_inputs_are_of_many_magnitudes_where_the_class_is_local() {
        let plain = Workload::f32(Matmul::new(40, 40, 40));
        for (workload, powers) in [
            (plain.clone(), 1..=1),
            (Workload { math: Math::Local, ..plain.clone() }, 6..=21),
            (Workload { math: Math::Strict, ..plain.clone() }, 6..=21),
            (plain.clone().with_dtype(DType::F16), 4..=8),
            (plain.with_dtype(DType::Bf16), 4..=8),
        ] {
            let all = uneven_inputs(&workload, &mut Rng::new(1));
            // How many powers of two there are at and above 1.
            let larger = all.iter().flatten().map(|x| x.abs().max(0.5).log2().floor() as i32);
            let found = larger.collect::<std::collections::BTreeSet<i32>>().len();
            assert!(powers.contains(&found), "{}: {found} powers", workload.key());
            for (param, data) in workload.params().iter().zip(&all) {
                let stored =
                    crate::toolchain::values::decode(param.dtype, &crate::toolchain::values::encode(param.dtype, data));
                assert_eq!(&stored, data, "{} holds every number", param.dtype);
            }
        }
    }

    #[test]
    fn samples_are_valid_and_varied() {
        let mut rng = Rng::new(7);
        let samples: Vec<Workload> = (0..1000).map(|_| workload(&mut rng)).collect();
        let count = |f: &dyn Fn(&Workload) -> bool| samples.iter().filter(|w| f(w)).count();
        let conv = |f: &'static dyn Fn(&Conv2d) -> bool| count(&|w| w.conv2d().is_some_and(f));
        for (what, n) in [
            ("matmul", count(&|w| w.matmul().is_some())),
            ("batch", count(&|w| w.matmul().is_some_and(|m| m.batch > 1))),
            ("depthwise", conv(&|c| c.is_depthwise())),
            ("multiplier", conv(&|c| c.multiplier().is_some_and(|m| m > 1))),
            ("groups", conv(&|c| c.groups > 1 && !c.is_depthwise())),
            ("asymmetric", conv(&|c| c.padding[0] != c.padding[2])),
            ("dilation", conv(&|c| c.dilation[0] > 1)),
            ("stride", conv(&|c| c.stride[1] == 3)),
            ("blocked", conv(&|c| matches!(c.layout, ConvLayout::NchwC(_)))),
            ("1x1", conv(&|c| c.kh == 1 && c.kw == 1)),
            ("no padding", conv(&|c| !c.has_padding())),
            ("16 bits", count(&|w| w.dtype != DType::F32)),
            ("long epilogues", count(&|w| w.epilogue.len() > 2)),
            ("gates", count(&|w| w.epilogue.contains(&Epilogue::Gate))),
            ("biases of images", count(&|w| w.epilogue.contains(&Epilogue::ImageBias))),
        ] {
            assert!(n >= 3, "{what}: {n} of 1000");
        }
    }
}
