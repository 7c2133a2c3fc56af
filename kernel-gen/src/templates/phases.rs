//! A dimension of pixels of a convolution over planes: which places of the input the outputs meet.
//!
//! Of a transposed convolution, outputs that are a stride apart are a *phase*: they meet the same taps.

use crate::integer::{ceil_div, gcd};
use crate::ir::Expr;

/// What the outputs of a product are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Those of a convolution.
    Convolution,
    /// Those of a transposed convolution that are a stride apart.
    Phases,
    /// For each input pixel those that its taps meet, and nobody else's.
    Scattered,
}

/// A dimension of pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dimension {
    pub(super) input: i64,
    pub(super) output: i64,
    pub(super) taps: i64,
    pub(super) stride: i64,
    pub(super) dilation: i64,
    /// Pixels of padding before the input; of a transposed convolution, pixels that its output lacks there.
    pub(super) before: i64,
    pub(super) form: Form,
}

/// What the outputs of a phase have in common.
pub(super) struct Class {
    /// What the first tap adds to a column's place in the input.
    pub(super) start: Expr,
    /// The first tap.
    pub(super) first: Expr,
    /// How many taps there are.
    pub(super) count: Expr,
}

impl Dimension {
    pub(super) const ABSENT: Dimension =
        Dimension { input: 1, output: 1, taps: 1, stride: 1, dilation: 1, before: 0, form: Form::Convolution };

    pub(super) fn phases(&self) -> i64 {
        if self.form == Form::Phases { self.stride } else { 1 }
    }

    /// Columns of a product.
    pub(super) fn columns(&self) -> i64 {
        match self.form {
            Form::Scattered => self.input,
            _ => ceil_div(self.output, self.phases()),
        }
    }

    /// Pixels of the input from column to column.
    pub(super) fn step(&self) -> i64 {
        if self.form == Form::Convolution { self.stride } else { 1 }
    }

    /// The stride and the dilation without what they have in common: taps of a phase are so many apart, and so many pixels of the
    /// input.
    fn apart(&self) -> [i64; 2] {
        let common = gcd(self.stride, self.dilation);
        [self.stride / common, self.dilation / common]
    }

    /// Pixels of the input from one tap of a product to the next.
    pub(super) fn tap_step(&self) -> i64 {
        match self.form {
            Form::Convolution => self.dilation,
            Form::Phases => -self.apart()[1],
            Form::Scattered => 0,
        }
    }

    /// Taps of the kernel from one tap of a product to the next.
    pub(super) fn tap_stride(&self) -> i64 {
        if self.form == Form::Phases { self.apart()[0] } else { 1 }
    }

    /// Taps that a phase has at most: the reduction has room for as many of each.
    pub(super) fn most_taps(&self) -> i64 {
        match self.form {
            Form::Convolution => self.taps,
            Form::Phases => ceil_div(self.taps, self.apart()[0]),
            Form::Scattered => 1,
        }
    }

    /// The class of a phase. With `q = p + before` the first of its outputs meets tap `k` in the input's pixel
    /// `(q - k * dilation) / stride`, if that is whole: if `q` and `k * dilation` are the same modulo the stride. There is such a
    /// tap where the common divisor divides `q`, and then the inverse of the dilation finds the first.
    pub(super) fn class(&self, phase: &Expr) -> Class {
        if self.form != Form::Phases {
            let start = if self.form == Form::Convolution { -self.before } else { 0 };
            return Class { start: start.into(), first: 0.into(), count: self.most_taps().into() };
        }
        let (apart, common) = (self.apart()[0], gcd(self.stride, self.dilation));
        let place = phase.clone() + self.before;
        let rest = place.clone().floor_mod(self.stride);
        let first = (rest.clone().floor_div(common) * self.inverse()).floor_mod(apart);
        let start = (place - first.clone() * self.dilation).floor_div(self.stride);
        let count = (Expr::Int(self.taps + apart - 1) - first.clone()).floor_div(apart);
        let count = match common {
            1 => count,
            _ => rest.floor_mod(common).eq(0).select(count, Expr::Int(0)),
        };
        Class { start, first, count }
    }

    /// How many taps the outputs of a phase meet, whether in the input or beside it: [`class`](Dimension::class) in numbers.
    pub(super) fn met(&self, phase: i64) -> i64 {
        let (apart, common) = (self.apart()[0], gcd(self.stride, self.dilation));
        let rest = (phase + self.before) % self.stride;
        match self.form {
            Form::Phases if rest % common != 0 => 0,
            Form::Phases => (self.taps + apart - 1 - (rest / common * self.inverse()) % apart) / apart,
            _ => self.most_taps(),
        }
    }

    /// The inverse of the dilation modulo the stride, both without their common divisor.
    fn inverse(&self) -> i64 {
        let [apart, dilated] = self.apart();
        (0..apart).find(|n| n * (dilated % apart) % apart == 1 % apart).unwrap_or(0)
    }

    /// Whether some phase has fewer taps than there is room for.
    pub(super) fn has_fewer(&self) -> bool {
        self.form == Form::Phases && (gcd(self.stride, self.dilation) > 1 || self.taps % self.apart()[0] != 0)
    }

    /// Whether some phase has no tap at all.
    pub(super) fn has_none(&self) -> bool {
        self.form == Form::Phases && (gcd(self.stride, self.dilation) > 1 || self.taps < self.apart()[0])
    }

    /// Whether a tap of an output may lie beside the input.
    pub(super) fn may_miss(&self) -> bool {
        match self.form {
            Form::Convolution => {
                let last = (self.output - 1) * self.stride + (self.taps - 1) * self.dilation - self.before;
                self.before > 0 || last >= self.input
            }
            Form::Phases => true,
            Form::Scattered => false,
        }
    }

    /// Whether outputs are places in the input.
    pub(super) fn is_same(&self) -> bool {
        let one = self.most_taps() == 1 && self.phases() == 1 && self.step() == 1;
        one && self.columns() == self.input && (self.form == Form::Scattered || self.before == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::range::Ranges;
    use crate::analysis::simplify::simplify;

    #[test]
    fn phases_meet_the_taps_that_reach_their_outputs() {
        for (taps, stride, dilation, before) in
            [(4, 2, 1, 1), (3, 2, 1, 1), (2, 5, 1, 3), (3, 4, 2, 1), (5, 3, 2, 4), (2, 1, 3, 0)]
        {
            let d = Dimension { input: 9, output: 40, taps, stride, dilation, before, form: Form::Phases };
            for phase in 0..stride {
                let Class { start, first, count } = d.class(&phase.into());
                let [start, first, count] =
                    [start, first, count].map(|e| simplify(&e, &Ranges::default()).as_int().expect("a number"));
                // The taps that meet the input in whole pixels, and these of the phase's first output.
                let meets = |tap: i64| (phase + before - tap * dilation).rem_euclid(stride) == 0;
                let wanted: Vec<[i64; 2]> = (0..taps)
                    .filter(|tap| meets(*tap))
                    .map(|tap| [tap, (phase + before - tap * dilation).div_euclid(stride)])
                    .collect();
                let found: Vec<[i64; 2]> =
                    (0..count).map(|t| [first + t * d.tap_stride(), start + t * d.tap_step()]).collect();
                assert_eq!(found, wanted, "{d:?}, phase {phase}");
                assert_eq!(d.met(phase), count, "{d:?}, phase {phase}");
                assert!(count <= d.most_taps() && (count == d.most_taps() || d.has_fewer()), "{d:?}, phase {phase}");
                assert!(count > 0 || d.has_none(), "{d:?}, phase {phase}");
            }
        }
    }
}
