//! The layers: what each computes, its arguments, and our kernel for it.

use crate::contest::Aligned;
use kernel_gen_runtime::{Cpu, Report, Result};

/// A convolution in NCHW.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    pub(crate) n: usize,
    pub(crate) ci: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
    pub(crate) co: usize,
    pub(crate) kh: usize,
    pub(crate) kw: usize,
    pub(crate) stride: [usize; 2],
    /// Top, left, bottom, right.
    pub(crate) padding: [usize; 4],
    pub(crate) dilation: [usize; 2],
    pub(crate) groups: usize,
}

impl Conv {
    /// Height and width of the output.
    pub(crate) fn out(&self) -> [usize; 2] {
        let [top, left, bottom, right] = self.padding;
        let extent = |size: usize, pad: usize, k: usize, i: usize| {
            (size + pad - ((k - 1) * self.dilation[i] + 1)) / self.stride[i] + 1
        };
        [extent(self.h, top + bottom, self.kh, 0), extent(self.w, left + right, self.kw, 1)]
    }
}

/// A matrix product, or a batch of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) trans_a: bool,
    pub(crate) trans_b: bool,
}

/// What a layer computes before its epilogue.
#[allow(dead_code, reason = "which of them occur depends on the lists that are built")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Conv(Conv),
    Product(Product),
}

impl Op {
    /// Shape of the activations, as stored.
    pub(crate) fn input(&self) -> Vec<usize> {
        match self {
            Op::Conv(c) => vec![c.n, c.ci, c.h, c.w],
            Op::Product(p) if p.trans_a => p.shape(p.k, p.m),
            Op::Product(p) => p.shape(p.m, p.k),
        }
    }

    /// Shape of the weight, as stored.
    pub(crate) fn weight(&self) -> Vec<usize> {
        match self {
            Op::Conv(c) => vec![c.co, c.ci / c.groups, c.kh, c.kw],
            Op::Product(p) if p.trans_b => p.shape(p.n, p.k),
            Op::Product(p) => p.shape(p.k, p.n),
        }
    }

    /// Shape of the result.
    pub(crate) fn output(&self) -> Vec<usize> {
        match self {
            Op::Conv(c) => vec![c.n, c.co, c.out()[0], c.out()[1]],
            Op::Product(p) => p.shape(p.m, p.n),
        }
    }

    /// Output channels, or columns.
    pub(crate) fn channels(&self) -> usize {
        match self {
            Op::Conv(c) => c.co,
            Op::Product(p) => p.n,
        }
    }

    /// Number of products behind each element of the result.
    pub(crate) fn terms(&self) -> usize {
        match self {
            Op::Conv(c) => c.ci / c.groups * c.kh * c.kw,
            Op::Product(p) => p.k,
        }
    }

    /// The shape in one line, in the order of most tables of layers.
    pub(crate) fn describe(&self) -> String {
        match self {
            Op::Conv(c) => {
                let depthwise = if c.groups > 1 { " depthwise" } else { "" };
                let (k, s) = (format!("{}x{}", c.kh, c.kw), c.stride[0]);
                format!("{}x{}x{} -> {} {k} s{s}{depthwise}", c.ci, c.h, c.w, c.co)
            }
            Op::Product(p) => {
                let batch = if p.batch > 1 { format!("{} x ", p.batch) } else { String::new() };
                format!("{batch}{} x {} x {}", p.m, p.n, p.k)
            }
        }
    }
}

impl Product {
    fn shape(&self, rows: usize, columns: usize) -> Vec<usize> {
        if self.batch > 1 { vec![self.batch, rows, columns] } else { vec![rows, columns] }
    }
}

/// The function at the end of an epilogue.
#[allow(dead_code, reason = "which of them occur depends on the lists that are built")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activation {
    None,
    Relu,
    Relu6,
    Gelu,
}

/// What a layer computes: the operator, then a bias, a residual, an activation, in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub(crate) op: Op,
    pub(crate) bias: bool,
    pub(crate) residual: bool,
    pub(crate) activation: Activation,
}

