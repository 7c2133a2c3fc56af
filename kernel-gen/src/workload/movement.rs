//! What moves elements and computes nothing: each element of the output is one of the input, or of the padding.

use super::dims::{Dims, RANKS, lists};
use super::number::Number;
use super::operator::{FLOATS, Kind, OfBytes, OfI32, Operand, Operator, Size, SizeRole, SpecKey, Values, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage, input};
use super::{Op, Role, Workload, WorkloadError, reference};
use crate::ir::{DType, Expr};

/// A movement of the elements of a tensor. Elements are those of the input exactly, whatever they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Movement {
    /// The shape of the input.
    pub input: Dims,
    /// What is done.
    pub function: Move,
}

/// Which element of the input each one of the output is. `n, c, h, w` index four dimensions; `b` is the block, `C` the channels of the
/// tensor that has fewer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Move {
    /// Dimension `i` of the output is dimension `order[i]` of the input.
    Permute {
        /// A permutation of the input's dimensions.
        order: Dims,
    },
    /// `y[i, ...] = x[start[0] + i*step[0], ...]`.
    Slice {
        /// The first element along each dimension.
        start: Dims,
        /// The shape of the output.
        size: Dims,
        /// The distance of elements; below 0 it leads backwards.
        step: Dims,
    },
    /// `y[i, ...] = x[i mod extent of x, ...]`: dimension `i` follows itself `repeats[i]` times. Of an extent of 1 that is how shapes
    /// broadcast.
    Tile {
        /// How often, for each dimension.
        repeats: Dims,
    },
    /// `y[i, ...] = x[i - before[0], ...]`, and what `outside` says beside that.
    Pad {
        /// Elements before the input's along each dimension.
        before: Dims,
        /// Elements behind them.
        after: Dims,
        /// What they are.
        outside: Outside,
    },
    /// `y[n, c, h*b + i, w*b + j] = x[n, (i*b + j)*C + c, h, w]`: ONNX's DepthToSpace of the mode `DCR`.
    DepthToSpace(i64),
    /// `y[n, c, h*b + i, w*b + j] = x[n, (c*b + i)*b + j, h, w]`: PyTorch's pixel shuffle, ONNX's DepthToSpace of the mode `CRD`.
    PixelShuffle(i64),
    /// `y[n, (i*b + j)*C + c, h, w] = x[n, c, h*b + i, w*b + j]`: ONNX's SpaceToDepth.
    SpaceToDepth(i64),
    /// `y[n, (c*b + i)*b + j, h, w] = x[n, c, h*b + i, w*b + j]`: PyTorch's pixel unshuffle.
    PixelUnshuffle(i64),
    /// `y[n, j*groups + g, h, w] = x[n, g*(c/groups) + j, h, w]`: ShuffleNet's.
    ChannelShuffle(i64),
}

/// What lies outside of a tensor that is padded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outside {
    /// Zeros.
    Zero,
    /// This number.
    Value(Number),
    /// The nearest element.
    Edge,
    /// The mirror image, the element at the edge not repeated.
    Reflect,
}

const INPUT: Size = Size::new("input", "input", SizeRole::Dimension);
const INPUT_LIST: [Size; 6] = lists(&[INPUT]);
const BEFORE: Size = Size::new("before", "before", SizeRole::Offset);
const AFTER: Size = Size::new("after", "after", SizeRole::Offset);

const PERMUTE_KIND: Kind = Kind {
    name: "permute",
    pattern: "{x}-o{x}",
    sizes: &lists::<12>(&[INPUT, Size::new("order", "order", SizeRole::Order)]),
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| {
        vec![shape_key(), SpecKey::required("order", RANKS, "[the input's dimension behind each of the output's]")]
    },
    read: |_, values| {
        let input = shape(values);
        let order = Dims::read(values, "order", input.len(), 0)?;
        Ok(Op::Movement(Movement { input, function: Move::Permute { order } }))
    },
    of_sizes: |_, sizes| {
        let [input, order] = Dims::of_sizes(sizes)?;
        Some(Op::Movement(Movement { input, function: Move::Permute { order } }))
    },
    guilty: |error| guilty(error, "order"),
};

/// `permute` in specs and keys.
pub(crate) static PERMUTE: Kind = PERMUTE_KIND;

