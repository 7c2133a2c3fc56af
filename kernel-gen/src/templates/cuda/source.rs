//! Convolutions and matrix products as one thing: rows of pixels by steps of the reduction.
//!
//! A row of the product is an output pixel (a row of the left matrix), a column an output channel. Rows are counted in the
//! order in which the output stores them, channels left aside, so a tile of them is no box of pixels and wastes nothing at
//! the borders of a map; where each row reads, its own coordinates say.

use crate::ir::builder::KernelBuilder;
use crate::ir::{Expr, VarId};
use crate::templates::cuda::taps;
use crate::workload::{Conv2d, ConvLayout, Matmul, Op, Workload};

/// Which elements of the left operand lie side by side in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fast {
    /// Those of neighbouring rows: NCHW, HWCN, a transposed matrix.
    Rows,
    /// Those of neighbouring terms of the reduction: NHWC, a matrix as it stands.
    Reduction,
}

/// What is multiplied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    Conv(Conv2d),
    Matmul(Matmul),
}

/// Coordinates of a row: of images, rows and columns of pixels, in the output's order; the last one alone for a matrix.
#[derive(Clone)]
pub(super) struct Pixel([Expr; 3]);

impl Source {
    /// The product, or why it is none for these kernels.
    pub(super) fn of(w: &Workload) -> Result<Source, String> {
        match w.op {
            Op::Conv2d(c) if c.groups != 1 => Err("for one group".into()),
            Op::Conv2d(c) => match c.layout {
                ConvLayout::Nchw | ConvLayout::Nhwc | ConvLayout::Hwcn => Ok(Source::Conv(c)),
                other => Err(format!("for NCHW, NHWC and HWCN, not {}", other.name())),
            },
            Op::Matmul(m) if m.batch == 1 => Ok(Source::Matmul(m)),
            Op::Matmul(_) => Err("for one product at a time".into()),
            _ => Err("for convolutions and matrix products".into()),
        }
    }

    /// Which elements lie side by side.
    pub(super) fn fast(&self) -> Fast {
        match self {
            Source::Conv(c) if c.layout == ConvLayout::Nhwc => Fast::Reduction,
            Source::Matmul(m) if !m.trans_a => Fast::Reduction,
            _ => Fast::Rows,
        }
    }

    /// The name of the left operand's parameter, and of the right one's.
    pub(super) fn operands(&self) -> [&'static str; 2] {
        match self {
            Source::Conv(_) => ["x", "w"],
            Source::Matmul(_) => ["a", "b"],
        }
    }

    /// Extents of the rows' coordinates.
    pub(super) fn extents(&self) -> [i64; 3] {
        match self {
            Source::Conv(c) if c.layout == ConvLayout::Hwcn => [c.oh(), c.ow(), c.n],
            Source::Conv(c) => [c.n, c.oh(), c.ow()],
            Source::Matmul(m) => [1, 1, m.m],
        }
    }

    /// Rows of the product.
    pub(super) fn rows(&self) -> i64 {
        self.extents().iter().product()
    }

    /// Columns of the product.
    pub(super) fn columns(&self) -> i64 {
        match self {
            Source::Conv(c) => c.co,
            Source::Matmul(m) => m.n,
        }
    }

    /// Terms of the reduction for one tap.
    pub(super) fn depth(&self) -> i64 {
        match self {
            Source::Conv(c) => c.ci,
            Source::Matmul(m) => m.k,
        }
    }

    /// Taps along rows and columns.
    pub(super) fn taps(&self) -> [i64; 2] {
        match self {
            Source::Conv(c) => [c.kh, c.kw],
            Source::Matmul(_) => [1, 1],
        }
    }

    /// Elements of the left operand that one copy brings: 4 where as many neighbours always lie side by side, else 1.
    pub(super) fn width(&self) -> i64 {
        let whole = match (self, self.fast()) {
            (_, Fast::Reduction) => self.depth() % 4 == 0,
            (Source::Matmul(m), Fast::Rows) => m.m % 4 == 0,
            (Source::Conv(c), Fast::Rows) if c.layout == ConvLayout::Hwcn => c.n % 4 == 0,
            (Source::Conv(c), Fast::Rows) => {
                let as_it_lies = (c.kh, c.kw, c.stride) == (1, 1, [1, 1]) && c.padding == [0; 4];
                as_it_lies && c.w % 4 == 0
            }
        };
        if whole { 4 } else { 1 }
    }

    /// Which of a row's coordinates counts rows (0) or columns (1) of a convolution's pixels.
    fn along(&self, dim: usize) -> usize {
        match self {
            Source::Conv(c) if c.layout == ConvLayout::Hwcn => dim,
            _ => dim + 1,
        }
    }

    /// Pixels of the left operand from a row to its neighbour along each coordinate.
    pub(super) fn strides(&self) -> [i64; 3] {
        let mut strides = [1; 3];
        if let Source::Conv(c) = self {
            (0..2).for_each(|dim| strides[self.along(dim)] = c.stride[dim]);
        }
        strides
    }

    /// The condition that a tap along a dimension meets the left operand for some rows of a box that begins at `first`; none
    /// where it always does.
    pub(super) fn meets(&self, dim: usize, first: &[Expr; 3], rows: [i64; 3], tap: VarId) -> Option<Expr> {
        let Source::Conv(c) = self else { return None };
        let along = self.along(dim);
        taps::meets(c, dim, &taps::first(c, dim, &first[along], tap), rows[along])
    }

