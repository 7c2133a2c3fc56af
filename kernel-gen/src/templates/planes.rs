//! Convolutions over planes of pixels (`[n, channels, pixels..]`): of one to three dimensions, with groups, and transposed.

use super::phases::{Dimension, Form};
use crate::workload::{Conv1d, Conv2d, ConvLayout, ConvNd, Op, Workload};

/// Dimensions of pixels that there are at most. Those that a convolution does not have come first, with one pixel and one tap.
pub(super) const DIMENSIONS: usize = 3;

/// A convolution over planes of pixels.
#[derive(Clone, Copy, Debug)]
pub struct Planes {
    pub(super) n: i64,
    pub(super) groups: i64,
    /// Channels of a group.
    pub(super) ci: i64,
    pub(super) co: i64,
    pub(super) rank: usize,
    pub(super) dimensions: [Dimension; DIMENSIONS],
}

impl Planes {
    /// The layer that a workload is, if it is one over planes of pixels.
    pub(super) fn layer(w: &Workload) -> Option<Planes> {
        match &w.op {
            Op::Conv1d(c) => Some(Planes::conv1d(c)),
            Op::Conv2d(c) if c.layout == ConvLayout::Nchw => Some(Planes::conv2d(c)),
            Op::ConvNd(c) => Some(Planes::conv_nd(c)),
            _ => None,
        }
    }

    fn conv1d(c: &Conv1d) -> Planes {
        let dimension = Dimension {
            input: c.w,
            output: c.ow(),
            taps: c.k,
            stride: c.stride,
            dilation: c.dilation,
            before: c.padding[0],
            form: Form::Convolution,
        };
        Planes::new([c.n, c.ci, c.co, c.groups], &[dimension])
    }

    fn new([n, ci, co, groups]: [i64; 4], present: &[Dimension]) -> Planes {
        let mut dimensions = [Dimension::ABSENT; DIMENSIONS];
        dimensions[DIMENSIONS - present.len()..].copy_from_slice(present);
        Planes { n, groups, ci: ci / groups, co: co / groups, rank: present.len(), dimensions }
    }

    fn conv2d(c: &Conv2d) -> Planes {
        let ([input, output], taps) = ([[c.h, c.w], [c.oh(), c.ow()]], [c.kh, c.kw]);
        let dimension = |i: usize| Dimension {
            input: input[i],
            output: output[i],
            taps: taps[i],
            stride: c.stride[i],
            dilation: c.dilation[i],
            before: c.padding[i],
            form: Form::Convolution,
        };
        Planes::new([c.n, c.ci, c.co, c.groups], &[0, 1].map(dimension))
    }

    fn conv_nd(c: &ConvNd) -> Planes {
        let w = &c.windows;
        let mut all: Vec<Dimension> = (0..w.rank)
            .map(|i| Dimension {
                input: w.pixels[i],
                output: c.output(i),
                taps: w.taps[i],
                stride: w.stride[i],
                dilation: w.dilation[i],
                before: w.before[i],
                form: if c.transposed.is_some() { Form::Phases } else { Form::Convolution },
            })
            .collect();
        // Taps that never overlap, and outputs that all have one.
        let alone = |d: &Dimension| d.taps == d.stride && d.dilation == 1 && d.input * d.stride - d.before >= d.output;
        if c.transposed.is_some() && all.iter().all(alone) {
            all.iter_mut().for_each(|d| d.form = Form::Scattered);
        }
        Planes::new([c.n, c.ci, c.co, c.groups], &all)
    }

    /// The same planes, with transposed dimensions cut in phases only, never one output block for each input pixel.
    pub(super) fn in_phases(mut self) -> Planes {
        for d in &mut self.dimensions {
            if d.form == Form::Scattered {
                d.form = Form::Phases;
            }
        }
        self
    }

    /// The dimensions that there are.
    pub(super) fn present(&self) -> &[Dimension] {
        &self.dimensions[DIMENSIONS - self.rank..]
    }

    /// The product of a dimension's numbers.
    pub(super) fn all(&self, of: impl Fn(&Dimension) -> i64) -> i64 {
        self.dimensions.iter().map(of).product()
    }
}
