//! Pooling over one dimension and over three.

use super::max_pool2d::CEIL;
use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Padded, Stage, axis, input, result};
use super::windows::{Windows, between, keys, sizes};
use super::{Op, Role, Workload, WorkloadError, conv2d, reference};
use crate::ir::{BinOp, DType, Expr};

/// The maximum or the average of each window of each channel, as [`MaxPool2d`](super::MaxPool2d) and
/// [`AvgPool2d`](super::AvgPool2d) have it over two dimensions. Input and output are `[n, c, pixels..]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolNd {
    /// Batch.
    pub n: i64,
    /// Channels.
    pub c: i64,
    /// The windows' way over the input.
    pub windows: Windows,
    /// What is made of a window.
    pub function: Pooling,
    /// Of an average that counts the padding the pixels of it, behind the input in each direction, that do not count all the same:
    /// those that only make the last windows whole where their number is rounded up.
    pub beyond: [i64; 3],
}

/// What is made of a window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pooling {
    /// The largest element; NaN if there is one.
    Max,
    /// The average.
    Average {
        /// Whether elements of the padding count, as zeros.
        count_padding: bool,
    },
}

const N: Size = Size::new("n", "n (the batch)", SizeRole::Images);
const C: Size = Size::new("c", "c (the channels)", SizeRole::Channels);
const PADDED: Size = Size::new("padded", "padded", SizeRole::Choice);

/// A kind of a pooling over some dimensions.
macro_rules! kind {
    ($name:literal, $rank:literal, $average:literal, $pattern:literal, $input:literal, $window:literal) => {
        Kind {
            name: $name,
            pattern: $pattern,
            sizes: &{
                const BEHIND: &[Size] = if $average { &[PADDED] } else { &[] };
                between::<{ 2 + 6 * $rank + $average as usize }>(&[N, C], &sizes::<{ 6 * $rank }>($rank), BEHIND)
            },
            layouts: &[],
            flags: if $average { &["count_include_pad", CEIL] } else { &[CEIL] },
            between: &[],
            outputs: FLOATS,
            keys: |_| {
                let shape = SpecKey::required("input", &[$rank + 2], $input);
                let window = SpecKey::required("window", if $rank == 1 { &[] } else { &[$rank] }, $window);
                [vec![shape, window], keys($rank).to_vec()].concat()
            },
            read: |shared, values| {
                let [n, c, pixels @ ..] = values.get("input").expect("it must be there") else {
                    unreachable!("the number of dimensions was checked")
                };
                let windows = Windows::read(values, pixels, values.get("window").unwrap_or_default());
                let function = pooling($average, shared.has("count_include_pad"));
                Ok(Op::PoolNd(PoolNd::new([*n, *c], windows, function, shared.has(CEIL))))
            },
            of_sizes: |_, numbers| {
                let [n, c, rest @ ..] = numbers else { return None };
                let (windows, rest) = rest.split_at_checked(6 * $rank)?;
                let count = rest.first().copied().unwrap_or(0);
                let function = pooling($average, count > 0);
                Some(Op::PoolNd(PoolNd::new([*n, *c], Windows::of_sizes($rank, windows)?, function, count == 2)))
            },
            guilty: |error| match error {
                WorkloadError::NotPositive { size, .. } if size.contains("window") => "window",
                WorkloadError::Sizes { .. } => "padding",
                error => match conv2d::guilty_key(error) {
                    "weight" => "window",
                    key => key,
                },
            },
        }
    };
}

/// `max_pool1d` in specs and keys.
pub(crate) static MAX_POOL1D: Kind = kind!("max_pool1d", 1, false, "n{}c{}-{}-k{}-s{}-p{}.{}-d{}", "[n, c, w]", "3");

/// `max_pool3d`.
pub(crate) static MAX_POOL3D: Kind = kind!(
    "max_pool3d",
    3,
    false,
    "n{}c{}-{}x{}x{}-k{}x{}x{}-s{}x{}x{}-p{}.{}.{}.{}.{}.{}-d{}x{}x{}",
    "[n, c, d, h, w]",
    "[kd, kh, kw]"
);

