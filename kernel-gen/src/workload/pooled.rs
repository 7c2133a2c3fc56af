//! Pooling over one dimension and over two, as one.

use super::max_pool2d::windows;
use super::pool_nd::Pooling;
use super::windows::Windows;
use super::{ConvLayout, Op};

/// A pooling of planes of pixels, in two dimensions; those of one have a height of 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooled {
    /// Images.
    pub(crate) n: i64,
    /// Channels.
    pub(crate) c: i64,
    /// The windows' way over the pixels of a channel.
    pub(crate) windows: Windows,
    /// Of an average the windows over what counts; of a maximum none.
    pub(crate) counted: Option<Windows>,
}

impl Pooled {
    /// The pooling of an operator whose channels are planes.
    pub(crate) fn of(op: &Op) -> Option<Pooled> {
        let (n, c, windows, counted) = match op {
            Op::MaxPool2d(of) if of.window.layout == ConvLayout::Nchw => {
                (of.window.n, of.window.ci, windows(&of.window), None)
            }
            Op::AvgPool2d(of) if of.window.layout == ConvLayout::Nchw => {
                (of.window.n, of.window.ci, windows(&of.window), Some(of.counted()))
            }
            Op::PoolNd(of) if of.windows.rank == 1 => {
                let average = matches!(of.function, Pooling::Average { .. });
                (of.n, of.c, of.windows.of_rows(), average.then(|| of.counted().of_rows()))
            }
            _ => return None,
        };
        Some(Pooled { n, c, windows, counted })
    }

    /// Whether there is one window, of all pixels.
    pub(crate) fn is_global(&self) -> bool {
        let w = &self.windows;
        w.dimensions().all(|i| w.taps[i] == w.pixels[i] && w.before[i] + w.after[i] == 0)
    }
}