impl Problem {
    #[allow(dead_code, reason = "no layer is built where only the network is")]
    fn without_operands(op: Op, activation: Activation) -> Problem {
        Problem { op, bias: false, residual: false, activation }
    }

    /// Floating-point operations without the epilogue, those that meet padding included.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * self.op.output().iter().product::<usize>() as f64 * self.op.terms() as f64
    }
}

/// The arguments of a layer, shared by everybody who computes it.
pub(crate) struct Data {
    pub(crate) input: Aligned,
    pub(crate) weight: Aligned,
    pub(crate) bias: Aligned,
    pub(crate) residual: Aligned,
}

impl Data {
    /// Values in -1 to 1; weights scaled so that results are of the size of the inputs.
    pub(crate) fn new(problem: &Problem) -> Data {
        let tensor = |seed: u64, elements: usize, scale: f32| (0..elements).map(|i| scale * random(seed, i)).collect();
        let elements = |shape: Vec<usize>| shape.iter().product();
        let scale = (3.0 / problem.op.terms() as f32).sqrt();
        Data {
            input: tensor(1, elements(problem.op.input()), 1.0),
            weight: tensor(2, elements(problem.op.weight()), scale),
            bias: tensor(3, if problem.bias { problem.op.channels() } else { 0 }, 1.0),
            residual: tensor(4, if problem.residual { elements(problem.op.output()) } else { 0 }, 1.0),
        }
    }
}

/// A value in -1 to 1, the same for the same seed and position (SplitMix64).
pub(crate) fn random(seed: u64, i: usize) -> f32 {
    let mut z = (seed << 40).wrapping_add(i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Our kernel with its weight packed: takes the device, the arguments, and where the result goes.
pub(crate) type Launch = Box<dyn Fn(&Cpu, &Data, &mut [f32]) -> Result<()>>;

/// A layer of a list.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    /// How often the network runs it.
    pub(crate) count: u32,
    pub(crate) problem: Problem,
    /// Packs the weight.
    pub(crate) prepare: fn(&Cpu, &Data) -> Result<Launch>,
}

/// A list by its name and the class of its arithmetic, with where its kernels came from.
type List = (&'static str, &'static str, &'static dyn Fn() -> Report, Vec<Layer>);

#[allow(unused_macros, reason = "no layer is built where only the network is")]
macro_rules! layer {
    (
        $module:ident $name:ident $count:literal [$x:ident $w:ident $y:ident]
        [$($field:ident $operand:ident),*] $op:expr, $activation:expr
    ) => {
        Layer {
            name: stringify!($name),
            count: $count,
            problem: Problem { $($field: true,)* ..Problem::without_operands($op, $activation) },
            prepare: |dev, data| {
                use self::$module::$name as kernel;
                let packed = kernel::pack_weight(dev, &kernel_gen_runtime::View::<f32, kernel::$w>::new(&data.weight)?)?;
                Ok(Box::new(move |dev, data, y| {
                    kernel::launch(
                        dev,
                        &kernel_gen_runtime::View::<f32, kernel::$x>::new(&data.input)?,
                        &packed,
                        $(&kernel_gen_runtime::View::<f32, kernel::$operand>::new(&data.$field)?,)*
                        &mut kernel_gen_runtime::ViewMut::<f32, kernel::$y>::new(y)?,
                    )
                }))
            },
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/lists.rs"));

/// A list's layers, and where their kernels came from.
pub(crate) struct Class {
    pub(crate) layers: Vec<Layer>,
    pub(crate) report: Report,
}

/// Names of the lists that were built.
pub(crate) fn names() -> Vec<&'static str> {
    lists().iter().filter(|(_, class, ..)| *class == "fp32").map(|(name, ..)| *name).collect()
}

/// The list with that name in the class `fp32`, and in the class `strict`, as far as they were built.
pub(crate) fn find(name: &str) -> (Option<Class>, Option<Class>) {
    let mut of = lists().into_iter().filter(|(list, ..)| *list == name);
    let mut next = || of.next().map(|(_, _, report, layers)| Class { layers, report: report() });
    (next(), next())
}
