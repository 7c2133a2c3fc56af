//! Workspace memory: aligned, kept and reused.

use crate::{Error, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Mutex;

/// What every workspace is aligned to: a cache line, and the widest vector.
const ALIGN: usize = 64;

/// Zeroed bytes on a cache line boundary.
pub(crate) struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns plain bytes, as a `Vec<u8>` does; access goes through `as_ptr` and the owner's borrow rules.
unsafe impl Send for AlignedBytes {}
// SAFETY: a shared reference only gives out the pointer; who dereferences it answers for the access.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// Allocates; 0 bytes need no memory.
    pub(crate) fn zeroed(len: usize) -> Result<AlignedBytes> {
        if len == 0 {
            // A dangling but aligned pointer, as an empty `Vec` has.
            let start = NonNull::new(std::ptr::without_provenance_mut(ALIGN)).expect("the alignment is not zero");
            return Ok(AlignedBytes { start, len });
        }
        let layout = Layout::from_size_align(len, ALIGN).map_err(|_| Error::Workspace { bytes: len })?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(Error::Workspace { bytes: len })?;
        Ok(AlignedBytes { start, len })
    }

    /// The first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `zeroed` with this very layout, which was valid there.
            unsafe { dealloc(self.start.as_ptr(), Layout::from_size_align_unchecked(self.len, ALIGN)) }
        }
    }
}

/// The workspaces of a device. A launch leases one and gives it back, so launches that overlap have one each, and a
/// device that has seen its largest launch allocates no more.
#[derive(Default)]
pub(crate) struct Arena {
    free: Mutex<Vec<AlignedBytes>>,
}

impl Arena {
    /// A workspace of at least `bytes` bytes, with undefined contents.
    pub(crate) fn lease(&self, bytes: usize) -> Result<Lease<'_>> {
        if bytes == 0 {
            return Ok(Lease { arena: self, memory: Some(AlignedBytes::zeroed(0)?) });
        }
        let taken = {
            let mut free = self.lock();
            match free.iter().position(|m| m.len() >= bytes) {
                Some(i) => Some(free.swap_remove(i)),
                // The one that is too small goes: it is replaced by the one made below.
                None => {
                    free.pop();
                    None
                }
            }
        };
        let memory = match taken {
            Some(memory) => memory,
            None => AlignedBytes::zeroed(bytes)?,
        };
        Ok(Lease { arena: self, memory: Some(memory) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<AlignedBytes>> {
        // Nothing panics while the lock is held, and the list is whole at all times.
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Bytes that wait for the next lease.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().iter().map(AlignedBytes::len).sum()
    }
}

/// A workspace in use.
pub(crate) struct Lease<'a> {
    arena: &'a Arena,
    memory: Option<AlignedBytes>,
}

impl Lease<'_> {
    /// The first byte, aligned to 64.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ref().expect("held until dropped").as_ptr()
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take().filter(|m| m.len() > 0) {
            self.arena.lock().push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lease_reuses_the_memory_of_the_first() {
        let arena = Arena::default();
        let first = arena.lease(1000).unwrap().as_ptr();
        assert_eq!(first as usize % ALIGN, 0);
        let second = arena.lease(900).unwrap().as_ptr();
        assert_eq!(first, second);
        drop(arena.lease(5000).unwrap());
        assert_eq!(arena.held_bytes(), 5000, "the smaller one was replaced");
    }

    #[test]
    fn overlapping_leases_do_not_share_memory() {
        let arena = Arena::default();
        let (a, b) = (arena.lease(256).unwrap(), arena.lease(256).unwrap());
        assert!(a.as_ptr().addr().abs_diff(b.as_ptr().addr()) >= 256);
        drop((a, b));
        assert_eq!(arena.held_bytes(), 512);
    }

    #[test]
    fn memory_that_cannot_exist_is_an_error() {
        assert!(matches!(Arena::default().lease(usize::MAX), Err(Error::Workspace { .. })));
    }
}
