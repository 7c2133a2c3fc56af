//! Products and convolutions of bytes as one problem: outputs are pixels by channels, terms are taps by words of some channels.

use crate::integer::ceil_div;
use crate::ir::{DType, Expr};
use crate::workload::{ConvLayout, Op, WeightZero, Workload};

/// Where the channels of a tensor lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Channels {
    /// Each is a plane of pixels.
    First,
    /// Those of a pixel are neighbours.
    Last,
}

/// In which order weights are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// `[co][ci][kh][kw]`, `[n][k]`.
    OutputFirst,
    /// `[kh][kw][ci][co]`, `[k][n]`.
    OutputLast,
}

/// What a word holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Words {
    /// Four bytes, of inputs of this type and of weights with signs.
    Bytes(DType),
    /// Two integers of 16 bits, which hold either.
    Pairs,
}

/// What the columns under a row of taps were before they became channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unfolded {
    /// Channels of a column.
    pub(super) ci: i64,
    /// Columns of the input.
    pub(super) w: i64,
    /// Columns between the first ones of two outputs.
    pub(super) stride: i64,
    /// Columns of padding on the left.
    pub(super) left: i64,
}

/// Most columns under a row of taps that become channels.
const MOST_UNFOLDED: i64 = 16;

/// A product or a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// Images; products of a batch.
    pub(super) n: i64,
    /// Groups of channels, each with weights of its own.
    pub(super) groups: i64,
    /// Whether each image has weights of its own.
    pub(super) batched: bool,
    /// Input channels of a group.
    pub(super) ci: i64,
    /// Rows and columns of the input.
    pub(super) h: i64,
    pub(super) w: i64,
    /// Output channels of a group.
    pub(super) co: i64,
    pub(super) taps: [i64; 2],
    pub(super) stride: [i64; 2],
    /// Top, left, bottom, right.
    pub(super) padding: [i64; 4],
    pub(super) dilation: [i64; 2],
    /// Rows and columns of the output.
    pub(super) oh: i64,
    pub(super) ow: i64,
    /// Channels and columns of a tap that have become channels of one, and the columns between such; see [`Problem::unfolded`].
    pub(super) unfolded: Option<Unfolded>,
    pub(super) x: Channels,
    pub(super) y: Channels,
    pub(super) order: Order,
    pub(super) words: Words,
    /// Type of the input.
    pub(super) dtype: DType,
    /// Whether the input has a zero point.
    pub(super) input_zero: bool,
    /// What is taken from weights so that they have signs.
    pub(super) weight_offset: i64,
    /// Zero points of the weights.
    pub(super) weight_zero: WeightZero,
}

impl Problem {
    /// A workload's, cut for tiles of pixels.
    pub(super) fn of(w: &Workload, words: Words) -> Result<Problem, String> {
        Ok(Problem::of_taps(w, words)?.in_one_row().unfolded())
    }

