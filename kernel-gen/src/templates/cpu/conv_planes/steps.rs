//! How outputs of a convolution over planes meet its input, along one dimension.
//!
//! Output `c` of a phase reads, for each tap, place `c + shift` of a *slot*. Without a stride the slot is the input itself. With one it
//! holds every `stride`-th pixel of the input, so that neighbouring outputs read neighbouring places.

use crate::integer::{ceil_div, gcd};
use crate::ir::Expr;
use crate::templates::phases::{Class, Dimension, Form};

/// A dimension of pixels, seen from its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Steps {
    pub(super) of: Dimension,
    /// Input pixels from place to place of a slot, and from slot to slot; and the one of the first place of the first slot.
    stride: i64,
    apart: i64,
    origin: i64,
    slots: i64,
    /// The least and the largest shift.
    pub(super) shifts: [i64; 2],
    /// Whether each tap has a slot of its own, so that nothing is shifted.
    expanded: bool,
}

impl Steps {
    pub(super) fn of(of: Dimension) -> Steps {
        let stride = of.step();
        if of.form == Form::Convolution {
            let apart = if of.taps == 1 { stride } else { gcd(stride, of.dilation) };
            let shifts = [0, of.taps - 1].map(|tap| (tap * of.dilation - of.before).div_euclid(stride));
            let origin = (-of.before).rem_euclid(apart);
            return Steps { of, stride, apart, origin, slots: stride / apart, shifts, expanded: false };
        }
        // What interval arithmetic finds for a phase and its taps, so that it also proves every access.
        let first = if of.dilation == 1 { 0 } else { (of.tap_stride() - 1) * of.dilation };
        let least = (of.before - first).div_euclid(of.stride) + (of.most_taps() - 1) * of.tap_step();
        let shifts = [least, (of.before + of.stride - 1).div_euclid(of.stride)];
        Steps { of, stride, apart: 1, origin: 0, slots: 1, shifts, expanded: false }
    }

    /// The same with a slot for each tap, or, of a transposed convolution, for each shift. A slot has what outputs meet, and nothing
    /// else.
    pub(super) fn expanded(of: Dimension) -> Steps {
        let steps = Steps::of(of);
        let (apart, origin, slots) = match of.form {
            Form::Convolution => (of.dilation, -of.before, of.taps),
            _ => (1, steps.shifts[0], steps.shifts[1] - steps.shifts[0] + 1),
        };
        Steps { apart, origin, slots, shifts: [0, 0], expanded: true, ..steps }
    }

    /// Outputs of a phase.
    pub(super) fn columns(&self) -> i64 {
        self.of.columns()
    }

    pub(super) fn slots(&self) -> i64 {
        self.slots
    }

    /// Zeros in front of a row of a slot that holds all columns.
    pub(super) fn front(&self) -> i64 {
        (-self.shifts[0]).max(0)
    }

    /// The least length of such a row with which rows may follow one another: what lies behind a row's last pixel is the front of
    /// the next row.
    pub(super) fn pitch(&self) -> i64 {
        let reached = self.columns().saturating_add(self.shifts[1]).max(1);
        if self.expanded {
            return reached;
        }
        let pixels = ceil_div(self.of.input - self.origin.min(self.of.input), self.stride);
        reached.max(pixels.min(reached) + self.front())
    }

    /// The input pixel of a place.
    pub(super) fn pixel(&self, slot: &Expr, place: Expr) -> Expr {
        place * self.stride + slot.clone() * self.apart + self.origin
    }

    /// Whether outputs lie where they meet the input, in the same order.
    pub(super) fn is_same(&self) -> bool {
        self.slots == 1
            && self.stride == 1
            && self.shifts == [0, 0]
            && self.columns() == self.of.input
            && self.origin == 0
    }

    /// What the outputs of a phase have in common.
    pub(super) fn class(&self, phase: &Expr) -> Class {
        let class = self.of.class(phase);
        if self.of.form == Form::Convolution || self.of.dilation > 1 {
            return class;
        }
        // The same number without the first tap, which intervals take for independent of it.
        Class { start: (phase.clone() + self.of.before).floor_div(self.of.stride), ..class }
    }

    /// The slot and the shift of a tap of a phase.
    pub(super) fn meets(&self, class: &Class, tap: &Expr) -> [Expr; 2] {
        if self.of.form != Form::Convolution {
            let shift = class.start.clone() + tap.clone() * self.of.tap_step();
            return if self.expanded { [shift - self.origin, 0.into()] } else { [0.into(), shift] };
        }
        if self.expanded {
            return [tap.clone(), 0.into()];
        }
        let place = tap.clone() * self.of.dilation - self.of.before;
        let slot = if self.slots == 1 { 0.into() } else { place.clone().floor_mod(self.stride).floor_div(self.apart) };
        [slot, place.floor_div(self.stride)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::range::Ranges;
    use crate::analysis::simplify::simplify;

    fn number(e: Expr) -> i64 {
        simplify(&e, &Ranges::default()).as_int().expect("a number")
    }

    #[test]
    fn slots_and_shifts_lead_to_the_pixel_that_a_tap_meets() {
        for (taps, stride, dilation, before) in
            [(3, 1, 1, 1), (3, 2, 1, 1), (1, 3, 1, 0), (1, 2, 1, 1), (4, 2, 2, 3), (3, 6, 4, 1), (2, 3, 1, 7)]
        {
            let d = Dimension { input: 40, output: 12, taps, stride, dilation, before, form: Form::Convolution };
            for steps in [Steps::of(d), Steps::expanded(d)] {
                let class = steps.class(&0.into());
                for (tap, column) in (0..taps).flat_map(|tap| (0..12).map(move |column| (tap, column))) {
                    let [slot, shift] = steps.meets(&class, &tap.into()).map(number);
                    assert!((0..steps.slots()).contains(&slot), "{steps:?}, tap {tap}");
                    assert!((steps.shifts[0]..=steps.shifts[1]).contains(&shift), "{steps:?}, tap {tap}");
                    let pixel = number(steps.pixel(&slot.into(), (column + shift).into()));
                    assert_eq!(pixel, column * stride + tap * dilation - before, "{steps:?}, tap {tap}");
                }
            }
        }
    }

    #[test]
    fn taps_of_phases_lead_to_the_pixels_that_reach_the_output() {
        for (taps, stride, dilation, before) in
            [(4, 2, 1, 1), (3, 2, 1, 1), (2, 2, 1, 0), (2, 5, 1, 3), (3, 4, 2, 1), (5, 3, 2, 4)]
        {
            let d = Dimension { input: 9, output: 40, taps, stride, dilation, before, form: Form::Phases };
            for (steps, phase) in
                [Steps::of(d), Steps::expanded(d)].into_iter().flat_map(|s| (0..stride).map(move |p| (s, p)))
            {
                let class = steps.class(&phase.into());
                let [first, count] = [class.first.clone(), class.count.clone()].map(number);
                for t in 0..count {
                    let [slot, shift] = steps.meets(&class, &t.into()).map(number);
                    let tap = first + t * d.tap_stride();
                    let pixel = number(steps.pixel(&slot.into(), shift.into()));
                    assert_eq!(pixel * stride + tap * dilation - before, phase, "{steps:?}, phase {phase}, tap {tap}");
                    assert!((0..steps.slots()).contains(&slot), "{steps:?}, phase {phase}");
                    assert!((steps.shifts[0]..=steps.shifts[1]).contains(&shift), "{steps:?}, phase {phase}");
                }
            }
        }
    }
}