/// `slice`.
pub(crate) static SLICE: Kind = Kind {
    name: "slice",
    pattern: "{x}-f{x}-o{x}-s{x}",
    sizes: &lists::<24>(&[
        INPUT,
        Size::new("start", "start", SizeRole::Offset),
        Size::new("size", "size", SizeRole::Dimension),
        Size::new("step", "step", SizeRole::Step),
    ]),
    keys: |_| {
        vec![
            shape_key(),
            SpecKey::required("start", RANKS, "[the first element of each dimension]"),
            SpecKey::required("size", RANKS, "[the output's shape]"),
            SpecKey::optional("step", RANKS),
        ]
    },
    read: |_, values| {
        let input = shape(values);
        let list = |key, missing| Dims::read(values, key, input.len(), missing);
        let (start, size, step) = (list("start", 0)?, list("size", 1)?, list("step", 1)?);
        Ok(Op::Movement(Movement { input, function: Move::Slice { start, size, step } }))
    },
    of_sizes: |_, sizes| {
        let [input, start, size, step] = Dims::of_sizes(sizes)?;
        Some(Op::Movement(Movement { input, function: Move::Slice { start, size, step } }))
    },
    guilty: |error| match error {
        WorkloadError::Sizes { cause, .. } if cause.starts_with("step") => "step",
        error => guilty(error, "size"),
    },
    ..PERMUTE_KIND
};

/// `tile`.
pub(crate) static TILE: Kind = Kind {
    name: "tile",
    pattern: "{x}-r{x}",
    sizes: &lists::<12>(&[INPUT, Size::new("repeats", "repeats", SizeRole::Repeats)]),
    keys: |_| vec![shape_key(), SpecKey::required("repeats", RANKS, "[how often, for each dimension]")],
    read: |_, values| {
        let input = shape(values);
        let repeats = Dims::read(values, "repeats", input.len(), 1)?;
        Ok(Op::Movement(Movement { input, function: Move::Tile { repeats } }))
    },
    of_sizes: |_, sizes| {
        let [input, repeats] = Dims::of_sizes(sizes)?;
        Some(Op::Movement(Movement { input, function: Move::Tile { repeats } }))
    },
    guilty: |error| guilty(error, "repeats"),
    ..PERMUTE_KIND
};

/// `pad_constant`: with any number.
pub(crate) static PAD_CONSTANT: Kind = Kind {
    name: "pad_constant",
    pattern: "{x}-b{x}-a{x}-v{f}",
    sizes: &{
        let mut all = [Size::new("value", "value", SizeRole::Number); 19];
        let lists = lists::<18>(&[INPUT, BEFORE, AFTER]);
        let mut i = 0;
        while i < lists.len() {
            all[i] = lists[i];
            i += 1;
        }
        all
    },
    keys: |shared| [(PAD.keys)(shared), vec![SpecKey::number("value", Some("-inf"))]].concat(),
    read: |shared, values| {
        let Op::Movement(Movement { input, function: Move::Pad { before, after, .. } }) = (PAD.read)(shared, values)?
        else {
            unreachable!("it reads a padding")
        };
        let outside = Outside::of(values.number("value").expect("it must be there"));
        Ok(Op::Movement(Movement { input, function: Move::Pad { before, after, outside } }))
    },
    of_sizes: |_, sizes| {
        let (value, lists) = sizes.split_last()?;
        let [input, before, after] = Dims::of_sizes(lists)?;
        let outside = Outside::of(Number::of_size(*value)?);
        Some(Op::Movement(Movement { input, function: Move::Pad { before, after, outside } }))
    },
    guilty: |error| guilty(error, "before"),
    ..PERMUTE_KIND
};

/// A kind of padding.
macro_rules! pad {
    ($name:literal, $outside:expr) => {
        Kind {
            name: $name,
            pattern: "{x}-b{x}-a{x}",
            sizes: &lists::<18>(&[INPUT, BEFORE, AFTER]),
            keys: |_| {
                let sides =
                    ["before", "after"].map(|side| SpecKey::required(side, RANKS, "[elements for each dimension]"));
                [vec![shape_key()], sides.to_vec()].concat()
            },
            read: |_, values| {
                let input = shape(values);
                let list = |key| Dims::read(values, key, input.len(), 0);
                let function = Move::Pad { before: list("before")?, after: list("after")?, outside: $outside };
                Ok(Op::Movement(Movement { input, function }))
            },
            of_sizes: |_, sizes| {
                let [input, before, after] = Dims::of_sizes(sizes)?;
                Some(Op::Movement(Movement { input, function: Move::Pad { before, after, outside: $outside } }))
            },
            guilty: |error| guilty(error, "before"),
            ..PERMUTE_KIND
        }
    };
}

/// `pad`: with zeros.
pub(crate) static PAD: Kind = pad!("pad", Outside::Zero);

