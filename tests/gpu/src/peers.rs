//! cuBLAS and cuDNN on the same buffers, as graphs to be replayed beside ours.

use crate::gpu::{Gpu, Guarded};
use anyhow::{Context, Result, bail, ensure};
use cudarc::cublas::{CudaBlas, sys as blas};
use cudarc::cudnn::sys as dnn;
use cudarc::driver::{CudaGraph, CudaSlice, DevicePtr};
use kernel_gen::ir::DType;
use kernel_gen::workload::{Conv2d, ConvLayout, Matmul, Op, Workload};
use std::ffi::{c_int, c_void};

/// Memory that a cuDNN algorithm may use: more than any of them wants here.
const WORKSPACE: usize = 2 << 30;

/// A peer's fastest way.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) graph: CudaGraph,
}

/// The vendor's libraries; handles stay open to the end of the program.
pub(crate) struct Peers {
    blas: Option<CudaBlas>,
    dnn: Option<dnn::cudnnHandle_t>,
    workspace: CudaSlice<u8>,
}

fn done(status: dnn::cudnnStatus_t) -> Result<()> {
    ensure!(status == dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS, "cuDNN says {status:?}");
    Ok(())
}

impl Peers {
    /// Opens what is there. What is missing is said.
    pub(crate) fn open(gpu: &Gpu) -> Result<Peers> {
        // SAFETY: it only tries to load the library.
        let blas = if unsafe { blas::is_culib_present() } { Some(CudaBlas::new(gpu.stream.clone())?) } else { None };
        // SAFETY: as above.
        let dnn = if unsafe { dnn::is_culib_present() } {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the handle is written before it is used.
            unsafe {
                done(dnn::cudnnCreate(&mut handle))?;
                done(dnn::cudnnSetStream(handle, gpu.stream.cu_stream().cast()))?;
                println!("cuDNN {}", dnn::cudnnGetVersion());
            }
            Some(handle)
        } else {
            None
        };
        for (name, found) in [("cuBLAS", blas.is_some()), ("cuDNN", dnn.is_some())] {
            if !found {
                println!("[SKIP] no {name}: its library is not on the loader's path");
            }
        }
        Ok(Peers { blas, dnn, workspace: gpu.stream.alloc_zeros(WORKSPACE)? })
    }

