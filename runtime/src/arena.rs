//! Memory of tensors and workspaces: aligned, and in large pages where it is large. Workspaces are kept and reused.

use crate::{Error, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Mutex;

/// What all memory is aligned to: a cache line, and the widest vector.
const ALIGN: usize = 64;

/// A large page. Where there are none of this size, it is an alignment like others.
const LARGE_PAGE: usize = 2 << 20;

/// Allocations of this many bytes or more are aligned to large pages and rounded up to whole ones. If less than half of the last large
/// page would be used, that remainder lies in small pages instead. A network's weights
/// are read once a pass, and by then the addresses of 4 KiB pages have left the buffers that the processor keeps them in:
/// a ResNet-18 takes 2 to 7 % less time with large pages (docs/archive/perf-notes.md).
const LARGE: usize = LARGE_PAGE / 2;

/// A multiple of all systems' small pages.
const SMALL_PAGES: usize = 64 << 10;

/// How memory of so many bytes is allocated; none if there is no such amount.
fn layout(len: usize) -> Option<Layout> {
    if len < LARGE {
        return Layout::from_size_align(len, ALIGN).ok();
    }
    let unit = if len % LARGE_PAGE < LARGE { SMALL_PAGES } else { LARGE_PAGE };
    Layout::from_size_align(len.checked_next_multiple_of(unit)?, LARGE_PAGE).ok()
}

/// Zeroed memory of a layout, which is not empty.
fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    if layout.align() == LARGE_PAGE {
        return crate::pages::map(layout.size());
    }
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

/// Gives memory back.
///
/// # Safety
/// It came from [`allocate`] with the same layout, and nobody uses it any more.
unsafe fn free(start: NonNull<u8>, layout: Layout) {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    if layout.align() == LARGE_PAGE {
        // SAFETY: the caller's promise.
        return unsafe { crate::pages::unmap(start, layout.size()) };
    }
    // SAFETY: the caller's promise.
    unsafe { dealloc(start.as_ptr(), layout) }
}

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
        let layout = layout(len).ok_or(Error::OutOfMemory { bytes: len })?;
        let start = allocate(layout).ok_or(Error::OutOfMemory { bytes: len })?;
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
        if let Some(layout) = layout(self.len).filter(|layout| layout.size() > 0) {
            // SAFETY: allocated in `zeroed` with this very layout.
            unsafe { free(self.start, layout) }
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
    /// A workspace of at least `bytes` bytes, with undefined contents, in large pages.
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
            None => AlignedBytes::zeroed(bytes.max(LARGE))?,
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
        assert_eq!(arena.held_bytes(), LARGE, "small ones get large pages, too");
        drop(arena.lease(5 * LARGE).unwrap());
        assert_eq!(arena.held_bytes(), 5 * LARGE, "the smaller one was replaced");
    }

    #[test]
    fn overlapping_leases_do_not_share_memory() {
        let arena = Arena::default();
        let (a, b) = (arena.lease(256).unwrap(), arena.lease(256).unwrap());
        assert!(a.as_ptr().addr().abs_diff(b.as_ptr().addr()) >= 256);
        drop((a, b));
        assert_eq!(arena.held_bytes(), 2 * LARGE);
    }

    #[test]
    fn large_memory_takes_whole_large_pages_and_is_zeroed() {
        for len in [LARGE - 1, LARGE, 3 * LARGE + 1] {
            let memory = AlignedBytes::zeroed(len).unwrap();
            assert_eq!(memory.len(), len);
            let align = if len < LARGE { ALIGN } else { LARGE_PAGE };
            assert_eq!(memory.as_ptr() as usize % align, 0);
            // SAFETY: it holds so many bytes, and nobody writes them.
            let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), len) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn memory_that_cannot_exist_is_an_error() {
        assert!(matches!(Arena::default().lease(usize::MAX), Err(Error::OutOfMemory { .. })));
    }
}
