//! cuDNN and cuBLAS, opened where they are, to be timed beside candidates.
//!
//! Nothing is linked: a library is opened when it is asked for, and what is missing is an error that says what was looked
//! for. The functions are those of cuDNN's legacy convolution interface, which versions 8 and 9 have alike, and of cuBLAS.
//!
//! This is the only file of the crate with `unsafe`: it calls C.
#![allow(unsafe_code)]
#![warn(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

use crate::tune::measure::Peer;
use kernel_gen_runtime::cuda::CudaError;
use kernel_gen_runtime::cuda::candidate::{Bench, Graph, Guarded};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::fmt;

/// A handle of a library, a descriptor, or a stream.
type Handle = *mut c_void;

/// File names of a library, the most general first.
fn files(peer: Peer) -> &'static [&'static str] {
    match peer {
        Peer::Cudnn | Peer::CudnnFused => &["libcudnn.so", "libcudnn.so.9", "libcudnn.so.8"],
        Peer::Cublas => &["libcublas.so", "libcublas.so.13", "libcublas.so.12", "libcublas.so.11"],
    }
}

/// Why a peer was not timed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PeerError {
    /// The library is not there.
    Absent {
        /// Which.
        kind: Peer,
    },
    /// The library lacks a function.
    Function {
        /// Which library.
        kind: Peer,
        /// The function.
        name: &'static str,
    },
    /// A call failed.
    Call {
        /// The function.
        name: &'static str,
        /// Its status.
        status: c_int,
    },
    /// A buffer is smaller than the shape says.
    Buffer {
        /// Bytes that the shape needs.
        needed: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// The device failed.
    Cuda(CudaError),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::Absent { kind } => write!(
                f,
                "{} is not here: none of {} is on the loader's path; install it, or add its folder to LD_LIBRARY_PATH",
                kind.name(),
                files(*kind).join(", ")
            ),
            PeerError::Function { kind, name } => {
                write!(f, "{} has no function {name}; a version from 8 (cuDNN) or 11 (cuBLAS) has it", kind.name())
            }
            PeerError::Call { name, status } => write!(f, "{name} failed with status {status}"),
            PeerError::Buffer { needed, given } => write!(f, "a buffer has {given} bytes and {needed} are needed"),
            PeerError::Cuda(error) => error.fmt(f),
        }
    }
}

impl From<CudaError> for PeerError {
    fn from(error: CudaError) -> Self {
        PeerError::Cuda(error)
    }
}

/// The type of a layer's elements; sums are in 32 bits always.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerType {
    /// 32 bits, with products and sums in 32 bits: no tf32.
    F32,
    /// 32 bits in memory, products of tf32.
    Tf32,
    /// 16 bits.
    F16,
    /// bfloat16.
    Bf16,
}

impl PeerType {
    fn bytes(self) -> usize {
        if matches!(self, PeerType::F32 | PeerType::Tf32) { 4 } else { 2 }
    }

    /// `cudnnDataType_t`.
    fn cudnn(self) -> c_int {
        match self {
            PeerType::F32 | PeerType::Tf32 => 0,
            PeerType::F16 => 2,
            PeerType::Bf16 => 9,
        }
    }

    /// `cudaDataType_t`.
    fn cublas(self) -> c_int {
        match self {
            PeerType::F32 | PeerType::Tf32 => 0,
            PeerType::F16 => 2,
            PeerType::Bf16 => 14,
        }
    }
}

/// A convolution: NCHW with OIHW weights, or NHWC with OHWI weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerConv {
    /// The type of all three tensors.
    pub(super) dtype: PeerType,
    /// Whether channels are innermost.
    pub(super) nhwc: bool,
    /// Batch, input channels, height, width.
    pub(super) input: [i32; 4],
    /// Output channels, input channels of a group, height, width.
    pub(super) filter: [i32; 4],
    /// Output height and width.
    pub(super) output: [i32; 2],
    /// Rows and columns of padding, the same on both sides.
    pub(super) padding: [i32; 2],
    /// Steps along height and width.
    pub(super) stride: [i32; 2],
    /// Distance of the filter's elements.
    pub(super) dilation: [i32; 2],
    /// Groups of channels.
    pub(super) groups: i32,
    /// What follows the convolution in the same call; `None` is the bare operator.
    pub(super) fused: Option<PeerEpilogue>,
}

