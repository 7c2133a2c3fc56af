//! A generated kernel on the device.

use crate::gpu::{Gpu, Guarded};
use anyhow::{Context, Result};
use cudarc::driver::sys;
use cudarc::driver::{CudaFunction, CudaModule, CudaSlice, DevicePtr};
use cudarc::nvrtc::Ptx;
use kernel_gen::emit::cuda::{CudaSource, Launch, Param, TensorBase, TensorMap};
use kernel_gen::ir::DType;
use kernel_gen::toolchain::cuda::Artifact;
use std::ffi::c_void;
use std::sync::Arc;

/// Loaded code, its launches, and memory for its workspace.
pub(crate) struct Kernel {
    launches: Vec<(CudaFunction, Launch)>,
    workspace: CudaSlice<u8>,
    _module: Arc<CudaModule>,
}

impl Kernel {
    /// Loads compiled code.
    pub(crate) fn load(gpu: &Gpu, source: &CudaSource, artifact: &Artifact) -> Result<Kernel> {
        let image = match &artifact.cubin {
            Some(cubin) => Ptx::from_binary(cubin.clone()),
            None => Ptx::from_src(artifact.ptx.clone()),
        };
        let module = gpu.context.load_module(image)?;
        let mut launches = vec![];
        for launch in &source.launches {
            let function = module.load_function(&launch.symbol)?;
            if launch.dynamic_shared_bytes > 0 {
                let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                function.set_attribute(attribute, launch.dynamic_shared_bytes as i32)?;
            }
            launches.push((function, launch.clone()));
        }
        let workspace = gpu.stream.alloc_zeros(source.workspace_bytes.max(1) as usize)?;
        Ok(Kernel { launches, workspace, _module: module })
    }

    /// The kernel with its arguments: one buffer for each parameter.
    pub(crate) fn bind(&self, gpu: &Gpu, buffers: &[Guarded]) -> Result<Bound<'_>> {
        let workspace = self.workspace.device_ptr(&gpu.stream).0;
        let mut launches = vec![];
        for (function, launch) in &self.launches {
            let mut arguments = vec![];
            for param in &launch.params {
                arguments.push(match param {
                    Param::Buffer { index, .. } => {
                        let buffer = buffers.get(*index).context("a buffer for each parameter")?;
                        Argument::Address(buffer.address(gpu))
                    }
                    Param::Workspace { offset, .. } => Argument::Address(workspace + *offset as u64),
                    // Its first four bytes are the `int`.
                    Param::Units(n) => Argument::Address(*n as u64),
                    Param::TensorMap(map) => {
                        let base = match map.base {
                            TensorBase::Buffer(index) => {
                                buffers.get(index).context("a buffer for each parameter")?.address(gpu) + map.offset
                            }
                            TensorBase::Workspace(offset) => workspace + offset as u64,
                        };
                        Argument::Map(Box::new(encode(map, base)?))
                    }
                });
            }
            launches.push((function, launch, arguments));
        }
        Ok(Bound { launches })
    }
}

enum Argument {
    Address(u64),
    Map(Box<sys::CUtensorMap>),
}

/// Makes the copy engine's map of a tensor that starts at an address.
fn encode(map: &TensorMap, base: u64) -> Result<sys::CUtensorMap> {
    // SAFETY: a map is plain numbers, and the driver overwrites all of them.
    let mut out: sys::CUtensorMap = unsafe { std::mem::zeroed() };
    let swizzle = match map.swizzle {
        32 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    let element = match map.dtype {
        DType::F16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::Bf16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::F64 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DType::I8 | DType::U8 | DType::E4m3 | DType::E5m2 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        DType::I32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        _ => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    };
    // The driver wants an address even where it reads no stride.
    let strides = [map.strides.as_slice(), &[0]].concat();
    // SAFETY: the lists have as many numbers as the rank says, strides at least one less; the address is only stored.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut out,
            element,
            map.dims.len() as u32,
            base as *mut c_void,
            map.dims.as_ptr(),
            strides.as_ptr(),
            map.box_dims.as_ptr(),
            map.steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    code.result().with_context(|| format!("tensor map {map:?}"))?;
    Ok(out)
}

/// A kernel that can be launched any number of times.
pub(crate) struct Bound<'k> {
    launches: Vec<(&'k CudaFunction, &'k Launch, Vec<Argument>)>,
}

impl Bound<'_> {
    /// Queues its launches.
    pub(crate) fn launch(&self, gpu: &Gpu) -> Result<()> {
        for (function, launch, arguments) in &self.launches {
            let mut pointers: Vec<*mut c_void> = arguments
                .iter()
                .map(|a| match a {
                    Argument::Address(address) => std::ptr::from_ref(address).cast_mut().cast(),
                    Argument::Map(map) => std::ptr::from_ref(map.as_ref()).cast_mut().cast(),
                })
                .collect();
            let [gx, gy, gz] = launch.grid;
            let [bx, by, bz] = launch.block;
            // SAFETY: the kernel takes these arguments in this order (`Launch::params`), and the driver copies them before
            // the call returns.
            let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
            attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attribute.value.clusterDim.x = launch.cluster[0];
            attribute.value.clusterDim.y = launch.cluster[1];
            attribute.value.clusterDim.z = launch.cluster[2];
            let config = sys::CUlaunchConfig {
                gridDimX: gx,
                gridDimY: gy,
                gridDimZ: gz,
                blockDimX: bx,
                blockDimY: by,
                blockDimZ: bz,
                sharedMemBytes: launch.dynamic_shared_bytes,
                hStream: gpu.stream.cu_stream(),
                attrs: &mut attribute,
                numAttrs: u32::from(launch.cluster != [1; 3]),
            };
            // SAFETY: as above; attribute and configuration live through the call.
            let code = unsafe {
                sys::cuLaunchKernelEx(&config, function.cu_function(), pointers.as_mut_ptr(), std::ptr::null_mut())
            };
            code.result().with_context(|| format!("launch of {}", launch.symbol))?;
        }
        Ok(())
    }
}