/// `pad_edge`.
pub(crate) static PAD_EDGE: Kind = pad!("pad_edge", Outside::Edge);

/// `pad_reflect`.
pub(crate) static PAD_REFLECT: Kind = pad!("pad_reflect", Outside::Reflect);

/// A kind of a movement between channels and pixels.
macro_rules! shuffle {
    ($name:literal, $key:literal, $make:path) => {
        Kind {
            name: $name,
            pattern: concat!("{x}-", $key, "{}"),
            sizes: &{
                let mut all = [Size::new($key, $key, SizeRole::Groups); 7];
                let mut i = 0;
                while i < INPUT_LIST.len() {
                    all[i] = INPUT_LIST[i];
                    i += 1;
                }
                all
            },
            keys: |_| vec![SpecKey::required("input", &[4], "[n, c, h, w]"), SpecKey::required($key, &[], "2")],
            read: |_, values| {
                let by = values.get($key).expect("a key that must be there")[0];
                Ok(Op::Movement(Movement { input: shape(values), function: $make(by) }))
            },
            of_sizes: |_, sizes| {
                let (by, input) = sizes.split_last()?;
                let [input] = Dims::of_sizes(input)?;
                Some(Op::Movement(Movement { input, function: $make(*by) }))
            },
            guilty: |error| guilty(error, $key),
            ..PERMUTE_KIND
        }
    };
}

/// `depth_to_space`.
pub(crate) static DEPTH_TO_SPACE: Kind = shuffle!("depth_to_space", "block", Move::DepthToSpace);

/// `pixel_shuffle`.
pub(crate) static PIXEL_SHUFFLE: Kind = shuffle!("pixel_shuffle", "block", Move::PixelShuffle);

/// `space_to_depth`.
pub(crate) static SPACE_TO_DEPTH: Kind = shuffle!("space_to_depth", "block", Move::SpaceToDepth);

/// `pixel_unshuffle`.
pub(crate) static PIXEL_UNSHUFFLE: Kind = shuffle!("pixel_unshuffle", "block", Move::PixelUnshuffle);

/// `channel_shuffle`.
pub(crate) static CHANNEL_SHUFFLE: Kind = shuffle!("channel_shuffle", "groups", Move::ChannelShuffle);

fn shape_key() -> SpecKey {
    SpecKey::required("input", RANKS, "[the input's shape]")
}

/// The shape of the input, whose number of dimensions was checked.
fn shape(values: &Values) -> Dims {
    values.get("input").and_then(Dims::new).expect("a key that must be there has one to six integers")
}