/// What cuDNN adds to a convolution in the same call, besides a bias for each channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerEpilogue {
    /// Whether a tensor like the output is added.
    pub(super) residual: bool,
    /// Whether negative results become zero.
    pub(super) relu: bool,
}

/// A row-major matrix product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerProduct {
    /// The type of all three matrices.
    pub(super) dtype: PeerType,
    /// Matrices in each operand.
    pub(super) batch: i32,
    /// Rows of the result, columns of the result, length of the sums.
    pub(super) size: [i32; 3],
    /// Whether the operands are stored transposed.
    pub(super) transposed: [bool; 2],
}

/// A way of a library to compute something.
pub(super) struct PeerWay<'p> {
    call: Call<'p>,
    name: String,
    workspace: Option<Guarded>,
    /// Bytes of each buffer that it is called with.
    bytes: Vec<usize>,
}

impl PeerWay<'_> {
    /// What the library calls it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it also computes what follows the operator.
    pub(super) fn is_fused(&self) -> bool {
        matches!(&self.call, Call::Convolution { layer, .. } if layer.fused.is_some())
    }
}

enum Call<'p> {
    Convolution { dnn: &'p Dnn, layer: Layer<'p>, algorithm: c_int },
    Product { blas: &'p Blas, product: PeerProduct },
}

macro_rules! library {
    ($(#[$meta:meta])* $name:ident of $kind:expr, { $($field:ident = $symbol:literal: fn($($t:ty),*);)* }) => {
        $(#[$meta])*
        struct $name {
            /// The library's own state.
            handle: Handle,
            $($field: unsafe extern "C" fn($($t),*) -> c_int,)*
            /// Stays open as long as its functions are known.
            _library: Library,
        }

        impl $name {
            fn resolve() -> Result<$name, PeerError> {
                // SAFETY: opening the vendor's library runs what it does when it is loaded, as linking it would.
                let mut found = files($kind).iter().filter_map(|file| unsafe { Library::new(*file) }.ok());
                let library = found.next().ok_or(PeerError::Absent { kind: $kind })?;
                Ok($name {
                    handle: std::ptr::null_mut(),
                    $(
                        // SAFETY: the function of this name has this signature in all versions that have it.
                        $field: unsafe { library.get($symbol.as_bytes()) }
                            .map(|f| *f)
                            .map_err(|_| PeerError::Function { kind: $kind, name: $symbol })?,
                    )*
                    _library: library,
                })
            }
        }
    };
}

library! {
    /// cuDNN. An enumeration is its number in the headers.
    Dnn of Peer::Cudnn, {
        create = "cudnnCreate": fn(*mut Handle);
        destroy = "cudnnDestroy": fn(Handle);
        set_stream = "cudnnSetStream": fn(Handle, Handle);
        create_tensor = "cudnnCreateTensorDescriptor": fn(*mut Handle);
        destroy_tensor = "cudnnDestroyTensorDescriptor": fn(Handle);
        set_tensor = "cudnnSetTensor4dDescriptor": fn(Handle, c_int, c_int, c_int, c_int, c_int, c_int);
        create_filter = "cudnnCreateFilterDescriptor": fn(*mut Handle);
        destroy_filter = "cudnnDestroyFilterDescriptor": fn(Handle);
        set_filter = "cudnnSetFilter4dDescriptor": fn(Handle, c_int, c_int, c_int, c_int, c_int, c_int);
        create_convolution = "cudnnCreateConvolutionDescriptor": fn(*mut Handle);
        destroy_convolution = "cudnnDestroyConvolutionDescriptor": fn(Handle);
        set_convolution = "cudnnSetConvolution2dDescriptor":
            fn(Handle, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int);
        set_groups = "cudnnSetConvolutionGroupCount": fn(Handle, c_int);
        set_math = "cudnnSetConvolutionMathType": fn(Handle, c_int);
        workspace = "cudnnGetConvolutionForwardWorkspaceSize":
            fn(Handle, Handle, Handle, Handle, Handle, c_int, *mut usize);
        create_activation = "cudnnCreateActivationDescriptor": fn(*mut Handle);
        destroy_activation = "cudnnDestroyActivationDescriptor": fn(Handle);
        set_activation = "cudnnSetActivationDescriptor": fn(Handle, c_int, c_int, f64);
        fused = "cudnnConvolutionBiasActivationForward":
            fn(Handle, *const f32, Handle, *const c_void, Handle, *const c_void, Handle, c_int, *mut c_void, usize,
               *const f32, Handle, *const c_void, Handle, *const c_void, Handle, Handle, *mut c_void);
        forward = "cudnnConvolutionForward":
            fn(Handle, *const f32, Handle, *const c_void, Handle, *const c_void, Handle, c_int, *mut c_void, usize,
               *const f32, Handle, *mut c_void);
    }
}

library! {
    /// cuBLAS.
    Blas of Peer::Cublas, {
        create = "cublasCreate_v2": fn(*mut Handle);
        destroy = "cublasDestroy_v2": fn(Handle);
        set_stream = "cublasSetStream_v2": fn(Handle, Handle);
        gemm = "cublasGemmStridedBatchedEx":
            fn(Handle, c_int, c_int, c_int, c_int, c_int, *const f32, *const c_void, c_int, c_int, i64, *const c_void,
               c_int, c_int, i64, *const f32, *mut c_void, c_int, c_int, i64, c_int, c_int, c_int);
    }
}

impl Drop for Dnn {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle was made by this library and nothing uses it any more.
            unsafe { (self.destroy)(self.handle) };
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: as above.
            unsafe { (self.destroy)(self.handle) };
        }
    }
}