    /// A workload's, with its own taps.
    pub(super) fn of_taps(w: &Workload, words: Words) -> Result<Problem, String> {
        if !w.is_quantised() {
            return Err("for integers of eight bits".into());
        }
        let plain = Problem {
            n: 1,
            groups: 1,
            batched: false,
            ci: 1,
            h: 1,
            w: 1,
            co: 1,
            taps: [1; 2],
            stride: [1; 2],
            padding: [0; 4],
            dilation: [1; 2],
            oh: 1,
            ow: 1,
            unfolded: None,
            x: Channels::Last,
            y: Channels::Last,
            order: Order::OutputFirst,
            words,
            dtype: w.dtype,
            input_zero: w.quant.input_zero,
            weight_offset: if words != Words::Pairs && w.quant.weight == DType::U8 { 128 } else { 0 },
            weight_zero: w.quant.weight_zero,
        };
        let problem = match w.op {
            Op::Matmul(m) => Problem {
                n: m.batch,
                batched: m.batch > 1,
                ci: m.k,
                w: m.m,
                ow: m.m,
                co: m.n,
                x: if m.trans_a { Channels::First } else { Channels::Last },
                order: if m.trans_b { Order::OutputFirst } else { Order::OutputLast },
                ..plain
            },
            Op::Conv2d(c) => {
                let (channels, order) = match c.layout {
                    ConvLayout::Nchw => (Channels::First, Order::OutputFirst),
                    ConvLayout::Nhwc => (Channels::Last, Order::OutputLast),
                    _ => return Err("for the layouts NCHW and NHWC".into()),
                };
                Problem {
                    n: c.n,
                    groups: c.groups,
                    ci: c.ci_per_group(),
                    h: c.h,
                    w: c.w,
                    co: c.co_per_group(),
                    taps: [c.kh, c.kw],
                    stride: c.stride,
                    padding: c.padding,
                    dilation: c.dilation,
                    oh: c.oh(),
                    ow: c.ow(),
                    x: channels,
                    y: channels,
                    order,
                    ..plain
                }
            }
            Op::Conv1d(c) => Problem {
                n: c.n,
                groups: c.groups,
                ci: c.ci / c.groups,
                w: c.w,
                co: c.co / c.groups,
                taps: [1, c.k],
                stride: [1, c.stride],
                padding: [0, c.padding[0], 0, c.padding[1]],
                dilation: [1, c.dilation],
                oh: 1,
                ow: c.ow(),
                x: Channels::First,
                y: Channels::First,
                ..plain
            },
            _ => return Err("for products and convolutions".into()),
        };
        Ok(problem)
    }

    /// The same with all pixels in one row, where outputs are pixels as inputs are: tiles then end with the image alone.
    fn in_one_row(self) -> Problem {
        let same = self.taps == [1; 2] && self.stride == [1; 2] && self.padding == [0; 4];
        match same {
            true => Problem { h: 1, w: self.h * self.w, oh: 1, ow: self.oh * self.ow, ..self },
            false => self,
        }
    }

    /// The same with all columns under a row of taps as channels, where a column has so few that words of them would be half empty, and
    /// the loop over them shorter than what it takes to begin one.
    fn unfolded(self) -> Problem {
        let few = self.x == Channels::Last && self.ci < 4 && self.groups == 1 && self.dilation[1] == 1;
        // A column of the input is copied once for each column of taps over it.
        let overlaps = self.taps[1] > 1 && self.taps[1] <= MOST_UNFOLDED && self.stride[1] <= self.taps[1];
        if !few || !overlaps {
            return self;
        }
        let [top, left, bottom, _] = self.padding;
        let unfolded = Unfolded { ci: self.ci, w: self.w, stride: self.stride[1], left };
        Problem {
            ci: self.ci * self.taps[1],
            w: self.ow,
            taps: [self.taps[0], 1],
            stride: [self.stride[0], 1],
            padding: [top, 0, bottom, 0],
            unfolded: Some(unfolded),
            ..self
        }
    }

    /// Outputs of an image and a channel.
    pub(super) fn pixels(&self) -> i64 {
        self.oh * self.ow
    }

    /// Channels of a word.
    pub(super) fn of_word(&self) -> i64 {
        match self.words {
            Words::Bytes(_) => 4,
            Words::Pairs => 2,
        }
    }

    /// Words of the channels of a group at one pixel.
    pub(super) fn words(&self) -> i64 {
        ceil_div(self.ci, self.of_word())
    }

    /// The channel of a group that is number `i` of a word. Words that are stored have their even bytes in one pair and their odd ones in
    /// another, and the pairs of even ones come first.
    pub(super) fn channel(&self, word: Expr, i: i64) -> Expr {
        match self.words == Words::Pairs && self.has_words() {
            true => word.clone().floor_mod(self.ci / 4) * 4 + word.floor_div(self.ci / 4) + 2 * i,
            false => word * self.of_word() + i,
        }
    }

    /// What is added to inputs so that they are of the type that is multiplied.
    pub(super) fn input_offset(&self) -> i64 {
        match (self.words, self.dtype) {
            (Words::Bytes(DType::U8), DType::I8) => 128,
            (Words::Bytes(DType::I8), DType::U8) => -128,
            _ => 0,
        }
    }

    /// Types of the words of inputs and of weights.
    pub(super) fn word_types(&self) -> [DType; 2] {
        match self.words {
            Words::Bytes(input) => [input.word().expect("bytes"), DType::I8x4],
            Words::Pairs => [DType::I16x2; 2],
        }
    }

