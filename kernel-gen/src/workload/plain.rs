//! Where the elements of a convolution's operands lie in the order that other libraries have.

use super::reference::{Activation, Filter};
use super::{Conv2d, ConvLayout};

/// Operands in plain order: activations as NCHW and filters as OIHW, or activations as NHWC and filters as OHWI. Each list says
/// for every element in that order where the workload has it; `None` is the same order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlainOrder {
    /// Of the input.
    pub(crate) input: Option<Vec<usize>>,
    /// Of the filter.
    pub(crate) filter: Option<Vec<usize>>,
    /// Of the output, and of what is added to it.
    pub(crate) output: Option<Vec<usize>>,
}

impl PlainOrder {
    /// That of a convolution, with its channels last or not.
    pub(crate) fn of(c: &Conv2d, channels_last: bool) -> PlainOrder {
        let plain = if channels_last { ConvLayout::Nhwc } else { ConvLayout::Nchw };
        let activation = |channels: i64, h: i64, w: i64| {
            let size = [c.n, channels, h, w].map(|d| d as usize);
            (c.layout != plain).then(|| activation(c.layout, size, channels_last))
        };
        PlainOrder {
            input: activation(c.ci, c.h, c.w),
            // No layout here has OHWI.
            filter: (channels_last || c.layout != plain).then(|| filter(c, channels_last)),
            output: activation(c.co, c.oh(), c.ow()),
        }
    }
}

fn activation(layout: ConvLayout, [n, channels, h, w]: [usize; 4], channels_last: bool) -> Vec<usize> {
    let at = Activation::new(layout, n, channels, h, w);
    let mut all = Vec::with_capacity(n * channels * h * w);
    for image in &at.image {
        if channels_last {
            for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                all.extend(at.channel.iter().map(|channel| image + channel + y * at.h_step + x * at.w_step));
            }
        } else {
            for (channel, y) in at.channel.iter().flat_map(|channel| (0..h).map(move |y| (channel, y))) {
                all.extend((0..w).map(|x| image + channel + y * at.h_step + x * at.w_step));
            }
        }
    }
    all
}

fn filter(c: &Conv2d, channels_last: bool) -> Vec<usize> {
    let at = Filter::new(c);
    let taps = || (0..c.kh as usize).flat_map(|kh| (0..c.kw as usize).map(move |kw| (kh, kw)));
    let tap = |(kh, kw): (usize, usize)| kh * at.kh_step + kw * at.kw_step;
    let mut all = Vec::with_capacity(at.output.len() * at.input.len() * taps().count());
    for output in &at.output {
        if channels_last {
            taps().for_each(|t| all.extend(at.input.iter().map(|input| output + input + tap(t))));
        } else {
            at.input.iter().for_each(|input| all.extend(taps().map(|t| output + input + tap(t))));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Workload, reference};
    use super::*;

    fn conv() -> Conv2d {
        Conv2d { stride: [2, 1], groups: 2, ..Conv2d::nchw(16, 32, 5, 4, 64, 3, 1, 1) }
    }

    fn value(i: usize) -> f64 {
        ((i * 37 + 11) % 29) as f64 - 14.0
    }

    /// What a library that has NCHW and OIHW would compute of a workload's operands, in the workload's order.
    fn by_plain_operands(c: &Conv2d, x: &[f64], w: &[f64]) -> Vec<f64> {
        let order = PlainOrder::of(c, false);
        let gather = |of: &[f64], order: &Option<Vec<usize>>| match order {
            None => of.to_vec(),
            Some(order) => order.iter().map(|i| of[*i]).collect(),
        };
        let plain = Conv2d { layout: ConvLayout::Nchw, ..*c };
        let y = reference(&Workload::f32(plain), &[&gather(x, &order.input), &gather(w, &order.filter)]);
        let Some(order) = order.output else { return y };
        let mut back = vec![f64::NAN; y.len()];
        order.iter().zip(y).for_each(|(at, y)| back[*at] = y);
        back
    }

    #[test]
    fn a_convolution_of_plain_operands_is_the_workloads_in_every_layout() {
        for layout in ConvLayout::ALL {
            // Tiles of 16 images and channels have no groups.
            let groups = if matches!(layout, ConvLayout::NhwcNc(_)) { 1 } else { 2 };
            let c = Conv2d { layout, groups, ..conv() };
            let x: Vec<f64> = (0..(c.n * c.ci * c.h * c.w) as usize).map(value).collect();
            let w: Vec<f64> = (0..(c.co * c.ci / groups * 9) as usize).map(|i| value(i * 3 + 1)).collect();
            assert_eq!(by_plain_operands(&c, &x, &w), reference(&Workload::f32(c), &[&x, &w]), "{}", layout.name());
        }
    }

    #[test]
    fn channels_last_is_a_permutation_and_leaves_activations_that_are_so_alone() {
        let c = Conv2d { layout: ConvLayout::Nhwc, groups: 1, ..Conv2d::nchw(1, 2, 2, 2, 3, 2, 1, 0) };
        let order = PlainOrder::of(&c, true);
        assert_eq!((&order.input, &order.output), (&None, &None));
        // HWIO to OHWI: the first output's elements are every third.
        let filter = order.filter.unwrap();
        assert_eq!(filter[..8], [0, 3, 6, 9, 12, 15, 18, 21]);
        assert_eq!(filter[8], 1);
        let blocked = Conv2d { layout: ConvLayout::NhwcNc(16), groups: 1, ..conv() };
        let order = PlainOrder::of(&blocked, true);
        for list in [order.input, order.filter, order.output].into_iter().flatten() {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..list.len()));
        }
    }
}