fn done(name: &'static str, status: c_int) -> Result<(), PeerError> {
    if status == 0 { Ok(()) } else { Err(PeerError::Call { name, status }) }
}

/// The descriptors of a convolution. They are destroyed with the value.
struct Layer<'p> {
    dnn: &'p Dnn,
    x: Handle,
    y: Handle,
    filter: Handle,
    convolution: Handle,
    /// The descriptors of what follows: bias and activation, and whether a residual is added.
    fused: Option<(Handle, Handle, bool)>,
}

impl Drop for Layer<'_> {
    fn drop(&mut self) {
        let dnn = self.dnn;
        let all = [
            (dnn.destroy_tensor, self.x),
            (dnn.destroy_tensor, self.y),
            (dnn.destroy_filter, self.filter),
            (dnn.destroy_convolution, self.convolution),
        ];
        let fused = self
            .fused
            .iter()
            .flat_map(|(bias, activation, _)| [(dnn.destroy_tensor, *bias), (dnn.destroy_activation, *activation)]);
        for (destroy, descriptor) in all.into_iter().chain(fused).filter(|(_, d)| !d.is_null()) {
            // SAFETY: each was made by its own function of this library, and nothing uses it any more.
            unsafe { destroy(descriptor) };
        }
    }
}

impl<'p> Layer<'p> {
    fn new(dnn: &'p Dnn, conv: &PeerConv) -> Result<Layer<'p>, PeerError> {
        let null = std::ptr::null_mut;
        let mut l = Layer { dnn, x: null(), y: null(), filter: null(), convolution: null(), fused: None };
        let (format, data) = (c_int::from(conv.nhwc), conv.dtype.cudnn());
        let ([n, c, h, w], [o, i, kh, kw], [oh, ow]) = (conv.input, conv.filter, conv.output);
        let ([ph, pw], [sh, sw], [dh, dw]) = (conv.padding, conv.stride, conv.dilation);
        // `CUDNN_FMA_MATH` keeps 32-bit products exact; `CUDNN_TENSOR_OP_MATH` is what tf32 and 16-bit types want.
        let math = if conv.dtype == PeerType::F32 { 3 } else { 1 };
        // `CUDNN_CROSS_CORRELATION`, and sums as `CUDNN_DATA_FLOAT`.
        let (mode, sums) = (1, 0);
        // SAFETY: every descriptor is made before it is set, and the pointers are to fields of a local.
        unsafe {
            done("cudnnCreateTensorDescriptor", (dnn.create_tensor)(&mut l.x))?;
            done("cudnnCreateTensorDescriptor", (dnn.create_tensor)(&mut l.y))?;
            done("cudnnCreateFilterDescriptor", (dnn.create_filter)(&mut l.filter))?;
            done("cudnnCreateConvolutionDescriptor", (dnn.create_convolution)(&mut l.convolution))?;
            done("cudnnSetTensor4dDescriptor", (dnn.set_tensor)(l.x, format, data, n, c, h, w))?;
            done("cudnnSetTensor4dDescriptor", (dnn.set_tensor)(l.y, format, data, n, o, oh, ow))?;
            done("cudnnSetFilter4dDescriptor", (dnn.set_filter)(l.filter, data, format, o, i, kh, kw))?;
            let set = (dnn.set_convolution)(l.convolution, ph, pw, sh, sw, dh, dw, mode, sums);
            done("cudnnSetConvolution2dDescriptor", set)?;
            done("cudnnSetConvolutionGroupCount", (dnn.set_groups)(l.convolution, conv.groups))?;
            done("cudnnSetConvolutionMathType", (dnn.set_math)(l.convolution, math))?;
            if let Some(epilogue) = conv.fused {
                let (bias, activation, _) = l.fused.insert((null(), null(), epilogue.residual));
                done("cudnnCreateTensorDescriptor", (dnn.create_tensor)(bias))?;
                done("cudnnCreateActivationDescriptor", (dnn.create_activation)(activation))?;
                done("cudnnSetTensor4dDescriptor", (dnn.set_tensor)(*bias, format, data, 1, o, 1, 1))?;
                // `CUDNN_ACTIVATION_RELU` or `CUDNN_ACTIVATION_IDENTITY`; `CUDNN_NOT_PROPAGATE_NAN`.
                let mode = if epilogue.relu { 1 } else { 5 };
                done("cudnnSetActivationDescriptor", (dnn.set_activation)(*activation, mode, 0, 0.0))?;
            }
        }
        Ok(l)
    }
}

/// The libraries that are open.
pub(super) struct Peers {
    dnn: Option<Dnn>,
    blas: Option<Blas>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peers {{ cudnn: {}, cublas: {} }}", self.dnn.is_some(), self.blas.is_some())
    }
}

