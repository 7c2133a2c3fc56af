//! Large memory straight from the system: whole large pages, zero, and untouched.
//!
//! A page lies in the memory of the core that touches it first. What an allocator zeroes has been touched, all of it by the
//! thread that allocates; what the system maps is zero without that. So the pages of a tensor that a kernel writes lie where
//! its workers write them, and those of a worker's part of the workspace where that worker is. As each worker gets the same
//! share of every launch, it finds them near again.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// A large page.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

const PROT_READ_WRITE: c_int = 1 | 2;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x02 | 0x20;
const MADV_HUGEPAGE: c_int = 14;

unsafe extern "C" {
    // Of the C library that the standard library links on Linux.
    fn mmap(start: *mut c_void, len: usize, prot: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    fn munmap(start: *mut c_void, len: usize) -> c_int;
    fn madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int;
}

/// So many bytes, a multiple of small pages and not zero, aligned to [`LARGE_PAGE`]; none if they are not to be had. Large pages are a
/// wish: without them everything works as well, and what fills none has small ones.
pub(crate) fn map(len: usize) -> Option<NonNull<u8>> {
    let reserved = len.checked_add(LARGE_PAGE)?;
    // SAFETY: a new mapping changes no memory of anybody.
    let start =
        unsafe { mmap(std::ptr::null_mut(), reserved, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) }.cast::<u8>();
    // What says that it failed is the last address.
    if start.addr() == usize::MAX {
        return None;
    }
    let before = start.addr().next_multiple_of(LARGE_PAGE) - start.addr();
    // SAFETY: all of it lies inside of the mapping, nobody has seen its ends yet, and they are whole pages, since a mapping
    // starts at a page and large pages are multiples of those. The advice changes nothing that a program can see.
    unsafe {
        let first = start.add(before);
        if before > 0 {
            munmap(start.cast(), before);
        }
        if before < LARGE_PAGE {
            munmap(first.add(len).cast(), LARGE_PAGE - before);
        }
        madvise(first.cast(), len, MADV_HUGEPAGE);
        NonNull::new(first)
    }
}

/// Gives memory back.
///
/// # Safety
/// It came from [`map`] with the same length, and nobody uses it any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { munmap(start.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mincore(start: *mut c_void, len: usize, resident: *mut u8) -> c_int;
        fn sysconf(name: c_int) -> i64;
    }

    const SC_PAGESIZE: c_int = 30;

    #[test]
    fn memory_is_aligned_and_no_page_of_it_is_touched_before_its_user_does() {
        let len = 8 * LARGE_PAGE;
        let memory = map(len).unwrap();
        assert_eq!(memory.addr().get() % LARGE_PAGE, 0);
        // SAFETY: it asks for a number.
        let page = unsafe { sysconf(SC_PAGESIZE) } as usize;
        let resident = || {
            let mut pages = vec![0u8; len / page];
            // SAFETY: the range is mapped, and there is a byte for each of its pages.
            assert_eq!(unsafe { mincore(memory.as_ptr().cast(), len, pages.as_mut_ptr()) }, 0);
            pages.iter().filter(|p| **p & 1 == 1).count() * page
        };
        assert_eq!(resident(), 0);
        // SAFETY: the byte lies in the mapping.
        unsafe { memory.as_ptr().add(3 * LARGE_PAGE).write(1) };
        assert!((1..=LARGE_PAGE).contains(&resident()), "one page, small or large");
        // SAFETY: nobody uses it any more.
        unsafe { unmap(memory, len) };
    }

    #[test]
    fn more_than_there_can_be_is_none() {
        assert!(map(usize::MAX / 2 / LARGE_PAGE * LARGE_PAGE).is_none());
        assert!(map(usize::MAX / LARGE_PAGE * LARGE_PAGE).is_none());
    }
}
