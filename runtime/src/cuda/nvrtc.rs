//! Compiling embedded source at first use, with the NVRTC of the machine.
//!
//! Only for programs that were built where there was no CUDA compiler, and said so. Kernels include no header, so the
//! library is all that is needed.

use super::CudaError;
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// `nvrtcProgram`.
type Program = *mut c_void;
/// A function that takes a program and a pointer to what it gives.
type Get<T> = unsafe extern "C" fn(Program, *mut T) -> c_int;

/// What a path names, as for builds: a library, or all versions of it in a folder.
fn libraries_at(path: &Path) -> Vec<PathBuf> {
    let is_library = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libnvrtc.") || name.starts_with("nvrtc64_")
    };
    match path.read_dir() {
        Ok(files) => files.flatten().map(|file| file.path()).filter(is_library).collect(),
        Err(_) => vec![path.to_path_buf()],
    }
}

/// Where the library may be: what `KERNEL_GEN_NVRTC` names, then its usual names, newest first.
fn candidates() -> Vec<PathBuf> {
    let mut all = std::env::var_os("KERNEL_GEN_NVRTC").map_or(vec![], |named| libraries_at(Path::new(&named)));
    if cfg!(windows) {
        all.extend(["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"].map(PathBuf::from));
        return all;
    }
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    all.push(format!("{prefix}nvrtc{suffix}").into());
    all.extend(["13", "12", "11.2"].map(|v| PathBuf::from(format!("{prefix}nvrtc{suffix}.{v}"))));
    all
}

/// Opens the library, and before it the one with its built-in functions: it looks for that by name only, which fails
/// where neither is on the loader's path.
fn open(path: &Path) -> Option<Library> {
    #[cfg(unix)]
    for sibling in
        path.parent().filter(|p| p.is_absolute()).and_then(|p| p.read_dir().ok()).into_iter().flatten().flatten()
    {
        if sibling.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
            // SAFETY: what runs here is the initialisation of NVIDIA's library.
            if let Ok(library) = unsafe { Library::open(Some(sibling.path()), RTLD_NOW | RTLD_GLOBAL) } {
                // It has to stay where the other finds it.
                std::mem::forget(library);
            }
        }
    }
    // SAFETY: as above.
    unsafe { Library::new(path) }.ok()
}

/// Compiles source to machine code for a device. `exact` says that the source is for this very capability, whose own
/// instructions it uses.
pub(super) fn compile(
    source: &[u8],
    kernel: &'static str,
    device: (i32, i32),
    exact: bool,
) -> Result<Vec<u8>, CudaError> {
    let refused = |reason: String| CudaError::Image { kernel, device, reason };
    let library = candidates().iter().find_map(|path| open(path)).ok_or_else(|| {
        refused(
            "the program was built without a CUDA compiler, so its source has to be compiled now, but NVRTC is not here; \
             install it (`pip install nvidia-cuda-nvrtc`) and name it with KERNEL_GEN_NVRTC or put its folder on the \
             library path, or build the program with packaged code"
                .into(),
        )
    })?;
    Nvrtc { library: &library }.compile(source, device, exact).map_err(refused)
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

    fn compile(&self, source: &[u8], device: (i32, i32), exact: bool) -> Result<Vec<u8>, String> {
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
        let suffix = if exact { "a" } else { "" };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_names_the_libraries_in_it() {
        let folder = std::env::temp_dir().join(format!("kernel-gen-nvrtc-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libcudart.so.13", "nvrtc64_130_0.dll"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let mut found = libraries_at(&folder);
        found.sort();
        assert_eq!(found, ["libnvrtc.so.13", "nvrtc64_130_0.dll"].map(|name| folder.join(name)));
        assert_eq!(libraries_at(&found[0]), [found[0].clone()]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn source_becomes_machine_code_or_an_error_with_the_compilers_words() {
        if candidates().iter().find_map(|path| open(path)).is_none() {
            let error = compile(b"", "k", (8, 0), false).unwrap_err().to_string();
            assert!(error.contains("NVRTC is not here") && error.contains("KERNEL_GEN_NVRTC"), "{error}");
            eprintln!(
                "[SKIP] part: needs NVRTC (KERNEL_GEN_NVRTC names it); that its absence is one clear error was tested"
            );
            return;
        }
        let source = b"extern \"C\" __global__ void k(float *x) { x[threadIdx.x] = 1.0f; }";
        assert!(compile(source, "k", (8, 6), false).unwrap().starts_with(b"\x7fELF"));
        let hopper = b"extern \"C\" __global__ void k() { asm volatile(\"wgmma.fence.sync.aligned;\"); }";
        assert!(compile(hopper, "k", (9, 0), true).unwrap().starts_with(b"\x7fELF"));
        let error = compile(b"extern \"C\" __global__ void k() { nonsense }", "k", (9, 0), true).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the code of `k` on a GPU of compute capability 9.0: NVRTC failed with"), "{text}");
        assert!(text.contains("kernel.cu(1): error: identifier \"nonsense\" is undefined"), "{text}");
    }
}