/// Memory that a way may use: more than any of them wants for a layer of the usual networks.
const MOST_WORKSPACE: usize = 2 << 30;

/// `cudnnConvolutionFwdAlgo_t`: number and name of those that a forward convolution may have.
const ALGORITHMS: [(c_int, &str); 7] = [
    (0, "implicit_gemm"),
    (1, "implicit_precomp_gemm"),
    (2, "gemm"),
    (4, "fft"),
    (5, "fft_tiling"),
    (6, "winograd"),
    (7, "winograd_nonfused"),
];

impl Peers {
    /// Opens a library for a GPU.
    ///
    /// # Errors
    /// If it is not there, or does not want to work on this GPU.
    pub(super) fn open(bench: &Bench, kind: Peer) -> Result<Peers, PeerError> {
        let stream = bench.raw_stream()?;
        let mut peers = Peers { dnn: None, blas: None };
        // SAFETY: a handle is written before it is used, and the stream lives as long as the bench, which the ways of
        // this library are launched on.
        unsafe {
            match kind {
                Peer::Cudnn | Peer::CudnnFused => {
                    let mut dnn = Dnn::resolve()?;
                    done("cudnnCreate", (dnn.create)(&mut dnn.handle))?;
                    done("cudnnSetStream", (dnn.set_stream)(dnn.handle, stream))?;
                    peers.dnn = Some(dnn);
                }
                Peer::Cublas => {
                    let mut blas = Blas::resolve()?;
                    done("cublasCreate_v2", (blas.create)(&mut blas.handle))?;
                    done("cublasSetStream_v2", (blas.set_stream)(blas.handle, stream))?;
                    peers.blas = Some(blas);
                }
            }
        }
        Ok(peers)
    }

