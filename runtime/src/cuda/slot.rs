//! Where a context keeps what it has loaded, found without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A program's number in all contexts, given when it is first used. Generated code has one static for each program.
#[derive(Debug)]
pub struct Slot(AtomicU32);

/// The number that the next program gets. Numbers start at 1: 0 says that there is none yet.
static NEXT: AtomicU32 = AtomicU32::new(1);

impl Slot {
    /// A slot without a number.
    #[allow(clippy::new_without_default, reason = "every slot is a static of its own")]
    pub const fn new() -> Slot {
        Slot(AtomicU32::new(0))
    }

    fn number(&self) -> u32 {
        match self.0.load(Ordering::Relaxed) {
            0 => self.give_number(),
            number => number,
        }
    }

    #[cold]
    fn give_number(&self) -> u32 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Another thread may have been faster; the number that it gave stays, and this one is never used.
        match self.0.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => number,
            Err(given) => given,
        }
    }
}

/// Values by slot. It grows and never moves what it holds: chunk `k` has twice the places of chunk `k - 1`.
pub(super) struct SlotMap<T> {
    chunks: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
}

const CHUNKS: usize = 24;
/// Places of the first chunk.
const FIRST: u32 = 32;

impl<T> SlotMap<T> {
    pub(super) fn new() -> SlotMap<T> {
        SlotMap { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Chunk and place of a number.
    fn place(number: u32) -> (usize, usize) {
        let shifted = number - 1 + FIRST;
        let chunk = shifted.ilog2() - FIRST.ilog2();
        (chunk as usize, (shifted - (FIRST << chunk)) as usize)
    }

    /// What was put into the slot.
    #[inline]
    pub(super) fn get(&self, slot: &Slot) -> Option<&T> {
        let (chunk, place) = Self::place(slot.number());
        self.chunks[chunk].get()?[place].get()
    }

    /// Puts something into the slot; if something is there already, that stays.
    pub(super) fn put(&self, slot: &Slot, value: T) -> &T {
        let (chunk, place) = Self::place(slot.number());
        let chunk = self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| OnceLock::new()).collect());
        chunk[place].get_or_init(|| value)
    }

    /// Everything that was put.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for number in 1..2000 {
            assert_eq!(SlotMap::<()>::place(number), expected);
            expected.1 += 1;
            if expected.1 == (FIRST << expected.0) as usize {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn values_stay_where_they_are_put() {
        let slots: Vec<Slot> = (0..200).map(|_| Slot::new()).collect();
        let map = SlotMap::new();
        assert!(slots.iter().all(|s| map.get(s).is_none()));
        let first: *const usize = map.put(&slots[0], 0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for (i, slot) in slots.iter().enumerate() {
                        assert_eq!(*map.put(slot, i), i);
                    }
                });
            }
        });
        assert!(slots.iter().enumerate().all(|(i, s)| map.get(s) == Some(&i)));
        assert!(std::ptr::eq(first, map.get(&slots[0]).unwrap()));
    }
}