    /// Taps that boxes of so many rows meet, of which there are so many: the mean.
    pub(super) fn taps_met(&self, rows: [i64; 3], boxes: [i64; 3]) -> f64 {
        let Source::Conv(c) = self else { return 1.0 };
        let mean = |dim: usize| {
            let along = self.along(dim);
            taps::taps_met(c, dim, rows[along], boxes[along]) as f64 / boxes[along] as f64
        };
        mean(0) * mean(1)
    }

    /// The row with these coordinates.
    pub(super) fn row(&self, at: [Expr; 3]) -> Pixel {
        Pixel(at)
    }

    /// The row `number * width`, with its coordinates named.
    pub(super) fn pixel(&self, b: &mut KernelBuilder, number: Expr, width: i64) -> Pixel {
        let [outer, middle, inner] = self.extents();
        if outer * middle == 1 {
            return Pixel([0.into(), 0.into(), number * width]);
        }
        let inner = inner / width;
        let number = b.let_("row_number", number);
        let rest = Expr::from(number).floor_div(inner);
        let last = b.let_("inner", Expr::from(number).floor_mod(inner));
        let between = b.let_("middle", rest.clone().floor_mod(middle));
        let first = b.let_("outer", rest.floor_div(middle));
        Pixel([first.into(), between.into(), last * width])
    }

    /// The condition that a row and the `width - 1` behind it exist, where tiles of `tile` rows do not fit exactly. That many
    /// divide the rows that there are.
    pub(super) fn exists(&self, pixel: &Pixel, width: i64, tile: i64) -> Option<Expr> {
        let [outer, middle, inner] = self.extents();
        let beyond = self.rows() % tile != 0;
        let [first, _, last] = &pixel.0;
        let single = outer * middle == 1;
        let exists = || if single { (last.clone() + (width - 1)).lt(inner) } else { first.clone().lt(outer) };
        beyond.then(exists)
    }

    /// The image, the output row and the output column of a row of a convolution.
    fn coordinates<'p>(&self, c: &Conv2d, pixel: &'p Pixel) -> [&'p Expr; 3] {
        let [first, second, third] = &pixel.0;
        if c.layout == ConvLayout::Hwcn { [third, first, second] } else { [first, second, third] }
    }

    /// Where a row's element for a tap and a term of the reduction lies, and the conditions that it does: rows beyond the
    /// last one are the caller's affair.
    pub(super) fn element(&self, pixel: &Pixel, taps: [VarId; 2], term: Expr) -> (Vec<Expr>, Vec<Expr>) {
        let (at, inside) = self.place(pixel, taps);
        (self.input(&at, term), inside)
    }

    /// Extents of the left operand's pixels, its coordinates apart from the reduction's, in the order in which they are stored.
    pub(super) fn inputs(&self) -> [i64; 3] {
        match self {
            Source::Conv(c) if c.layout == ConvLayout::Hwcn => [c.h, c.w, c.n],
            Source::Conv(c) => [c.n, c.h, c.w],
            Source::Matmul(m) => [1, 1, m.m],
        }
    }

    /// Which of the left operand's pixels a row multiplies for a tap, and the conditions that there is one.
    pub(super) fn place(&self, pixel: &Pixel, tap: [VarId; 2]) -> ([Expr; 3], Vec<Expr>) {
        let Source::Conv(c) = self else { return (pixel.0.clone(), vec![]) };
        let [image, oh, ow] = self.coordinates(c, pixel);
        let mut inside = vec![];
        let mut along = |dim: usize, o: &Expr| {
            let at = taps::first(c, dim, o, tap[dim]);
            let (size, outputs, taps) = [(c.h, c.oh(), c.kh), (c.w, c.ow(), c.kw)][dim];
            let last = (outputs - 1) * c.stride[dim] + (taps - 1) * c.dilation[dim] - c.padding[dim];
            if c.padding[dim] > 0 || last >= size {
                inside.push(KernelBuilder::between(&at, 0, size));
            }
            at
        };
        let (h, w) = (along(0, oh), along(1, ow));
        let image = image.clone();
        (if c.layout == ConvLayout::Hwcn { [h, w, image] } else { [image, h, w] }, inside)
    }

    /// Where a pixel's element for a term of the reduction lies.
    pub(super) fn input(&self, at: &[Expr; 3], term: Expr) -> Vec<Expr> {
        let [first, second, third] = at.clone();
        match self {
            Source::Matmul(m) if m.trans_a => vec![term, third],
            Source::Matmul(_) => vec![third, term],
            Source::Conv(c) => match c.layout {
                ConvLayout::Nhwc => vec![first, second, third, term],
                ConvLayout::Hwcn => vec![first, second, term, third],
                _ => vec![first, term, second, third],
            },
        }
    }

    /// Where the weight of a tap, a term and a column lies.
    pub(super) fn weight(&self, taps: [Expr; 2], term: Expr, column: Expr) -> Vec<Expr> {
        let [kh, kw] = taps;
        match self {
            Source::Matmul(m) if m.trans_b => vec![column, term],
            Source::Matmul(_) => vec![term, column],
            Source::Conv(c) if c.layout == ConvLayout::Nchw => vec![column, term, kh, kw],
            Source::Conv(_) => vec![kh, kw, term, column],
        }
    }

    /// Where an element of the output lies.
    pub(super) fn output(&self, pixel: &Pixel, column: Expr) -> Vec<Expr> {
        match self {
            Source::Matmul(_) => vec![pixel.0[2].clone(), column],
            Source::Conv(c) => {
                let [image, oh, ow] = self.coordinates(c, pixel).map(Expr::clone);
                c.layout.index(image, column, oh, ow)
            }
        }
    }
}