    /// Every algorithm of cuDNN that serves the convolution; none if cuDNN is not open.
    ///
    /// # Errors
    /// If cuDNN does not take the shape, or the GPU has no memory for a workspace.
    pub(super) fn convolutions(&self, bench: &Bench, conv: &PeerConv) -> Result<Vec<PeerWay<'_>>, PeerError> {
        let Some(dnn) = &self.dnn else { return Ok(vec![]) };
        bench.raw_stream()?;
        let size = |dims: &[i32]| dims.iter().map(|d| usize::try_from(*d).unwrap_or(0)).product::<usize>();
        let out = [conv.input[0], conv.filter[0], conv.output[0], conv.output[1]];
        let mut sizes = vec![size(&conv.input), size(&conv.filter), size(&out)];
        if let Some(epilogue) = conv.fused {
            sizes.push(size(&out[1..2]));
            sizes.extend(epilogue.residual.then(|| size(&out)));
        }
        let bytes: Vec<usize> = sizes.into_iter().map(|n| n * conv.dtype.bytes()).collect();
        let mut ways = vec![];
        for (algorithm, name) in ALGORITHMS {
            let layer = Layer::new(dnn, conv)?;
            let mut needed = 0;
            // SAFETY: all descriptors are set, and the pointer is to a local.
            let status = unsafe {
                (dnn.workspace)(dnn.handle, layer.x, layer.filter, layer.convolution, layer.y, algorithm, &mut needed)
            };
            // An algorithm that does not serve the layer is no failure.
            if status != 0 || needed > MOST_WORKSPACE {
                continue;
            }
            let workspace = (needed > 0).then(|| bench.poisoned(needed)).transpose()?;
            let call = Call::Convolution { dnn, layer, algorithm };
            let fused = if conv.fused.is_some() { ", fused" } else { "" };
            ways.push(PeerWay { call, name: format!("cuDNN {name}{fused}"), workspace, bytes: bytes.clone() });
        }
        Ok(ways)
    }

    /// The product of cuBLAS, with the algorithm that it chooses; none if cuBLAS is not open.
    pub(super) fn products(&self, product: &PeerProduct) -> Vec<PeerWay<'_>> {
        let [m, n, k] = product.size.map(|d| usize::try_from(d).unwrap_or(0));
        let batch = usize::try_from(product.batch).unwrap_or(0);
        let bytes = [m * k, k * n, m * n].map(|count| batch * count * product.dtype.bytes());
        let way = |blas| {
            let call = Call::Product { blas, product: *product };
            PeerWay { call, name: "cuBLAS".to_string(), workspace: None, bytes: bytes.to_vec() }
        };
        self.blas.iter().map(way).collect()
    }
}