fn guilty(error: &WorkloadError, otherwise: &'static str) -> &'static str {
    match error {
        WorkloadError::NotPositive { size, .. } | WorkloadError::Negative { size, .. } => size,
        WorkloadError::Sizes { .. } => otherwise,
        _ => "input",
    }
}

impl Outside {
    /// Padding with a number.
    pub fn of(value: Number) -> Outside {
        if value.get() == 0.0 { Outside::Zero } else { Outside::Value(value) }
    }

    /// The number that it is, if it is none of the input's.
    pub(super) fn number(self) -> Option<f64> {
        match self {
            Outside::Zero => Some(0.0),
            Outside::Value(value) => Some(value.get()),
            Outside::Edge | Outside::Reflect => None,
        }
    }
}

impl Movement {
    /// The number that a padding has around its input, if it is none of the input's.
    pub(super) fn around(&self) -> Option<f64> {
        match self.function {
            Move::Pad { outside, .. } => outside.number(),
            _ => None,
        }
    }

    /// The shape of the output of a valid movement.
    pub fn output_shape(&self) -> Dims {
        let x = &self.input;
        let four = |c: i64, h: i64, w: i64| Dims::new(&[x[0], c, h, w]);
        let all = match self.function {
            Move::Permute { order } => Dims::new(&order.iter().map(|i| x[*i as usize]).collect::<Vec<_>>()),
            Move::Slice { size, .. } => Some(size),
            Move::Tile { repeats } => {
                Dims::new(&x.iter().zip(repeats.iter()).map(|(x, n)| x.saturating_mul(*n)).collect::<Vec<_>>())
            }
            Move::Pad { before, after, .. } => {
                let along = |(x, sides): (&i64, (&i64, &i64))| x.saturating_add(*sides.0).saturating_add(*sides.1);
                Dims::new(&x.iter().zip(before.iter().zip(after.iter())).map(along).collect::<Vec<_>>())
            }
            Move::DepthToSpace(b) | Move::PixelShuffle(b) => {
                four(x[1] / b / b, x[2].saturating_mul(b), x[3].saturating_mul(b))
            }
            Move::SpaceToDepth(b) | Move::PixelUnshuffle(b) => {
                four(x[1].saturating_mul(b).saturating_mul(b), x[2] / b, x[3] / b)
            }
            Move::ChannelShuffle(_) => Some(*x),
        };
        all.expect("as many dimensions as the input")
    }

    /// The element of the input behind an index of the output, and where there is one, if that is not everywhere.
    fn source(&self, y: &[Expr]) -> (Vec<Expr>, Option<Expr>) {
        let at = |i: usize| y[i].clone();
        let four = |c: Expr, h: Expr, w: Expr| (vec![at(0), c, h, w], None);
        // An index of pixels as that of blocks, and the place in the block.
        let cut = |i: usize, b: i64| (at(i).floor_div(b), at(i).floor_mod(b));
        match self.function {
            Move::Permute { order } => {
                let mut source = vec![Expr::Int(0); y.len()];
                order.iter().zip(y).for_each(|(from, i)| source[*from as usize] = i.clone());
                (source, None)
            }
            Move::Slice { start, step, .. } => ((0..y.len()).map(|i| at(i) * step[i] + start[i]).collect(), None),
            Move::Tile { repeats } => {
                let along = |i: usize| match (self.input[i], repeats[i]) {
                    (1, _) => Expr::Int(0),
                    (_, 1) => at(i),
                    (extent, _) => at(i).floor_mod(extent),
                };
                ((0..y.len()).map(along).collect(), None)
            }
            Move::Pad { before, after, outside } => {
                let mut inside = vec![];
                let along = |i: usize| {
                    let (from, last) = (at(i) - before[i], self.input[i] - 1);
                    match outside {
                        _ if before[i] + after[i] == 0 => at(i),
                        Outside::Zero | Outside::Value(_) => {
                            inside.push(Expr::Int(before[i]).le(at(i)).and(at(i).lt(before[i] + self.input[i])));
                            from
                        }
                        Outside::Edge => from.max(Expr::Int(0)).min(Expr::Int(last)),
                        Outside::Reflect => {
                            let left = from.clone().max(Expr::Int(0) - from);
                            // It is never below 0; the last step says so to who checks bounds.
                            left.clone().min(Expr::Int(2 * last) - left).max(Expr::Int(0)).min(Expr::Int(last))
                        }
                    }
                };
                ((0..y.len()).map(along).collect(), Expr::all(inside))
            }
            Move::DepthToSpace(b) | Move::PixelShuffle(b) => {
                let ((h, i), (w, j)) = (cut(2, b), cut(3, b));
                let c = match self.function {
                    Move::PixelShuffle(_) => (at(1) * b + i) * b + j,
                    _ => (i * b + j) * (self.input[1] / b / b) + at(1),
                };
                four(c, h, w)
            }
            Move::SpaceToDepth(b) | Move::PixelUnshuffle(b) => {
                let (c, place) = match self.function {
                    Move::PixelUnshuffle(_) => cut(1, b * b),
                    _ => (at(1).floor_mod(self.input[1]), at(1).floor_div(self.input[1])),
                };
                four(c, at(2) * b + place.clone().floor_div(b), at(3) * b + place.floor_mod(b))
            }
            Move::ChannelShuffle(groups) => {
                let (j, g) = cut(1, groups);
                four(g * (self.input[1] / groups) + j, at(2), at(3))
            }
        }
    }
}

impl Operator for Movement {
    fn kind(&self) -> &'static Kind {
        match self.function {
            Move::Permute { .. } => &PERMUTE,
            Move::Slice { .. } => &SLICE,
            Move::Tile { .. } => &TILE,
            Move::Pad { outside: Outside::Zero, .. } => &PAD,
            Move::Pad { outside: Outside::Value(_), .. } => &PAD_CONSTANT,
            Move::Pad { outside: Outside::Edge, .. } => &PAD_EDGE,
            Move::Pad { outside: Outside::Reflect, .. } => &PAD_REFLECT,
            Move::DepthToSpace(_) => &DEPTH_TO_SPACE,
            Move::PixelShuffle(_) => &PIXEL_SHUFFLE,
            Move::SpaceToDepth(_) => &SPACE_TO_DEPTH,
            Move::PixelUnshuffle(_) => &PIXEL_UNSHUFFLE,
            Move::ChannelShuffle(_) => &CHANNEL_SHUFFLE,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        let lists = match self.function {
            Move::Pad { before, after, outside: Outside::Value(value) } => {
                let lists: Vec<i64> = [self.input, before, after].iter().flat_map(Dims::sizes).collect();
                return [lists, vec![value.to_size()]].concat();
            }
            Move::Permute { order } => vec![order],
            Move::Slice { start, size, step } => vec![start, size, step],
            Move::Tile { repeats } => vec![repeats],
            Move::Pad { before, after, .. } => vec![before, after],
            Move::DepthToSpace(by)
            | Move::PixelShuffle(by)
            | Move::SpaceToDepth(by)
            | Move::PixelUnshuffle(by)
            | Move::ChannelShuffle(by) => return [&self.input.sizes()[..], &[by]].concat(),
        };
        [self.input].iter().chain(&lists).flat_map(Dims::sizes).collect()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        let refuse = |cause: String, help| Err(WorkloadError::Sizes { cause, help });
        let x = &self.input;
        let ranks = |lists: &[&Dims]| lists.iter().all(|list| list.len() == x.len());
        let rank = x.len();
        match self.function {
            Move::Permute { order } => {
                let mut sorted = order.to_vec();
                sorted.sort_unstable();
                if !sorted.into_iter().eq(0..rank as i64) {
                    return refuse(
                        format!("`order` is {order:?}, and `input` has {rank} dimensions"),
                        "each dimension of `input` must stand in it once, counted from 0",
                    );
                }
            }
            Move::Slice { start, size, step } => {
                let help = "start + (size - 1) * step must be an index of `input` along each dimension";
                if !ranks(&[&start, &size, &step]) {
                    return refuse("the lists of a slice differ in length".into(), help);
                }
                let last = |i: usize| (size[i] - 1).saturating_mul(step[i]).saturating_add(start[i]);
                let beside = |i: usize| [last(i), start[i]].into_iter().find(|at| !(0..x[i]).contains(at));
                if let Some((i, at)) = (0..rank).find_map(|i| Some((i, beside(i)?))) {
                    let cause = format!("the slice reads element {at} of the {} along dimension {i}", x[i]);
                    return refuse(cause, help);
                }
            }
            Move::Tile { repeats } if !ranks(&[&repeats]) => {
                return refuse(
                    "the repeats differ in number from the dimensions".into(),
                    "write one for each dimension",
                );
            }
            Move::Tile { .. } => {}
            Move::Pad { before, after, outside } => {
                let help = "a reflection has fewer elements than the input along each dimension";
                if !ranks(&[&before, &after]) {
                    return refuse("the lists of a padding differ in length".into(), "each has one number a dimension");
                }
                let reflected = |i: &usize| outside == Outside::Reflect && before[*i].max(after[*i]) >= x[*i];
                if let Some(i) = (0..rank).find(reflected) {
                    let most = before[i].max(after[i]);
                    return refuse(format!("{most} elements reflect the {} along dimension {i}", x[i]), help);
                }
            }
            Move::DepthToSpace(by)
            | Move::PixelShuffle(by)
            | Move::SpaceToDepth(by)
            | Move::PixelUnshuffle(by)
            | Move::ChannelShuffle(by) => {
                if rank != 4 {
                    return refuse(format!("the input has {rank} dimensions"), "write [n, c, h, w]");
                }
                let (divided, help) = match self.function {
                    Move::DepthToSpace(_) | Move::PixelShuffle(_) => {
                        (x[1] % by.saturating_mul(by) == 0, "the square of the block must divide the channels")
                    }
                    Move::ChannelShuffle(_) => (x[1] % by == 0, "the groups must divide the channels"),
                    _ => (x[2] % by == 0 && x[3] % by == 0, "the block must divide height and width"),
                };
                if !divided {
                    return refuse(format!("{by} does not cut an input of {x:?}"), help);
                }
            }
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.input.to_vec())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_shape().axes())
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Moves
    }

    fn of_i32(&self) -> OfI32 {
        OfI32::Moves
    }

    fn terms(&self) -> i64 {
        1
    }

    /// An element that is moved counts as one operation, so that what is faster has a higher rate here too.
    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let value = |index: &[Expr]| {
            let (source, inside) = self.source(index);
            let x = Expr::load(input(0), source);
            let outside = self.around().unwrap_or(0.0);
            let outside = match sums.is_int() {
                true => Expr::Int(outside as i64).cast(DType::I32),
                false => Expr::Float(outside, sums.compute()),
            };
            inside.map_or(x.clone(), |inside| inside.select(x, outside))
        };
        vec![self.output_shape().stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::moved(self, inputs[0])
    }
}