/// `avg_pool1d`.
pub(crate) static AVG_POOL1D: Kind =
    kind!("avg_pool1d", 1, true, "n{}c{}-{}-k{}-s{}-p{}.{}-d{}-{inside|padded|rounded_up}", "[n, c, w]", "3");

/// `avg_pool3d`.
pub(crate) static AVG_POOL3D: Kind = kind!(
    "avg_pool3d",
    3,
    true,
    "n{}c{}-{}x{}x{}-k{}x{}x{}-s{}x{}x{}-p{}.{}.{}.{}.{}.{}-d{}x{}x{}-{inside|padded|rounded_up}",
    "[n, c, d, h, w]",
    "[kd, kh, kw]"
);

fn pooling(average: bool, count_padding: bool) -> Pooling {
    if average { Pooling::Average { count_padding } } else { Pooling::Max }
}

impl PoolNd {
    /// Pooling of `n` images of `c` channels, with these windows over the padded input. `round_up` rounds the number of windows up: the last
    /// ones may go beyond the padding, where nothing counts.
    pub fn new([n, c]: [i64; 2], windows: Windows, function: Pooling, round_up: bool) -> PoolNd {
        let whole = if round_up { windows.rounded_up() } else { windows };
        let counts = function == Pooling::Average { count_padding: true };
        let beyond = std::array::from_fn(|i| if counts { whole.after[i] - windows.after[i] } else { 0 });
        PoolNd { n, c, windows: whole, function, beyond }
    }

    /// The windows over what counts in an average.
    pub(super) fn counted(&self) -> Windows {
        match self.function {
            Pooling::Average { count_padding: true } => self.windows.over_padding(self.beyond),
            _ => self.windows,
        }
    }

    fn with_pixels(&self, pixels: impl Fn(usize) -> i64) -> Vec<i64> {
        [self.n, self.c].into_iter().chain(self.windows.dimensions().map(pixels)).collect()
    }
}

