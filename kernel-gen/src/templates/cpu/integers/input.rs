//! Inputs in words, with their padding around them.

use super::problem::{Channels, Problem, Unfolded, Words};
use crate::integer::ceil_div;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BinOp, BufferId, DType, Expr, LoopKind, Scope, UnOp};
use crate::workload::operands::Operands;
use crate::workload::{Role, Workload};

/// An `i32`.
pub(super) fn int(value: i64) -> Expr {
    Expr::Int(value).cast(DType::I32)
}

/// Integers as a word, the first in its lowest bits.
pub(super) fn word(dtype: DType, mut integers: Vec<Expr>) -> Expr {
    let last = integers.pop().expect("a word of several").cast(dtype);
    integers.into_iter().rev().fold(last, |word, integer| Expr::bin(BinOp::Push, word, integer))
}

/// The parameters of a kernel: an input of this shape, in words if it has whole ones, weights packed in words of this shape, outputs with
/// all pixels in one row.
pub(super) fn operands(b: &mut KernelBuilder, w: &Workload, p: &Problem, x: &[i64], weights: &[i64]) -> Operands {
    Operands::typed(b, w, |param| match param.role {
        Role::Input if p.has_words() => (param.dtype.word().expect("an input of bytes"), x.to_vec()),
        Role::Input => (param.dtype, x.to_vec()),
        Role::Weight => (p.word_types()[1], weights.to_vec()),
        Role::Output | Role::Residual => (param.dtype, p.y_shape()),
        _ => (param.dtype, param.shape.clone()),
    })
}

/// The input of a problem.
pub(super) struct Input<'a> {
    pub(super) p: &'a Problem,
    pub(super) params: &'a Operands,
    /// Lanes of a vector.
    pub(super) lanes: i64,
}