    /// The fastest way of the vendor's library, if it has one: `buffers` are the workload's parameters.
    pub(crate) fn fastest(&self, gpu: &Gpu, w: &Workload, buffers: &[Guarded], repeats: usize) -> Result<Option<Peer>> {
        let ways = match &w.op {
            Op::Matmul(m) => self.products(gpu, w, m, buffers, repeats)?,
            Op::Conv2d(c) => self.convolutions(gpu, w, c, buffers, repeats)?,
            // The vendor's library has no kernel for both in one.
            _ => vec![],
        };
        let graphs: Vec<&CudaGraph> = ways.iter().map(|p| &p.graph).collect();
        let times = gpu.time(&graphs, repeats)?;
        Ok(ways.into_iter().zip(times).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(peer, _)| peer))
    }

    /// Row-major `c = a b` is column-major `c' = b' a'`.
    fn products(&self, gpu: &Gpu, w: &Workload, m: &Matmul, buffers: &[Guarded], repeats: usize) -> Result<Vec<Peer>> {
        let Some(handle) = &self.blas else { return Ok(vec![]) };
        ensure!(m.batch == 1, "the suite times single products");
        let data = match w.dtype {
            DType::F16 => blas::cudaDataType::CUDA_R_16F,
            DType::Bf16 => blas::cudaDataType::CUDA_R_16BF,
            DType::F32 => blas::cudaDataType::CUDA_R_32F,
            other => bail!("cuBLAS with {other}"),
        };
        let side = |transposed| {
            if transposed { blas::cublasOperation_t::CUBLAS_OP_T } else { blas::cublasOperation_t::CUBLAS_OP_N }
        };
        let address = |i: usize| std::ptr::without_provenance_mut::<c_void>(buffers[i].address(gpu) as usize);
        let (one, zero) = (1.0f32, 0.0f32);
        let launch = || -> Result<()> {
            // SAFETY: the matrices have these sizes, and the scalars live through the call.
            unsafe {
                cudarc::cublas::result::gemm_ex(
                    *handle.handle(),
                    side(m.trans_b),
                    side(m.trans_a),
                    m.n as c_int,
                    m.m as c_int,
                    m.k as c_int,
                    std::ptr::from_ref(&one).cast(),
                    address(1),
                    data,
                    if m.trans_b { m.k } else { m.n } as c_int,
                    address(0),
                    data,
                    if m.trans_a { m.m } else { m.k } as c_int,
                    std::ptr::from_ref(&zero).cast(),
                    address(buffers.len() - 1),
                    data,
                    m.n as c_int,
                    blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                    blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                )?;
            }
            Ok(())
        };
        Ok(vec![Peer { name: "cuBLAS".into(), graph: gpu.graph(repeats, launch)? }])
    }

    /// Every algorithm that cuDNN offers for the layer, in the layout it shares with ours (HWCN has none; it is compared
    /// with NCHW). Weights have as many elements in any layout, and timing asks for no more.
    fn convolutions(
        &self,
        gpu: &Gpu,
        w: &Workload,
        c: &Conv2d,
        buffers: &[Guarded],
        repeats: usize,
    ) -> Result<Vec<Peer>> {
        let Some(handle) = self.dnn else { return Ok(vec![]) };
        let format = match c.layout {
            ConvLayout::Nhwc | ConvLayout::NhwcNc(_) => dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
            _ => dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
        };
        let data = match w.dtype {
            DType::F16 => dnn::cudnnDataType_t::CUDNN_DATA_HALF,
            DType::F32 => dnn::cudnnDataType_t::CUDNN_DATA_FLOAT,
            other => bail!("cuDNN with {other}"),
        };
        let math = match w.dtype {
            DType::F32 => dnn::cudnnMathType_t::CUDNN_FMA_MATH,
            _ => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        };
        let address = |i: usize| std::ptr::without_provenance_mut::<c_void>(buffers[i].address(gpu) as usize);
        let workspace = self.workspace.device_ptr(&gpu.stream).0;
        let n = |v: i64| v as c_int;
        let (mut x, mut y) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut filter, mut convolution) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: descriptors are made before they are set, and never used after this program's end; the buffers have the
        // sizes that the descriptors state.
        unsafe {
            done(dnn::cudnnCreateTensorDescriptor(&mut x))?;
            done(dnn::cudnnCreateTensorDescriptor(&mut y))?;
            done(dnn::cudnnCreateFilterDescriptor(&mut filter))?;
            done(dnn::cudnnCreateConvolutionDescriptor(&mut convolution))?;
            done(dnn::cudnnSetTensor4dDescriptor(x, format, data, n(c.n), n(c.ci), n(c.h), n(c.w)))?;
            done(dnn::cudnnSetTensor4dDescriptor(y, format, data, n(c.n), n(c.co), n(c.oh()), n(c.ow())))?;
            done(dnn::cudnnSetFilter4dDescriptor(filter, data, format, n(c.co), n(c.ci / c.groups), n(c.kh), n(c.kw)))?;
            done(dnn::cudnnSetConvolution2dDescriptor(
                convolution,
                n(c.padding[0]),
                n(c.padding[1]),
                n(c.stride[0]),
                n(c.stride[1]),
                n(c.dilation[0]),
                n(c.dilation[1]),
                dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                dnn::cudnnDataType_t::CUDNN_DATA_FLOAT,
            ))?;
            done(dnn::cudnnSetConvolutionGroupCount(convolution, n(c.groups)))?;
            done(dnn::cudnnSetConvolutionMathType(convolution, math))?;
        }
        use dnn::cudnnConvolutionFwdAlgo_t as Algo;
        let algorithms = [
            Algo::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
            Algo::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            Algo::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
            Algo::CUDNN_CONVOLUTION_FWD_ALGO_FFT,
            Algo::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
            Algo::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
            Algo::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
        ];
        let (one, zero) = (1.0f32, 0.0f32);
        let mut ways = vec![];
        for algorithm in algorithms {
            let mut bytes = 0;
            // SAFETY: all descriptors are set.
            let status = unsafe {
                dnn::cudnnGetConvolutionForwardWorkspaceSize(handle, x, filter, convolution, y, algorithm, &mut bytes)
            };
            // An algorithm that does not serve the layer is no failure.
            if done(status).is_err() || bytes > WORKSPACE {
                continue;
            }
            let launch = || -> Result<()> {
                // SAFETY: the buffers have the sizes that the descriptors state, the workspace what was asked for.
                done(unsafe {
                    dnn::cudnnConvolutionForward(
                        handle,
                        std::ptr::from_ref(&one).cast(),
                        x,
                        address(0),
                        filter,
                        address(1),
                        convolution,
                        algorithm,
                        std::ptr::without_provenance_mut(workspace as usize),
                        bytes,
                        std::ptr::from_ref(&zero).cast(),
                        y,
                        address(buffers.len() - 1),
                    )
                })
            };
            if launch().is_err() {
                continue;
            }
            gpu.stream.synchronize().with_context(|| format!("cuDNN's {algorithm:?}"))?;
            let name = format!("{algorithm:?}").replace("CUDNN_CONVOLUTION_FWD_ALGO_", "cuDNN ").to_lowercase();
            ways.push(Peer { name: name.replace("cudnn", "cuDNN"), graph: gpu.graph(repeats, launch)? });
        }
        Ok(ways)
    }
}
