//! What GPUs there are, found out without ever panicking.

use super::{Cuda, CudaError, driver::Driver};
use std::ffi::{CStr, c_int};
use std::fmt;

/// The driver and its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CudaInfo {
    /// The newest CUDA version that the driver supports: major, minor.
    pub driver: (i32, i32),
    /// The devices, in the driver's order.
    pub devices: Vec<CudaDeviceInfo>,
}

/// One device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CudaDeviceInfo {
    /// The number that [`Cuda::new`] takes.
    pub ordinal: usize,
    /// The device's name.
    pub name: String,
    /// Compute capability: major, minor.
    pub compute_capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: i32,
    /// Device memory.
    pub memory_bytes: usize,
}

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
const CAPABILITY_MINOR: c_int = 76;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSOR_COUNT: c_int = 16;

impl Cuda {
    /// What this machine has: the driver and at least one device. Never panics, and creates no context.
    ///
    /// # Errors
    /// If there is no driver, no device, or a driver that is too old; the message says what to do. The same kernels
    /// run on [`Cpu`](crate::Cpu) then.
    pub fn probe() -> Result<CudaInfo, CudaError> {
        let driver = Driver::get()?;
        let mut count = 0;
        // SAFETY: the pointer is to a local; `Driver::get` has initialised the driver.
        driver.check("cuDeviceGetCount", unsafe { (driver.device_count)(&mut count) })?;
        if count <= 0 {
            return Err(CudaError::NoDevice);
        }
        let devices = (0..count).map(|i| device(driver, i)).collect::<Result<_, _>>()?;
        Ok(CudaInfo { driver: driver.version, devices })
    }
}

fn device(driver: &Driver, ordinal: c_int) -> Result<CudaDeviceInfo, CudaError> {
    let mut device = 0;
    // SAFETY: here and below, pointers are to locals, and sizes are theirs.
    driver.check("cuDeviceGet", unsafe { (driver.device_get)(&mut device, ordinal) })?;
    let mut name = [0u8; 256];
    // SAFETY: as above; the driver writes at most 255 characters and a 0.
    let code = unsafe { (driver.device_name)(name.as_mut_ptr().cast(), 255, device) };
    driver.check("cuDeviceGetName", code)?;
    let name = CStr::from_bytes_until_nul(&name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let attribute = |which: c_int| {
        let mut value = 0;
        // SAFETY: as above.
        driver.check("cuDeviceGetAttribute", unsafe { (driver.device_attribute)(&mut value, which, device) })?;
        Ok(value)
    };
    let mut memory_bytes = 0;
    // SAFETY: as above.
    driver.check("cuDeviceTotalMem", unsafe { (driver.device_memory)(&mut memory_bytes, device) })?;
    Ok(CudaDeviceInfo {
        ordinal: ordinal as usize,
        name,
        compute_capability: (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?),
        multiprocessors: attribute(MULTIPROCESSOR_COUNT)?,
        memory_bytes,
    })
}

impl fmt::Display for CudaInfo {
    /// One line for the driver and one for each device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVIDIA driver for CUDA {}.{}", self.driver.0, self.driver.1)?;
        for d in &self.devices {
            let (major, minor) = d.compute_capability;
            let gib = d.memory_bytes as f64 / (1u64 << 30) as f64;
            write!(
                f,
                "\nGPU {}: {}, compute capability {major}.{minor}, {} multiprocessors, {gib:.1} GiB",
                d.ordinal, d.name, d.multiprocessors
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_never_panics_and_says_what_there_is_or_why_there_is_nothing() {
        match Cuda::probe() {
            Ok(info) => {
                assert!(!info.devices.is_empty());
                let dev = Cuda::new(0).unwrap();
                assert_eq!(dev.compute_capability(), info.devices[0].compute_capability);
                let count = info.devices.len();
                let error = Cuda::new(count).err();
                assert_eq!(error, Some(CudaError::NoSuchDevice { ordinal: count, count }));
            }
            Err(error) => {
                println!("[SKIP] part: no GPU: {error}");
                assert_eq!(error.to_string().lines().count(), 1);
                assert_eq!(Cuda::new(0).err(), Some(error));
            }
        }
    }

    #[test]
    fn devices_print_in_one_line_each() {
        let device = CudaDeviceInfo {
            ordinal: 0,
            name: "NVIDIA H100".into(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 80 << 30,
        };
        let info = CudaInfo { driver: (13, 0), devices: vec![device] };
        assert_eq!(
            info.to_string(),
            "NVIDIA driver for CUDA 13.0\nGPU 0: NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80.0 GiB"
        );
    }
}
