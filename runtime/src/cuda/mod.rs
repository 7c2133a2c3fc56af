//! NVIDIA GPUs (feature `cuda`).
//!
//! [`Cuda`] is a device as [`Cpu`](crate::Cpu) is: the same generated functions run on it, with buffers in its memory.
//!
//! ```no_run
//! use kernel_gen_runtime::cuda::{Cuda, DeviceTensor};
//! use kernel_gen_runtime::{D2, Tensor};
//!
//! match Cuda::new(0) {
//!     Ok(dev) => {
//!         let x = DeviceTensor::<f32, D2<2, 3>>::from_host(&dev, &Tensor::zeros())?;
//!         // kernels::relu(&dev, &x, &mut y)?;
//!         println!("{x:?}");
//!     }
//!     // One line: no driver, no device, a driver that is too old, and what to do about it.
//!     Err(error) => eprintln!("{error}"),
//! }
//! # Ok::<(), kernel_gen_runtime::Error>(())
//! ```
//!
//! Memory, streams and contexts are [cudarc](cudarc::driver)'s, so buffers come and go without copies between this and
//! other crates that use it. The program needs a driver and nothing else of CUDA when it runs, and nothing at all when
//! it is built. cudarc itself panics where the driver is missing; [`Cuda::probe`] and [`Cuda::new`] look first and
//! return a [`CudaError`].
//!
//! A program that was built without a CUDA compiler holds its kernels as source. Then NVRTC compiles each at its first use;
//! `KERNEL_GEN_NVRTC` names the library if it is not on the loader's path. Builds warn when they leave that to be done.
//!
//! # cudarc's versions and features
//! cudarc is asked for in the way that goes together with candle: bindings of the toolkit that is found when building,
//! or else the newest, loaded at run time. A program that wants certain bindings sets `CUDARC_CUDA_VERSION=12080` (or
//! another) when it is built. Launches call the driver's functions directly, by their names, so they do not depend on
//! that choice.

mod arch;
#[cfg(feature = "tune")]
pub mod candidate;
mod context;
mod device;
mod driver;
mod error;
mod graph;
mod image;
mod launch;
mod nvrtc;
mod owned;
mod probe;
mod recording;
mod slot;
mod table;
mod tensor;
mod tensor_map;

pub use arch::Arch;
pub use cudarc;
pub use device::Cuda;
pub use error::CudaError;
pub use graph::{Graph, Overlap};
pub use probe::{CudaDeviceInfo, CudaInfo};
pub use slot::Slot;
pub use table::{KernelArg, Launch, MAX_KERNEL_ARGS, MAX_TENSOR_MAPS, Pack, Program, TensorMapSpec, Variant};
pub use tensor::{
    AsDeviceView, AsDeviceViewMut, DeviceDynView, DeviceDynViewMut, DeviceTensor, DeviceView, DeviceViewMut,
};
