//! Compiling embedded source at first use, with the NVRTC of the machine.
//!
//! Only for programs that were built where there was no CUDA compiler, and said so. Kernels include no header, so the
//! library is all that is needed.

use super::CudaError;
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};

/// `nvrtcProgram`.
type Program = *mut c_void;
/// A function that takes a program and a pointer to what it gives.
type Get<T> = unsafe extern "C" fn(Program, *mut T) -> c_int;

/// The library's names, newest first.
fn names() -> Vec<String> {
    if cfg!(windows) {
        return ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"].map(String::from).to_vec();
    }
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let mut names = vec![format!("{prefix}nvrtc{suffix}")];
    names.extend(["13", "12", "11.2"].map(|v| format!("{prefix}nvrtc{suffix}.{v}")));
    names
}

/// Compiles source to machine code for a device.
pub(super) fn compile(source: &[u8], kernel: &str, device: (i32, i32)) -> Result<Vec<u8>, CudaError> {
    let refused = |reason: String| CudaError::Image { kernel: "embedded CUDA source", device, reason };
    // SAFETY: what runs here is the initialisation of NVIDIA's library.
    let library = names().iter().find_map(|name| unsafe { Library::new(name) }.ok()).ok_or_else(|| {
        refused(format!(
            "`{kernel}` was built without a CUDA compiler and has to be compiled now, but NVRTC is not here; install \
             it (`pip install nvidia-cuda-nvrtc`) and put its folder on the library path, or build with packaged \
             artifacts"
        ))
    })?;
    let nvrtc = Nvrtc { library: &library };
    nvrtc.compile(source, device).map_err(|reason| refused(format!("`{kernel}`: {reason}")))
}

struct Nvrtc<'l> {
    library: &'l Library,
}

impl Nvrtc<'_> {
    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the type of the function of that name.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.library.get::<F>(name.as_bytes()) };
        found.map(|f| *f).map_err(|_| format!("this NVRTC has no `{name}`; install a newer one"))
    }

    fn compile(&self, source: &[u8], device: (i32, i32)) -> Result<Vec<u8>, String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        // SAFETY: these are the signatures of NVRTC's functions, the same in all its versions.
        let (create, run, destroy) = unsafe {
            (
                self.function::<Create>("nvrtcCreateProgram")?,
                self.function::<Compile>("nvrtcCompileProgram")?,
                self.function::<unsafe extern "C" fn(*mut Program) -> c_int>("nvrtcDestroyProgram")?,
            )
        };
        let text = CString::new(source).map_err(|_| "the source holds a 0".to_string())?;
        // What only this capability has is wanted too, where there is such a thing.
        let suffix = if device.0 >= 9 { "a" } else { "" };
        let arch = CString::new(format!("--gpu-architecture=sm_{}{}{suffix}", device.0, device.1)).unwrap_or_default();
        let options = [arch.as_ptr(), c"--std=c++17".as_ptr()];
        let mut program = std::ptr::null_mut();
        // SAFETY: strings end in 0 and live until the program is destroyed; there are no headers.
        let code = unsafe {
            create(&mut program, text.as_ptr(), c"kernel.cu".as_ptr(), 0, std::ptr::null(), std::ptr::null())
        };
        if code != 0 {
            return Err(format!("nvrtcCreateProgram failed with {code}"));
        }
        // SAFETY: the program was made just now, and both options end in 0.
        let code = unsafe { run(program, options.len() as c_int, options.as_ptr()) };
        let result = if code == 0 {
            self.bytes(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        } else {
            let log = self.bytes(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").unwrap_or_default();
            Err(format!("NVRTC failed with {code}: {}", String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n'])))
        };
        // SAFETY: nothing uses the program any more.
        unsafe { destroy(&mut program) };
        result
    }

    /// What a pair of functions gives: its size, then its bytes.
    fn bytes(&self, program: Program, size: &str, get: &str) -> Result<Vec<u8>, String> {
        // SAFETY: functions of these names have these signatures.
        let (size_of, get_bytes) = unsafe { (self.function::<Get<usize>>(size)?, self.function::<Get<c_char>>(get)?) };
        let mut length = 0;
        // SAFETY: the program exists, and the pointer is to a local.
        let code = unsafe { size_of(program, &mut length) };
        let mut bytes = vec![0u8; length];
        // SAFETY: the buffer has the size that was asked for.
        let code = if code == 0 { unsafe { get_bytes(program, bytes.as_mut_ptr().cast()) } } else { code };
        if code == 0 { Ok(bytes) } else { Err(format!("{get} failed with {code}")) }
    }
}