impl Operator for PoolNd {
    fn kind(&self) -> &'static Kind {
        match (self.function, self.windows.rank) {
            (Pooling::Max, 1) => &MAX_POOL1D,
            (Pooling::Max, _) => &MAX_POOL3D,
            (Pooling::Average { .. }, 1) => &AVG_POOL1D,
            (Pooling::Average { .. }, _) => &AVG_POOL3D,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        let after = std::array::from_fn(|i| self.windows.after[i] - self.beyond[i]);
        let mut all = [vec![self.n, self.c], Windows { after, ..self.windows }.sizes()].concat();
        if let Pooling::Average { count_padding } = self.function {
            all.push(if self.beyond == [0; 3] { count_padding.into() } else { 2 });
        }
        all
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        self.windows.check_elements()
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.with_pixels(|i| self.windows.pixels[i]))]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        const NAMES: [&str; 3] = ["o0", "o1", "o2"];
        let pixels = self.windows.dimensions().map(|i| Axis::new(NAMES[i], self.windows.windows(i), AxisRole::Space));
        let first = [Axis::new("n", self.n, AxisRole::Batch), Axis::new("c", self.c, AxisRole::Channel)];
        ("y", first.into_iter().chain(pixels).collect())
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![("the padded input", self.with_pixels(|i| self.windows.padded(i)))]
    }

    fn terms(&self) -> i64 {
        product(&self.windows.taps)
    }

    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        const PADS: [&str; 3] = ["p0_pad", "p1_pad", "p2_pad"];
        const TAPS: [&str; 3] = ["k0", "k1", "k2"];
        let (w, axes) = (&self.windows, self.output().1);
        let (combine, outside) = match self.function {
            Pooling::Max => (Combine::Max, f64::NEG_INFINITY),
            Pooling::Average { .. } => (Combine::Sum, 0.0),
        };
        let mut stages = vec![];
        if w.dimensions().any(|i| w.before[i] + w.after[i] > 0) {
            let images = [("n_pad", self.n), ("c_pad", self.c)];
            let images = images.map(|(name, extent)| Padded { name, extent, padding: [0; 2] });
            let along = |i: usize| Padded { name: PADS[i], extent: w.padded(i), padding: [w.before[i], w.after[i]] };
            let padded: Vec<Padded> = images.into_iter().chain(w.dimensions().map(along)).collect();
            stages.push(Stage::pad(dtype, input(0), &padded, outside));
        }
        let x = if stages.is_empty() { input(0) } else { result(0) };
        let mut source: Vec<Expr> = vec![axis(0).into(), axis(1).into()];
        source.extend(w.dimensions().map(|i| axis(i + 2) * w.stride[i] + axis(axes.len() + i) * w.dilation[i]));
        stages.push(Stage {
            name: "acc",
            dtype: sums,
            shape: axes.iter().map(|axis| axis.extent).collect(),
            loops: axes
                .iter()
                .map(|axis| (axis.name, axis.extent))
                .chain(w.dimensions().map(|i| (TAPS[i], w.taps[i])))
                .collect(),
            reduce: w.rank,
            combine,
            index: (0..axes.len()).map(|i| axis(i).into()).collect(),
            value: Expr::load(x, source),
        });
        stages
    }

    /// A sum of `n` terms is rounded `n - 1` times, and its division once: as often as a sum of `n` products.
    fn finish(&self, sum: Expr, index: &[Expr]) -> Expr {
        if self.function == Pooling::Max {
            return sum;
        }
        // Whole numbers that f32 holds exactly, and so their products.
        let number = |count: Expr| match count.as_int() {
            Some(count) => Expr::f32(count as f64),
            None => Expr::Cast(DType::F32, Box::new(count)),
        };
        let counted = self.counted();
        let inside = |i: usize| number(counted.inside(i, index[i + 2].clone()));
        let count = counted.dimensions().map(inside).reduce(|a, b| a * b).expect("windows have a dimension");
        Expr::bin(BinOp::Div, sum, count)
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::pooled(self, inputs[0])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AvgPool2d, Conv2d};
    use super::*;

    #[test]
    fn windows_are_rounded_up_unless_they_begin_behind_the_padding() {
        for (pixels, taps, stride, padding, windows) in
            [(4, 3, 2, 0, 2), (5, 2, 2, 0, 3), (2, 3, 3, 1, 1), (6, 3, 2, 1, 4)]
        {
            let lists: [&[i64]; 6] = [&[pixels], &[taps], &[stride], &[padding], &[padding], &[1]];
            let rounded = Windows::new(lists).rounded_up();
            assert_eq!(rounded.windows(0), windows, "{pixels} pixels, {taps} taps");
            assert_eq!(rounded.check_elements(), Ok(()));
        }
    }

    #[test]
    fn what_rounding_up_adds_behind_the_padding_does_not_count() {
        // As PyTorch has it: of the last window, 4 and an element of the padding count.
        let x = [1.0, 2.0, 3.0, 4.0];
        for (count_padding, y) in [(true, [1.0, 3.0, 2.0]), (false, [1.5, 3.0, 4.0])] {
            let windows = Windows::new([&[4], &[3], &[2], &[1], &[1], &[1]]);
            let one = PoolNd::new([1, 1], windows, Pooling::Average { count_padding }, true);
            let row = Conv2d { kh: 1, padding: [0, 1, 0, 1], stride: [1, 2], ..Conv2d::nchw(1, 1, 1, 4, 1, 3, 1, 0) };
            let two = AvgPool2d::new(row.depthwise(1), count_padding, true);
            for workload in [Workload::f32(one), Workload::f32(two)] {
                assert_eq!(workload.validate(), Ok(()));
                assert_eq!(super::super::reference(&workload, &[&x]), y, "{}", workload.key());
                assert_eq!(Workload::from_key(&workload.key()), Ok(workload));
            }
        }
    }
}