impl PeerWay<'_> {
    /// Queues what a library does. The buffers are both operands and the result, and of a fused call the bias and, if there is
    /// one, the residual.
    ///
    /// # Errors
    /// If a buffer is missing or too small, or the library refuses.
    pub(super) fn launch(&self, bench: &Bench, buffers: &[&Guarded]) -> Result<(), PeerError> {
        bench.raw_stream()?;
        for (i, needed) in self.bytes.iter().copied().enumerate() {
            let given = buffers.get(i).map_or(0, |buffer| buffer.bytes());
            if given < needed {
                return Err(PeerError::Buffer { needed, given });
            }
        }
        let at = |buffer: &Guarded| std::ptr::without_provenance_mut::<c_void>(buffer.address() as usize);
        let [x, w, y, epilogue @ ..] = buffers else {
            return Err(PeerError::Buffer { needed: self.bytes[0], given: 0 });
        };
        let [x, w, y] = [x, w, y].map(|buffer| at(buffer));
        let (one, zero) = (1.0f32, 0.0f32);
        match &self.call {
            Call::Convolution { dnn, layer, algorithm } => {
                let (memory, bytes) = self.workspace.as_ref().map_or((std::ptr::null_mut(), 0), |m| (at(m), m.bytes()));
                if let Some((bias, activation, residual)) = layer.fused {
                    // Without a residual the output stands in its place, by a factor of zero.
                    let (factor, z) = if residual { (&one, at(epilogue[1])) } else { (&zero, y) };
                    // SAFETY: the buffers have the bytes that the descriptors state, the workspace what was asked for, and the
                    // scalars live through the call.
                    let status = unsafe {
                        (dnn.fused)(
                            dnn.handle,
                            &one,
                            layer.x,
                            x,
                            layer.filter,
                            w,
                            layer.convolution,
                            *algorithm,
                            memory,
                            bytes,
                            factor,
                            layer.y,
                            z,
                            bias,
                            at(epilogue[0]),
                            activation,
                            layer.y,
                            y,
                        )
                    };
                    return done("cudnnConvolutionBiasActivationForward", status);
                }
                // SAFETY: as above.
                let status = unsafe {
                    (dnn.forward)(
                        dnn.handle,
                        &one,
                        layer.x,
                        x,
                        layer.filter,
                        w,
                        layer.convolution,
                        *algorithm,
                        memory,
                        bytes,
                        &zero,
                        layer.y,
                        y,
                    )
                };
                done("cudnnConvolutionForward", status)
            }
            Call::Product { blas, product } => {
                let [m, n, k] = product.size;
                let [ta, tb] = product.transposed;
                let data = product.dtype.cublas();
                // `CUBLAS_COMPUTE_32F`: products of 32-bit operands are not rounded; `CUBLAS_COMPUTE_32F_FAST_TF32`: they
                // are. `CUBLAS_GEMM_DEFAULT`.
                let compute = if product.dtype == PeerType::Tf32 { 77 } else { 68 };
                let algorithm = -1;
                let step = |a: c_int, b: c_int| i64::from(a) * i64::from(b);
                // Row-major `c = a b` is column-major `c' = b' a'`.
                // SAFETY: the matrices have these sizes, and the scalars live through the call.
                let status = unsafe {
                    (blas.gemm)(
                        blas.handle,
                        c_int::from(tb),
                        c_int::from(ta),
                        n,
                        m,
                        k,
                        &one,
                        w,
                        data,
                        if tb { k } else { n },
                        step(k, n),
                        x,
                        data,
                        if ta { m } else { k },
                        step(m, k),
                        &zero,
                        y,
                        data,
                        n,
                        step(m, n),
                        product.batch,
                        compute,
                        algorithm,
                    )
                };
                done("cublasGemmStridedBatchedEx", status)
            }
        }
    }

    /// Records `calls` calls, with each set of buffers in turn. A call has been launched before.
    ///
    /// # Errors
    /// As [`launch`](PeerWay::launch), and if the driver cannot record the calls.
    pub(super) fn graph<'a>(
        &'a self,
        bench: &'a Bench,
        sets: &'a [Vec<&'a Guarded>],
        calls: usize,
    ) -> Result<Graph<'a>, PeerError> {
        let queue = move || sets.iter().cycle().take(calls).try_for_each(|set| self.launch(bench, set));
        // SAFETY: the calls use `sets` and the library's own workspace, which `self` holds; the closure borrows both for `'a`.
        unsafe { bench.record(calls, queue) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_the_files_that_were_looked_for() {
        for peer in Peer::ALL {
            let text = PeerError::Absent { kind: peer }.to_string();
            assert!(text.starts_with(&format!("{} is not here: none of lib", peer.name())), "{text}");
            assert!(files(peer).iter().all(|file| text.contains(file)), "{text}");
        }
        if let Err(error) = Blas::resolve() {
            println!("[SKIP] part: {error}");
            assert!(matches!(error, PeerError::Absent { kind: Peer::Cublas } | PeerError::Function { .. }), "{error}");
        }
    }
}