impl Input<'_> {
    /// What stands for 0 among the inputs that are multiplied; none where it is 0.
    pub(super) fn zero(&self) -> Option<Expr> {
        let zero = self.p.input_zero.then(|| Expr::load(self.params.get("input_zero"), vec![Expr::Int(0)]));
        match (zero, self.p.input_offset()) {
            (zero, 0) => zero,
            (Some(zero), offset) => Some(zero + int(offset)),
            (None, offset) => Some(int(offset)),
        }
    }

    /// An element of the input, of the type that is multiplied.
    fn element(&self, index: Vec<Expr>) -> Expr {
        let value = Expr::load(self.params.at(0), index);
        if self.p.input_offset() == 0 { value } else { value + int(self.p.input_offset()) }
    }

    /// Visits `count` neighbours in vectors, and those of the last, which may have fewer lanes, one by one: which neighbour, and which
    /// lane it is.
    pub(super) fn each_vector_of_row(
        &self,
        b: &mut KernelBuilder,
        count: i64,
        body: impl Fn(&mut KernelBuilder, Expr, Expr),
    ) {
        let lanes = self.lanes;
        let (whole, rest) = (count / lanes, count % lanes);
        if whole > 0 {
            b.for_("vector", whole, |b, vector| {
                b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| body(b, vector * lanes + lane, lane.into()));
            });
        }
        if rest > 0 {
            b.loop_("rest", rest, LoopKind::Unrolled, |b, lane| body(b, Expr::Int(whole * lanes) + lane, lane.into()));
        }
    }

    /// Brings the input into words, with its padding around it; those of an image in one dimension if `flat` says so, where channels are
    /// neighbours.
    pub(super) fn pack(&self, b: &mut KernelBuilder, flat: bool) -> BufferId {
        let p = self.p;
        let [words, _] = p.word_types();
        let shape = if flat { p.flat_shape() } else { p.packed_shape() };
        let packed = b.alloc("x_words", words, &shape, Scope::Global);
        let [rows, columns] = p.padded();
        let [top, left, bottom, right] = p.padding;
        let zero = self.zero().unwrap_or(int(0));
        let outside = || word(words, vec![zero.clone(); p.of_word() as usize]);
        b.loop_("packed_row", p.n * rows, LoopKind::Parallel, |b, row| {
            let image = Expr::from(b.let_("image", Expr::from(row).floor_div(rows)));
            let ih = Expr::from(b.let_("padded_row", Expr::from(row).floor_mod(rows)));
            let at = |column: Expr, word: Expr| match p.x {
                Channels::First => vec![image.clone(), ih.clone(), word, column],
                Channels::Last if flat => vec![image.clone(), (ih.clone() * columns + column) * p.all_words() + word],
                Channels::Last => vec![image.clone(), ih.clone(), column, word],
            };
            let fill = |b: &mut KernelBuilder, first: i64, count: i64| match p.x {
                Channels::First => b.for_("word", p.all_words(), |b, word| {
                    self.each_vector_of_row(b, count, |b, c, _| b.store(packed, at(c + first, word.into()), outside()));
                }),
                Channels::Last => b.for_("column", count, |b, c| {
                    self.each_vector_of_row(b, p.all_words(), |b, word, _| {
                        b.store(packed, at(c + first, word), outside());
                    });
                }),
            };
            let inside = |b: &mut KernelBuilder| {
                for (first, count) in [(0, left), (columns - right, right)].into_iter().filter(|(_, count)| *count > 0)
                {
                    fill(b, first, count);
                }
                let source = ih.clone() - top;
                self.pack_row(b, &|column, word| at(column + left, word), packed, &image, &source);
            };
            let conditions =
                [(top > 0).then(|| Expr::Int(top).le(ih.clone())), (bottom > 0).then(|| ih.clone().lt(rows - bottom))];
            match Expr::all(conditions.into_iter().flatten()) {
                Some(condition) => b.if_else(condition, inside, |b| fill(b, 0, columns)),
                None => inside(b),
            }
        });
        packed
    }

    /// The words of a row of the input whose columns become channels.
    fn unfold_row(
        &self,
        b: &mut KernelBuilder,
        of: Unfolded,
        at: &dyn Fn(Expr, Expr) -> Vec<Expr>,
        packed: BufferId,
        [image, row]: [&Expr; 2],
    ) {
        let p = self.p;
        let outside = self.zero().unwrap_or(int(0));
        // Outputs all of whose columns are inside.
        let columns = p.ci / of.ci;
        let first = ceil_div(of.left, of.stride).min(p.w);
        let last = ((of.w - columns + of.left).div_euclid(of.stride) + 1).clamp(first, p.w);
        for (begin, end, inside) in [(0, first, false), (first, last, true), (last, p.w, false)] {
            if begin == end {
                continue;
            }
            b.for_("column", end - begin, |b, column| {
                let output = column + begin;
                for word_number in 0..p.words() {
                    let integer = |i: i64| {
                        let number = word_number * p.of_word() + i;
                        if number >= p.ci {
                            return outside.clone();
                        }
                        let from = output.clone() * of.stride + (number / of.ci - of.left);
                        let index = vec![image.clone(), row.clone(), from.clone(), Expr::Int(number % of.ci)];
                        let value = self.element(index);
                        match inside {
                            true => value,
                            false => KernelBuilder::between(&from, 0, of.w).select(value, outside.clone()),
                        }
                    };
                    let value = word(p.word_types()[0], (0..p.of_word()).map(integer).collect());
                    b.store(packed, at(output.clone(), Expr::Int(word_number)), value);
                }
            });
        }
    }

    /// The words of a row of the input.
    fn pack_row(
        &self,
        b: &mut KernelBuilder,
        at: &dyn Fn(Expr, Expr) -> Vec<Expr>,
        packed: BufferId,
        image: &Expr,
        row: &Expr,
    ) {
        let (p, x) = (self.p, self.params.at(0));
        if let Some(of) = p.unfolded {
            return self.unfold_row(b, of, at, packed, [image, row]);
        }
        if p.has_words() {
            return b.for_("column", p.w, |b, column| {
                let read = |word: &Expr| Expr::load(x, vec![image.clone(), row.clone(), column.into(), word.clone()]);
                match p.words {
                    Words::Bytes(_) => self.each_vector_of_row(b, p.all_words(), |b, word, _| {
                        let value = read(&word);
                        let value = if p.input_offset() == 0 { value } else { Expr::un(UnOp::Flip, value) };
                        b.store(packed, at(column.into(), word), value);
                    }),
                    Words::Pairs => b.for_("group", p.groups, |b, group| {
                        let of_group = p.ci / 4;
                        self.each_vector_of_row(b, of_group, |b, word, _| {
                            let value = read(&(group * of_group + word.clone()));
                            let to = group * p.words() + word;
                            b.store(packed, at(column.into(), to.clone()), Expr::un(UnOp::Even, value.clone()));
                            b.store(packed, at(column.into(), to + of_group), Expr::un(UnOp::Odd, value));
                        });
                    }),
                }
            });
        }
        // Channels beyond the last of a group meet weights that are 0. As outside of the input they stand for 0, so that a sum of
        // inputs has as many of them everywhere.
        let beyond = self.zero().unwrap_or(int(0));
        let byte = |channel: Expr, column: &Expr| {
            let index = match p.x {
                Channels::First => vec![image.clone(), channel, row.clone(), column.clone()],
                Channels::Last => vec![image.clone(), row.clone(), column.clone(), channel],
            };
            self.element(index)
        };
        let words = |first: Expr, count: i64, column: &Expr| {
            let integer = |i: i64| if i < count { byte(first.clone() + i, column) } else { beyond.clone() };
            word(p.word_types()[0], (0..p.of_word()).map(integer).collect())
        };
        let (whole, rest) = (p.ci / p.of_word(), p.ci % p.of_word());
        let store = |b: &mut KernelBuilder, group: &Expr, q: Expr, count: i64| {
            let (first, q) = (group.clone() * p.ci + q.clone() * p.of_word(), group.clone() * p.words() + q);
            match p.x {
                Channels::First => self.each_vector_of_row(b, p.w, |b, column, _| {
                    let value = words(first.clone(), count, &column);
                    b.store(packed, at(column, q.clone()), value);
                }),
                Channels::Last => b.for_("column", p.w, |b, column| {
                    b.store(packed, at(column.into(), q.clone()), words(first.clone(), count, &column.into()));
                }),
            }
        };
        b.for_("group", p.groups, |b, group| {
            if whole > 0 {
                b.for_("word", whole, |b, q| store(b, &group.into(), q.into(), p.of_word()));
            }
            if rest > 0 {
                store(b, &group.into(), Expr::Int(whole), rest);
            }
        });
    }
}
