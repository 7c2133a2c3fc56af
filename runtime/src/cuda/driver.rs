//! The driver's functions that launches use, looked up by name.
//!
//! cudarc calls the driver too, but panics when the library or a function of it is missing. So the library is opened
//! and asked here first, and what cudarc is going to call on behalf of this crate is among the functions that must be
//! there. The types are our own: they are part of the driver's stable binary interface, while cudarc's depend on the
//! CUDA version that some other crate of the program may have pinned.

use super::CudaError;
use crate::Error;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A context, stream, module or function of the driver.
pub(super) type Handle = *mut c_void;

/// `CUlaunchAttribute`: an identifier and a value of up to 64 bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct LaunchAttribute {
    pub(super) id: u32,
    pub(super) pad: u32,
    pub(super) value: [u32; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`: the value is x, y, z.
pub(super) const CLUSTER_DIMENSION: u32 = 4;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the value is 1 to let the kernel start early.
pub(super) const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;
/// The CUDA version from which on a capture keeps such launches apart from others.
pub(super) const GRAPHS_WITH_EARLY_STARTS: (i32, i32) = (12, 3);
/// `CU_GRAPH_NODE_TYPE_KERNEL`.
pub(super) const KERNEL: c_int = 0;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
pub(super) const MEMORY_ALLOCATION: c_int = 10;
/// `CU_GRAPH_NODE_TYPE_MEM_FREE`.
pub(super) const MEMORY_FREE: c_int = 11;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub(super) const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
/// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`.
pub(super) const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_int = 14;

/// `CUlaunchConfig`.
#[repr(C)]
pub(super) struct LaunchConfig {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared_bytes: c_uint,
    pub(super) stream: Handle,
    pub(super) attributes: *mut LaunchAttribute,
    pub(super) attribute_count: c_uint,
}

/// `CUtensorMap`: 128 opaque bytes. Newer headers align it to 128 bytes, older ones to 64.
#[repr(C, align(128))]
#[derive(Clone, Copy)]
pub(super) struct TensorMap(pub(super) [u64; 16]);

macro_rules! driver {
    ($($(#[$meta:meta])* $field:ident = $symbol:literal, ($major:literal, $minor:literal): fn($($t:ty),*);)*) => {
        /// The functions.
        pub(super) struct Driver {
            /// The CUDA version that the driver supports: major, minor.
            pub(super) version: (i32, i32),
            $($(#[$meta])* pub(super) $field: unsafe extern "C" fn($($t),*) -> u32,)*
            /// Missing in drivers before CUDA 12.0.
            encode_tiled: Option<EncodeTiled>,
            /// `cuStreamGetCaptureInfo_v3`, missing in drivers before CUDA 12.3.
            pub(super) capture_info: Option<CaptureInfo>,
        }

        /// The names of all of them.
        #[cfg(test)]
        const FUNCTIONS: &[&str] = &[$($(#[$meta])* $symbol),*];

        impl Driver {
            /// Looks every function up.
            fn resolve(library: &Library, version: (i32, i32)) -> Result<Driver, CudaError> {
                Ok(Driver {
                    version,
                    $($(#[$meta])* $field: {
                        // SAFETY: the driver's function of this name has this signature in every version of its binary
                        // interface; a versioned name (`_v2`) never changes its own.
                        unsafe { library.get($symbol.as_bytes()) }.map(|f| *f).map_err(|_| CudaError::MissingSymbol {
                            symbol: $symbol,
                            driver: version,
                            since: ($major, $minor),
                        })?
                    },)*
                    // SAFETY: as above.
                    encode_tiled: unsafe { library.get(ENCODE_TILED.as_bytes()) }.ok().map(|f| *f),
                    // SAFETY: as above.
                    capture_info: unsafe { library.get(b"cuStreamGetCaptureInfo_v3") }.ok().map(|f| *f),
                })
            }
        }
    };
}

driver! {
    device_count = "cuDeviceGetCount", (2, 0): fn(*mut c_int);
    device_get = "cuDeviceGet", (2, 0): fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName", (2, 0): fn(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute", (2, 0): fn(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2", (3, 2): fn(*mut usize, c_int);
    error_name = "cuGetErrorName", (6, 0): fn(c_uint, *mut *const c_char);
    module_load = "cuModuleLoadDataEx", (2, 0): fn(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload = "cuModuleUnload", (2, 0): fn(Handle);
    module_function = "cuModuleGetFunction", (2, 0): fn(*mut Handle, Handle, *const c_char);
    function_set = "cuFuncSetAttribute", (9, 0): fn(Handle, c_int, c_int);
    is_capturing = "cuStreamIsCapturing", (10, 0): fn(Handle, *mut c_int);
    graph_nodes = "cuGraphGetNodes", (10, 0): fn(Handle, *mut Handle, *mut usize);
    node_type = "cuGraphNodeGetType", (10, 0): fn(Handle, *mut c_int);
    launch = "cuLaunchKernelEx", (11, 8): fn(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
    #[cfg(feature = "tune")]
    device_uuid = "cuDeviceGetUuid_v2", (11, 4): fn(*mut [u8; 16], c_int);
    #[cfg(feature = "tune")]
    event_elapsed = "cuEventElapsedTime", (2, 0): fn(*mut f32, Handle, Handle);
}

/// `cuTensorMapEncodeTiled`.
pub(super) type EncodeTiled = unsafe extern "C" fn(
    *mut TensorMap,
    c_int,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    c_int,
    c_int,
    c_int,
    c_int,
) -> u32;

/// `cuStreamGetCaptureInfo_v3`: a stream's status, the capture's number, its graph, and what the next node will depend on:
/// nodes, the edges to them, and how many there are.
pub(super) type CaptureInfo = unsafe extern "C" fn(
    Handle,
    *mut c_int,
    *mut u64,
    *mut Handle,
    *mut *const Handle,
    *mut *const c_void,
    *mut usize,
) -> u32;

const ENCODE_TILED: &str = "cuTensorMapEncodeTiled";

/// What cudarc calls for contexts, streams, events, memory and graphs, with the version that brought it.
const CUDARC: [(&str, (i32, i32)); 25] = [
    ("cuDevicePrimaryCtxRetain", (7, 0)),
    ("cuDevicePrimaryCtxRelease_v2", (11, 0)),
    ("cuCtxGetCurrent", (4, 0)),
    ("cuCtxSetCurrent", (4, 0)),
    ("cuCtxSynchronize", (2, 0)),
    ("cuStreamCreate", (2, 0)),
    ("cuStreamDestroy_v2", (4, 0)),
    ("cuStreamSynchronize", (2, 0)),
    ("cuStreamWaitEvent", (3, 2)),
    ("cuEventCreate", (2, 0)),
    ("cuEventRecord", (2, 0)),
    ("cuEventDestroy_v2", (4, 0)),
    ("cuMemAlloc_v2", (3, 2)),
    ("cuMemFree_v2", (3, 2)),
    ("cuMemAllocAsync", (11, 2)),
    ("cuMemFreeAsync", (11, 2)),
    ("cuMemcpyHtoDAsync_v2", (3, 2)),
    ("cuMemcpyDtoHAsync_v2", (3, 2)),
    ("cuMemsetD8Async", (3, 2)),
    ("cuStreamBeginCapture_v2", (10, 1)),
    ("cuStreamEndCapture", (10, 0)),
    ("cuGraphInstantiateWithFlags", (11, 4)),
    ("cuGraphLaunch", (10, 0)),
    ("cuGraphExecDestroy", (10, 0)),
    ("cuGraphDestroy", (10, 0)),
];

/// What it calls besides where candidates are timed.
#[cfg(feature = "tune")]
const CUDARC_EVENTS: &[(&str, (i32, i32))] = &[("cuEventSynchronize", (2, 0))];
#[cfg(not(feature = "tune"))]
const CUDARC_EVENTS: &[(&str, (i32, i32))] = &[];

/// The name of the driver's library for version `major` of its interface, and the names that cudarc tries. The order
/// is cudarc's, so that both end at the same library.
fn candidates() -> Vec<String> {
    if cfg!(windows) {
        return vec!["cuda.dll".into(), "nvcuda.dll".into()];
    }
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let mut names = vec![format!("{prefix}cuda{suffix}")];
    names.extend([13, 12, 11, 10, 9, 1].map(|n| format!("{prefix}cuda{suffix}.{n}")));
    names
}

impl Driver {
    /// The driver of this machine, once it has been found complete and with a device. A failure is not remembered:
    /// the next call looks again.
    pub(super) fn get() -> Result<&'static Driver, CudaError> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let driver = Driver::open(&candidates())?;
        Ok(DRIVER.get_or_init(|| driver))
    }

    /// Opens the first library that there is.
    fn open(names: &[String]) -> Result<Driver, CudaError> {
        let mut reason = String::new();
        for name in names {
            // SAFETY: what runs here is the initialisation of the NVIDIA driver's library, which every program that
            // uses a GPU runs. A library of another origin under this name could do anything, but so it could in
            // every other program on the machine.
            match unsafe { Library::new(name) } {
                Ok(library) => return Driver::ask(name, library),
                // The last name is the one that drivers install; its complaint is the one to show.
                Err(error) => reason = detail(&error),
            }
        }
        Err(CudaError::NoDriver { reason })
    }

    /// Whether the library is a driver, new enough and with a device.
    fn ask(name: &str, library: Library) -> Result<Driver, CudaError> {
        let not_a_driver = |symbol| CudaError::NotADriver { library: name.to_string(), symbol };
        // SAFETY: these two have had these signatures since they exist.
        let init: unsafe extern "C" fn(c_uint) -> u32 =
            *unsafe { library.get(b"cuInit") }.map_err(|_| not_a_driver("cuInit"))?;
        // SAFETY: as above.
        let get_version: unsafe extern "C" fn(*mut c_int) -> u32 =
            *unsafe { library.get(b"cuDriverGetVersion") }.map_err(|_| not_a_driver("cuDriverGetVersion"))?;
        // SAFETY: 0 is the only flag that there is.
        let code = unsafe { init(0) };
        let mut version = 0;
        // SAFETY: the pointer is to a local, and the function may be called at any time.
        let version_code = unsafe { get_version(&mut version) };
        let version = (version / 1000, version % 1000 / 10);
        match code {
            0 => {}
            34 => return Err(CudaError::Stub { library: name.to_string() }),
            100 => return Err(CudaError::NoDevice),
            _ => return Err(CudaError::Driver { call: "cuInit", code, name: error_name(&library, code) }),
        }
        if version_code != 0 {
            let name = error_name(&library, version_code);
            return Err(CudaError::Driver { call: "cuDriverGetVersion", code: version_code, name });
        }
        let driver = Driver::resolve(&library, version)?;
        for (symbol, since) in CUDARC.iter().chain(CUDARC_EVENTS).copied() {
            // SAFETY: the function is only looked up, not called.
            let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
            if found.is_err() {
                return Err(CudaError::MissingSymbol { symbol, driver: version, since });
            }
        }
        // The functions above are used for as long as the program runs.
        std::mem::forget(library);
        Ok(driver)
    }

    /// `cuTensorMapEncodeTiled`, if the driver has it.
    pub(super) fn encode_tiled(&self) -> Result<EncodeTiled, CudaError> {
        let missing = || CudaError::MissingSymbol { symbol: ENCODE_TILED, driver: self.version, since: (12, 0) };
        self.encode_tiled.ok_or_else(missing)
    }

    /// The result of a call.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        if code == 0 { Ok(()) } else { Err(self.failed(call, code)) }
    }

    #[cold]
    fn failed(&self, call: &'static str, code: u32) -> CudaError {
        let mut text = std::ptr::null();
        // SAFETY: the pointer is to a local; the driver leaves it null or sets it to a static string.
        unsafe { (self.error_name)(code, &mut text) };
        CudaError::Driver { call, code, name: name_of(text) }
    }

    /// What cudarc reports, as an error of ours.
    #[cold]
    pub(super) fn of_cudarc(call: &'static str, error: cudarc::driver::DriverError) -> CudaError {
        let code = error.0 as u32;
        match Driver::get() {
            Ok(driver) => driver.failed(call, code),
            Err(_) => CudaError::Driver { call, code, name: format!("{:?}", error.0) },
        }
    }

    /// What cudarc reports of an allocation of `bytes` bytes, as an error of ours.
    #[cold]
    pub(super) fn not_allocated(bytes: usize, error: cudarc::driver::DriverError) -> Error {
        match error.0 {
            cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { bytes },
            _ => Driver::of_cudarc("cuMemAllocAsync", error).into(),
        }
    }
}

/// The name of an error code, from a library that may lack the function for it.
fn error_name(library: &Library, code: u32) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the function has had this signature since it exists; the pointer is to a local.
    if let Ok(name) = unsafe { library.get::<unsafe extern "C" fn(u32, *mut *const c_char) -> u32>(b"cuGetErrorName") }
    {
        // SAFETY: as above.
        unsafe { name(code, &mut text) };
    }
    name_of(text)
}

fn name_of(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".into();
    }
    // SAFETY: the driver's names are static strings that end in 0.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What the loader really said, which libloading keeps as the source of its error.
fn detail(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

#[cfg(test)]
mod tests;