    /// Words of all groups.
    pub(super) fn all_words(&self) -> i64 {
        self.groups * self.words()
    }

    /// Rows and columns of the input with its padding.
    pub(super) fn padded(&self) -> [i64; 2] {
        let [top, left, bottom, right] = self.padding;
        [self.h + top + bottom, self.w + left + right]
    }

    /// Bytes of the packed input under `pixels` outputs.
    pub(super) fn block_bytes(&self, pixels: i64) -> i64 {
        let [down, across] = self.stride;
        [pixels.min(self.pixels()), down, across, self.words()].into_iter().fold(4, i64::saturating_mul)
    }

    /// Sets of weights.
    pub(super) fn sets(&self) -> i64 {
        if self.batched { self.n } else { self.groups }
    }

    /// Terms of a sum, with those of channels beyond the last.
    pub(super) fn terms(&self) -> i64 {
        self.taps[0] * self.taps[1] * self.of_word() * self.words()
    }

    /// Whether the input is stored in whole words of four bytes.
    pub(super) fn has_words(&self) -> bool {
        self.x == Channels::Last && self.unfolded.is_none() && self.ci % 4 == 0
    }

    /// Whether kernels read the input as it is.
    pub(super) fn reads_in_place(&self) -> bool {
        self.words == Words::Bytes(self.dtype) && self.has_words() && self.padding == [0; 4]
    }

    /// Whether sums of the input's elements matter: those of weights with zero points do not vanish.
    pub(super) fn sums_inputs(&self) -> bool {
        self.weight_offset != 0 || self.weight_zero != WeightZero::None
    }

    /// Shape of the input as the kernel takes it.
    pub(super) fn x_shape(&self) -> Vec<i64> {
        let channels = self.groups * self.ci;
        if let Some(of) = self.unfolded {
            return vec![self.n, self.h, of.w, of.ci];
        }
        match self.x {
            Channels::First => vec![self.n, channels, self.h, self.w],
            Channels::Last if self.has_words() => vec![self.n, self.h, self.w, channels / 4],
            Channels::Last => vec![self.n, self.h, self.w, channels],
        }
    }

    /// Shape of the input in words, with its padding.
    pub(super) fn packed_shape(&self) -> Vec<i64> {
        let [h, w] = self.padded();
        match self.x {
            Channels::First => vec![self.n, h, self.all_words(), w],
            Channels::Last => vec![self.n, h, w, self.all_words()],
        }
    }

    /// Shape of the same where channels are neighbours, with all words of an image in one dimension.
    pub(super) fn flat_shape(&self) -> Vec<i64> {
        let [h, w] = self.padded();
        vec![self.n, h * w * self.all_words()]
    }

    /// Shape of the output as the kernel takes it: with all pixels in one row.
    pub(super) fn y_shape(&self) -> Vec<i64> {
        let channels = self.groups * self.co;
        match self.y {
            Channels::First => vec![self.n, channels, self.pixels()],
            Channels::Last => vec![self.n, self.pixels(), channels],
        }
    }

    /// Shape of the weights as stored.
    pub(super) fn w_shape(&self) -> Vec<i64> {
        let ([kh, kw], channels) = (self.taps, self.groups * self.co);
        let (ci, kw) = self.unfolded.map_or((self.ci, kw), |of| (of.ci, self.ci / of.ci));
        match self.order {
            Order::OutputFirst if self.batched => vec![self.n, self.co, ci, kh, kw],
            Order::OutputLast if self.batched => vec![self.n, kh, kw, ci, self.co],
            Order::OutputFirst => vec![channels, ci, kh, kw],
            Order::OutputLast => vec![kh, kw, ci, channels],
        }
    }

    /// Shape of the packed weights, in words, if a tile has `tile` channels: sets, tiles, words of all taps and one more, channels. The
    /// last word of a channel is the sum of its weights.
    pub(super) fn packed_weights(&self, tile: i64) -> [i64; 4] {
        [self.sets(), ceil_div(self.co, tile), self.taps[0] * self.taps[1] * self.words() + 1, tile]
    }
}
