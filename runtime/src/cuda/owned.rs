//! Memory that one owner uses and any number of graphs keep.

use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A value that its owner uses as a `Box`, and that claims keep alive.
///
/// A graph refers to memory by address, so it holds a [`Claim`] on all memory that it uses. The owner may be dropped, replaced or
/// moved to another thread then: the memory is freed with the last of owner and claims.
pub(super) struct Owned<D>(Arc<Place<D>>);

/// Keeps the value of an [`Owned`], and can do nothing else with it.
pub(super) type Claim = Arc<dyn Any + Send + Sync>;

struct Place<D>(UnsafeCell<D>);

// SAFETY: only the one `Owned` of a place gives out references, by the rules of a `Box`; so `&Owned` needs `D: Sync`, and
// moving the `Owned`, or dropping the last claim on another thread, `D: Send`.
unsafe impl<D: Send + Sync> Sync for Place<D> {}

impl<D> Owned<D> {
    pub(super) fn new(value: D) -> Owned<D> {
        Owned(Arc::new(Place(UnsafeCell::new(value))))
    }

    #[inline]
    pub(super) fn get(&self) -> &D {
        // SAFETY: a place has one `Owned`, which is not `Clone`: nobody has a mutable reference while `self` is borrowed.
        unsafe { &*self.0.0.get() }
    }

    #[inline]
    pub(super) fn get_mut(&mut self) -> &mut D {
        // SAFETY: as above, nobody else has a reference: claims give out none.
        unsafe { &mut *self.0.0.get() }
    }

    /// The value to write, and what claims it meanwhile.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut D, &dyn Claimed)
    where
        D: Send + Sync + 'static,
    {
        // SAFETY: as above; a `Claimed` gives out claims only.
        (unsafe { &mut *self.0.0.get() }, self)
    }

    /// The value, unless something claims it.
    pub(super) fn into_inner(self) -> Option<D> {
        Arc::into_inner(self.0).map(|place| place.0.into_inner())
    }

    /// Whether something claims it.
    pub(super) fn is_claimed(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// What a graph can keep.
pub(super) trait Claimed: Send + Sync {
    fn claim(&self) -> Claim;
}

impl<D: Send + Sync + 'static> Claimed for Owned<D> {
    fn claim(&self) -> Claim {
        Arc::<Place<D>>::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Memory that says when it is freed.
    struct Memory<'a>(u32, &'a AtomicUsize);

    impl Drop for Memory<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn memory_is_freed_with_the_last_of_owner_and_claims() {
        static FREED: AtomicUsize = AtomicUsize::new(0);
        let freed = || FREED.load(Ordering::Relaxed);
        let mut owner = Owned::new(Memory(1, &FREED));
        let claims = [owner.claim(), owner.claim()];
        let (value, claimed) = owner.parts();
        drop(claimed.claim());
        value.0 = 2;
        assert_eq!(owner.get().0, 2, "the owner writes as before");
        drop(owner);
        assert_eq!(freed(), 0, "a graph refers to it");
        let [first, second] = claims;
        drop(first);
        assert_eq!(freed(), 0, "another graph refers to it");
        drop(second);
        assert_eq!(freed(), 1);
        let owner = Owned::new(Memory(3, &FREED));
        drop(owner.claim());
        drop(owner);
        assert_eq!(freed(), 2, "the owner was the last");
    }

    #[test]
    fn what_is_claimed_is_not_given_away() {
        let owner = Owned::new(7);
        let claim = owner.claim();
        assert!(owner.is_claimed() && owner.into_inner().is_none());
        drop(claim);
        let owner = Owned::new(7);
        drop(owner.claim());
        assert!(!owner.is_claimed());
        assert_eq!(owner.into_inner(), Some(7));
    }

    #[test]
    fn owners_and_claims_may_end_on_different_threads() {
        static FREED: AtomicUsize = AtomicUsize::new(0);
        for round in 0..100 {
            let mut owner = Owned::new(Memory(round, &FREED));
            let claim = owner.claim();
            std::thread::scope(|s| {
                s.spawn(move || drop(claim));
                owner.get_mut().0 += 1;
                assert_eq!(owner.get().0, round + 1);
                drop(owner);
            });
        }
        assert_eq!(FREED.load(Ordering::Relaxed), 100);
    }
}
