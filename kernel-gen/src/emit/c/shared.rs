//! What a run of statements shares: named addresses, and windows that loads of every other element are picked from.

use super::Isa;
use super::types::Vector;
use crate::ir::{BufferId, Expr};

/// A named address: `name` points to the element at `offset + constant`.
#[derive(Clone, Debug)]
pub(super) struct Pointer {
    pub(super) buffer: BufferId,
    pub(super) offset: Expr,
    pub(super) constant: i64,
    pub(super) name: String,
    /// Where its declaration starts and ends in the text.
    pub(super) declared: (usize, usize),
}

/// A load: lane `i` is element `at + stride i` behind `base`, for lanes `low..high`. The other lanes below `len` are zero,
/// and what they stand for is not touched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tap {
    pub(super) buffer: BufferId,
    pub(super) vector: Vector,
    /// The text of the address that the elements are counted from.
    pub(super) base: String,
    pub(super) at: i64,
    /// 1 or 2; windows are for 2.
    pub(super) stride: i64,
    pub(super) low: i64,
    pub(super) high: i64,
    pub(super) len: i64,
    /// What must hold for its memory to be there, as a text.
    pub(super) given: Option<String>,
}

impl Tap {
    /// The first element that is touched, and the one behind the last.
    fn touched(&self) -> (i64, i64) {
        (self.at + self.stride * self.low, self.at + self.stride * (self.high - 1) + 1)
    }
}

/// Taps that are picked out of one run of memory, and the names of the registers that hold it, once they are loaded.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) taps: Vec<Tap>,
    pub(super) registers: Vec<String>,
}

impl Window {
    /// The first element.
    pub(super) fn at(&self) -> i64 {
        self.taps[0].at
    }

    /// What all taps touch, as one range.
    pub(super) fn touched(taps: &[Tap]) -> (i64, i64) {
        let of = |f: fn((i64, i64)) -> i64| taps.iter().map(move |t| f(t.touched()));
        (of(|t| t.0).min().unwrap_or(0), of(|t| t.1).max().unwrap_or(0))
    }

    /// Takes the tap in if all lanes of all taps are right then: elements that no tap touches become zero.
    pub(super) fn take(&mut self, tap: &Tap, isa: Isa) -> bool {
        let (first, size) = (&self.taps[0], 2 * tap.vector.width as i64);
        if (first.buffer, first.vector, &first.base, &first.given) != (tap.buffer, tap.vector, &tap.base, &tap.given) {
            return false;
        }
        // Only AVX-512 picks any lanes of two registers in one instruction; others pick even or odd ones.
        if isa != Isa::X86_64V4 && tap.at - first.at > 1 {
            return false;
        }
        let taps = [&self.taps[..], std::slice::from_ref(tap)].concat();
        let (from, to) = Window::touched(&taps);
        let fits = |element: i64| element - first.at < size;
        let is_zero = |element: i64| fits(element) && !(from..to).contains(&element);
        let right = |t: &Tap| {
            (0..t.len).all(|lane| {
                let element = t.at + t.stride * lane;
                if (t.low..t.high).contains(&lane) { fits(element) } else { is_zero(element) }
            })
        };
        let all = taps.iter().all(right);
        if all {
            self.taps = taps;
        }
        all
    }
}

/// What is known of the run of statements that is being emitted.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Where taps are noted while a run is looked at.
    pub(super) noted: Option<Vec<Tap>>,
    pub(super) windows: Vec<Window>,
}
