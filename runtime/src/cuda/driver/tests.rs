//! What is said on machines without a driver, and with things that are called like one.

use super::*;

#[test]
fn a_missing_library_is_an_error_that_says_what_to_do() {
    let error = Driver::open(&["libno-such-driver.so.1".into()]).err().unwrap();
    assert!(matches!(error, CudaError::NoDriver { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("there is no NVIDIA driver on this machine (") && text.contains("run on `Cpu`"), "{text}");
    assert!(text.contains("libno-such-driver.so.1"), "the loader's own words: {text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn memory_that_a_gpu_lacks_is_the_same_error_as_on_a_cpu() {
    use cudarc::driver::{DriverError, sys::CUresult};
    let not_allocated = |result| Driver::not_allocated(1 << 46, DriverError(result));
    assert_eq!(not_allocated(CUresult::CUDA_ERROR_OUT_OF_MEMORY), Error::OutOfMemory { bytes: 1 << 46 });
    let other = not_allocated(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    assert!(matches!(other, Error::Cuda(CudaError::Driver { call: "cuMemAllocAsync", code: 201, .. })), "{other}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_library_under_the_drivers_name_is_not_a_driver() {
    // The C library is on every machine and has no `cuInit`.
    let error = Driver::open(&["libno-such-driver.so.1".into(), "libc.so.6".into()]).err().unwrap();
    assert_eq!(error, CudaError::NotADriver { library: "libc.so.6".into(), symbol: "cuInit" });
}

/// A library made of C, as a driver of this kind would answer.
#[cfg(target_os = "linux")]
fn library(name: &str, source: &str) -> Option<String> {
    let folder = std::env::temp_dir().join(format!("kernel-gen-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (c, so) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
    std::fs::write(&c, source).unwrap();
    let made = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&so).arg(&c).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("[SKIP] needs a C compiler to make a library that answers as a driver does");
        return None;
    }
    Some(so.display().to_string())
}

#[cfg(target_os = "linux")]
fn fake(name: &str, init: u32, version: i32, functions: &[&str]) -> Option<CudaError> {
    let mut source = format!(
        "unsigned cuInit(unsigned f) {{ return {init}; }}\n\
         unsigned cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}\n"
    );
    for function in functions {
        source += &format!("unsigned {function}(void) {{ return 0; }}\n");
    }
    Some(Driver::open(&[library(name, &source)?]).err().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn stubs_and_machines_without_a_device_are_told_apart() {
    let Some(stub) = fake("stub", 34, 0, &[]) else { return };
    assert!(stub.to_string().contains("libstub.so` is the CUDA toolkit's link stub"), "{stub}");
    assert_eq!(fake("none", 100, 12040, &[]), Some(CudaError::NoDevice));
    let other = fake("other", 803, 12040, &[]).unwrap();
    assert_eq!(
        other.to_string(),
        "`cuInit` failed with CUDA error 803 (unknown); the driver's library and its kernel module differ: restart the \
         machine, or install the driver again"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_old_driver_is_named_with_its_version_and_what_it_lacks() {
    let old: Vec<&str> = FUNCTIONS.iter().copied().filter(|symbol| *symbol != "cuLaunchKernelEx").collect();
    let Some(error) = fake("old", 0, 11040, &old) else { return };
    assert_eq!(
        error.to_string(),
        "the NVIDIA driver (CUDA 11.4) has no `cuLaunchKernelEx`, which came with CUDA 11.8; install a newer driver"
    );
    // One that has all of ours but not what cudarc would call, and panic over.
    let error = fake("partial", 0, 12000, FUNCTIONS).unwrap();
    assert!(matches!(error, CudaError::MissingSymbol { symbol: "cuDevicePrimaryCtxRetain", .. }), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn tensor_maps_need_a_driver_that_knows_them() {
    let source = "unsigned cuInit(unsigned f) { return 0; }\n\
                  unsigned cuDriverGetVersion(int *v) { *v = 11080; return 0; }\n";
    let called = CUDARC.iter().chain(CUDARC_EVENTS).map(|(symbol, _)| *symbol);
    let all = FUNCTIONS.iter().copied().chain(called);
    let source = all.fold(source.to_string(), |s, f| s + &format!("unsigned {f}(void) {{ return 0; }}\n"));
    let Some(path) = library("whole", &source) else { return };
    let driver = Driver::open(&[path]).unwrap_or_else(|e| panic!("{e}"));
    let error = driver.encode_tiled().err().unwrap();
    assert!(error.to_string().contains("(CUDA 11.8) has no `cuTensorMapEncodeTiled`, which came with CUDA 12.0"));
}
