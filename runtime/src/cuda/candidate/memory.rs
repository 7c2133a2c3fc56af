//! Device memory with canaries around it.

use super::Bench;
use crate::cuda::CudaError;
use crate::cuda::driver::Driver;
use cudarc::driver::{CudaSlice, DevicePtr, result};

/// Bytes of canary before and behind each buffer: a multiple of what any access is aligned to.
const GUARD: usize = 4096;
/// Bytes that memory is compared by at a time.
pub(super) const STEP: usize = 16;
/// What canaries hold; as floats of any type it is a large number, so that a sum that reads it is off.
const CANARY: u8 = 0x7b;
/// What memory holds that nothing was written to yet: NaN in every floating type.
const POISON: u8 = 0xff;

/// Memory of a GPU with canaries on both sides.
#[derive(Debug)]
pub struct Guarded {
    memory: CudaSlice<u8>,
    address: u64,
    bytes: usize,
}

impl Guarded {
    /// How much memory, without the canaries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the first canary starts, and how many steps there are with both of them.
    pub(super) fn steps(&self) -> (u64, u64) {
        (self.address, (self.memory.len() / STEP) as u64)
    }

    /// The GPU's address of the memory between the canaries.
    pub fn address(&self) -> u64 {
        self.address + GUARD as u64
    }
}

/// What memory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Download {
    /// Its bytes.
    pub data: Vec<u8>,
    /// The first byte outside of it that was written, counted from its start.
    pub outside: Option<i64>,
}

impl Bench {
    /// Memory that holds poison.
    pub fn poisoned(&self, bytes: usize) -> Result<Guarded, CudaError> {
        self.context.bind()?;
        let whole = bytes.saturating_add(2 * GUARD).next_multiple_of(STEP);
        // SAFETY: all of it is written below, before anything reads it.
        let memory = unsafe { self.stream.alloc::<u8>(whole) };
        let memory = memory.map_err(|e| Driver::of_cudarc("cuMemAllocAsync", e))?;
        let address = memory.device_ptr(&self.stream).0;
        let buffer = Guarded { memory, address, bytes };
        self.fill(&buffer, 0, CANARY, GUARD)?;
        self.fill(&buffer, GUARD, POISON, bytes)?;
        self.fill_behind(&buffer)?;
        Ok(buffer)
    }

    /// Memory that holds `data`.
    pub fn upload(&self, data: &[u8]) -> Result<Guarded, CudaError> {
        let mut buffer = self.poisoned(data.len())?;
        if !data.is_empty() {
            let mut inside = buffer.memory.slice_mut(GUARD..GUARD + data.len());
            self.stream.memcpy_htod(data, &mut inside).map_err(|e| Driver::of_cudarc("cuMemcpyHtoDAsync", e))?;
        }
        // The bytes are the caller's again when this returns.
        self.synchronize()?;
        Ok(buffer)
    }

    /// Poisons memory again, its canaries too.
    pub fn poison(&self, buffer: &mut Guarded) -> Result<(), CudaError> {
        self.fill(buffer, 0, CANARY, GUARD)?;
        self.fill(buffer, GUARD, POISON, buffer.bytes)?;
        self.fill_behind(buffer)
    }

    /// A copy of memory, its canaries too.
    pub fn copy(&self, buffer: &Guarded) -> Result<Guarded, CudaError> {
        self.context.bind()?;
        let Guarded { memory, bytes, .. } = buffer;
        let memory = self.stream.clone_dtod(memory).map_err(|e| Driver::of_cudarc("cuMemcpyDtoDAsync", e))?;
        let address = memory.device_ptr(&self.stream).0;
        Ok(Guarded { memory, address, bytes: *bytes })
    }

    /// What memory holds once everything that was launched has ended.
    pub fn download(&self, buffer: &Guarded) -> Result<Download, CudaError> {
        let mut whole =
            self.stream.clone_dtoh(&buffer.memory).map_err(|e| Driver::of_cudarc("cuMemcpyDtoHAsync", e))?;
        self.synchronize()?;
        let before = whole[..GUARD].iter().position(|b| *b != CANARY).map(|at| at as i64 - GUARD as i64);
        let behind = whole[GUARD + buffer.bytes..].iter().position(|b| *b != CANARY);
        let outside = before.or(behind.map(|at| (at + buffer.bytes) as i64));
        whole.truncate(GUARD + buffer.bytes);
        whole.drain(..GUARD);
        Ok(Download { data: whole, outside })
    }

    /// The canary behind a buffer begins at the very next byte.
    fn fill_behind(&self, buffer: &Guarded) -> Result<(), CudaError> {
        let behind = GUARD + buffer.bytes;
        self.fill(buffer, behind, CANARY, buffer.memory.len() - behind)
    }

    fn fill(&self, buffer: &Guarded, at: usize, byte: u8, count: usize) -> Result<(), CudaError> {
        if count == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the callers stay within the memory, and the memory is written on this stream only.
        let filled =
            unsafe { result::memset_d8_async(buffer.address + at as u64, byte, count, self.stream.cu_stream()) };
        filled.map_err(|e| Driver::of_cudarc("cuMemsetD8Async", e))
    }
}
