//! Runs kernels that nobody has checked yet (feature `tune`): what a tuner's worker process is made of.
//!
//! A [`Bench`] is a GPU with a stream of its own. Memory is [`Guarded`]: canaries lie before and behind it. [`Code`] is
//! loaded from a cubin or PTX and bound to memory; what is bound can be launched, and timed in a [`Graph`].
//!
//! # Why this is safe to call
//! A kernel runs on the GPU, and the addresses that it is given are those of the GPU's memory. Whatever it does there, none
//! of this process's values lie in that memory: what comes back is copied bytes. It may run for ever (then this process
//! waits for it, and somebody has to end it) and may lose the context (then every call here fails). Arguments that do not fit
//! the kernel's parameters are read from blocks that are larger than any parameter can be. On systems where a GPU reaches the
//! memory of processes by itself (HMM, ATS) a wild address of a kernel may be one of this process's, as it may be for whatever
//! writes to `/proc/self/mem`: that is one more reason to run candidates in a process that holds nothing else.

mod code;
mod differ;
mod memory;
mod time;

pub use code::{Begin, Bound, Code, Start};
pub use differ::Differ;
pub use memory::{Download, Guarded};
pub use time::Graph;

use super::context::Context;
use super::driver::{Driver, Handle};
use super::{Cuda, CudaError};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

/// A GPU, to run candidates on.
pub struct Bench {
    context: Arc<Context>,
    stream: Arc<CudaStream>,
    begin: CudaEvent,
    end: CudaEvent,
    facts: Facts,
    arguments: RefCell<code::Arguments>,
}

/// What a GPU is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Compute capability: major, minor.
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Device memory.
    pub memory_bytes: usize,
    /// Second-level cache.
    pub l2_bytes: usize,
    /// The highest clock of the multiprocessors.
    pub clock_mhz: u32,
    /// The number that no other GPU has, in hexadecimal.
    pub uuid: String,
    /// The CUDA version that the driver supports: major, minor.
    pub driver: (i32, i32),
}

/// `CU_DEVICE_ATTRIBUTE_CLOCK_RATE`, in kHz.
const CLOCK_RATE: c_int = 13;
/// `CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE`.
const L2_CACHE_SIZE: c_int = 38;

impl Bench {
    /// A GPU by its number.
    ///
    /// # Errors
    /// As [`Cuda::new`].
    pub fn open(ordinal: usize) -> Result<Bench, CudaError> {
        let info = Cuda::probe()?;
        let count = info.devices.len();
        let device = info.devices.get(ordinal).ok_or(CudaError::NoSuchDevice { ordinal, count })?;
        let cuda = CudaContext::new(ordinal).map_err(|e| Driver::of_cudarc("cuDevicePrimaryCtxRetain", e))?;
        // SAFETY: all memory of the context belongs to a bench, which uses it on one stream only.
        unsafe { cuda.disable_event_tracking() };
        let stream = cuda.new_stream().map_err(|e| Driver::of_cudarc("cuStreamCreate", e))?;
        let event = || {
            let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
            cuda.new_event(timing).map_err(|e| Driver::of_cudarc("cuEventCreate", e))
        };
        let (begin, end) = (event()?, event()?);
        let driver = Driver::get()?;
        let attribute = |which: c_int| -> Result<usize, CudaError> {
            let mut value = 0;
            // SAFETY: the pointer is to a local; the device is there.
            let code = unsafe { (driver.device_attribute)(&mut value, which, cuda.cu_device()) };
            driver.check("cuDeviceGetAttribute", code)?;
            Ok(usize::try_from(value).unwrap_or(0))
        };
        let mut uuid = [0u8; 16];
        // SAFETY: as above; an identifier has 16 bytes.
        driver.check("cuDeviceGetUuid", unsafe { (driver.device_uuid)(&mut uuid, cuda.cu_device()) })?;
        let facts = Facts {
            name: device.name.clone(),
            capability: device.compute_capability,
            multiprocessors: u32::try_from(device.multiprocessors).unwrap_or(0),
            memory_bytes: device.memory_bytes,
            l2_bytes: attribute(L2_CACHE_SIZE)?,
            clock_mhz: (attribute(CLOCK_RATE)? / 1000) as u32,
            uuid: uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
            driver: info.driver,
        };
        Ok(Bench {
            context: Context::of(&cuda)?,
            stream,
            begin,
            end,
            facts,
            arguments: RefCell::new(code::Arguments::new()),
        })
    }

    /// What the GPU is.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Waits until everything that was launched has ended, and reports what failed on the way.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.stream.synchronize().map_err(|e| Driver::of_cudarc("cuStreamSynchronize", e))
    }

    /// Binds the GPU's context to this thread and gives the stream's handle (`CUstream`), for calls of the vendor's
    /// libraries. The handle is valid as long as the bench.
    ///
    /// # Errors
    /// If the context is lost.
    pub fn raw_stream(&self) -> Result<*mut c_void, CudaError> {
        self.context.bind()?;
        Ok(self.handle())
    }

    fn handle(&self) -> Handle {
        self.stream.cu_stream().cast()
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bench({:?})", self.facts)
    }
}
