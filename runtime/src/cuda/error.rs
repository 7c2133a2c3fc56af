//! What can go wrong with a GPU, each with what to do about it.

use std::fmt;

/// Why a GPU could not be used, or a launch on one failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not on this machine.
    NoDriver {
        /// What the loader said.
        reason: String,
    },
    /// A library of the driver's name does not have a function that every driver has.
    NotADriver {
        /// The library.
        library: String,
        /// The function that it lacks.
        symbol: &'static str,
    },
    /// The library is the toolkit's stub, which is only for linking.
    Stub {
        /// The library.
        library: String,
    },
    /// The driver is there, but no device is visible.
    NoDevice,
    /// There is no device of that number.
    NoSuchDevice {
        /// The number.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The driver is older than what is needed.
    DriverTooOld {
        /// The CUDA version that the driver supports: major, minor.
        driver: (i32, i32),
        /// The version that is needed.
        needed: (i32, i32),
        /// What needs it.
        what: String,
    },
    /// The driver does not have a function that is needed.
    MissingSymbol {
        /// The function.
        symbol: &'static str,
        /// The CUDA version that the driver supports.
        driver: (i32, i32),
        /// The version that brought the function.
        since: (i32, i32),
    },
    /// The driver refused a call.
    Driver {
        /// The function that was called.
        call: &'static str,
        /// Its error code.
        code: u32,
        /// The code's name.
        name: String,
    },
    /// There is GPU code for the workload, but none that this device runs.
    NoVariant {
        /// The workload.
        workload: &'static str,
        /// The device's compute capability.
        device: (i32, i32),
        /// The architectures there is code for.
        built: Vec<&'static str>,
    },
    /// The driver does not take the code.
    Image {
        /// The kernel.
        kernel: &'static str,
        /// The device's compute capability.
        device: (i32, i32),
        /// What the driver said.
        reason: String,
    },
    /// A buffer lies in the memory of another device, or belongs to another context.
    ForeignBuffer {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        param: &'static str,
    },
    /// A buffer does not start where vector accesses may.
    Misaligned {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        param: &'static str,
        /// The multiple of bytes that its address must be.
        align: u64,
    },
    /// A weight was packed on another device, or for other code.
    ForeignPack {
        /// The workload.
        workload: &'static str,
    },
    /// A first launch would have to load code or allocate while the stream is being captured.
    ColdCapture {
        /// The workload.
        workload: &'static str,
    },
    /// The default stream cannot be captured in a graph.
    CaptureDefaultStream,
    /// A capture without a launch on the stream that was captured.
    EmptyCapture,
    /// While launches were captured, something happened that cannot be replayed: memory was allocated or freed, say.
    NotCapturable,
    /// Something would be queued on a stream that another thread captures, or another device made of the same stream.
    Captured {
        /// The workload that was to be launched, or the function that was called.
        call: &'static str,
    },
    /// A launch on another device than the one that this thread captures.
    LaunchElsewhere {
        /// The workload.
        workload: &'static str,
    },
    /// A graph cannot keep the memory of an argument: it is a view of a slice of cudarc's, which others own.
    Unowned {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        param: &'static str,
    },
    /// Something else than launches of this crate was captured, whose memory the graph cannot keep.
    ForeignNodes {
        /// Nodes of the graph that are no launches of this crate.
        nodes: usize,
    },
    /// The slice of a tensor was asked for while a graph uses its memory.
    InGraph,
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::NoDriver { reason } => write!(
                f,
                "there is no NVIDIA driver on this machine ({reason}); install the driver, or give the container the \
                 GPU, or run on `Cpu`"
            ),
            CudaError::NotADriver { library, symbol } => write!(
                f,
                "`{library}` is not an NVIDIA driver: it has no `{symbol}`; remove it from the library path, or \
                 install the driver again"
            ),
            CudaError::Stub { library } => write!(
                f,
                "`{library}` is the CUDA toolkit's link stub and no driver; take the toolkit's `lib64/stubs` off \
                 LD_LIBRARY_PATH, or install the driver"
            ),
            CudaError::NoDevice => f.write_str(
                "the NVIDIA driver sees no GPU; check CUDA_VISIBLE_DEVICES and `nvidia-smi`, or run on `Cpu`",
            ),
            CudaError::NoSuchDevice { ordinal, count } => {
                write!(f, "there is no GPU {ordinal}: the driver shows {count}, counted from 0")
            }
            CudaError::DriverTooOld { driver, needed, what } => write!(
                f,
                "the NVIDIA driver supports CUDA {}.{}, but {what} needs {}.{}; install a newer driver, or build with \
                 an older CUDA compiler",
                driver.0, driver.1, needed.0, needed.1
            ),
            CudaError::MissingSymbol { symbol, driver, since } => write!(
                f,
                "the NVIDIA driver (CUDA {}.{}) has no `{symbol}`, which came with CUDA {}.{}; install a newer driver",
                driver.0, driver.1, since.0, since.1
            ),
            CudaError::Driver { call, code, name } => {
                write!(f, "`{call}` failed with CUDA error {code} ({name})")?;
                match code {
                    2 => f.write_str("; free memory of the GPU, or use smaller buffers"),
                    803 => f.write_str(
                        "; the driver's library and its kernel module differ: restart the machine, or install the \
                         driver again",
                    ),
                    804 => f.write_str("; this GPU does not take a forward-compatibility package: remove it"),
                    // Errors of kernels that ran earlier; the context is lost with them.
                    700 | 702 | 715..=719 => f.write_str(
                        "; a kernel that ran before has failed, and nothing more runs in this process's context: run \
                         the program under `compute-sanitizer` to see which",
                    ),
                    _ => Ok(()),
                }
            }
            CudaError::NoVariant { workload, device, built } if built.is_empty() => write!(
                f,
                "there is no GPU code for `{workload}` (this device has compute capability {}.{}); list its \
                 architecture under `[targets] cuda` in the spec and build again",
                device.0, device.1
            ),
            CudaError::NoVariant { workload, device, built } => write!(
                f,
                "`{workload}` was built for {}, which this GPU (compute capability {}.{}) does not run; add its \
                 architecture to `[targets] cuda` in the spec",
                built.join(", "),
                device.0,
                device.1
            ),
            CudaError::Image { kernel, device, reason } => write!(
                f,
                "the driver does not take the code of `{kernel}` on a GPU of compute capability {}.{}: {reason}",
                device.0, device.1
            ),
            CudaError::ForeignBuffer { workload, param } => write!(
                f,
                "`{workload}`: the buffer of `{param}` belongs to another GPU or another context than the device it \
                 was launched on; copy it there, or launch on its own device"
            ),
            CudaError::Misaligned { workload, param, align } => write!(
                f,
                "`{workload}`: the buffer of `{param}` does not start at a multiple of {align} bytes; copy it to the \
                 start of a buffer of its own"
            ),
            CudaError::ForeignPack { workload } => write!(
                f,
                "the weight of `{workload}` was packed on another GPU, or by another workload; pack it with this \
                 device and `{workload}::pack_weight`"
            ),
            CudaError::ColdCapture { workload } => write!(
                f,
                "`{workload}` is launched for the first time while its stream is being captured, and its code cannot \
                 be loaded now; call `kernels::preload(&dev)` before the capture"
            ),
            CudaError::CaptureDefaultStream => f.write_str(
                "this device is the GPU's default stream, which cannot be captured in a graph; make the device with \
                 `Cuda::on_new_stream`, and all that it is to launch with by way of that device",
            ),
            CudaError::EmptyCapture => f.write_str(
                "nothing was launched on the captured device; launch on the device that the closure gets, or on clones \
                 of it",
            ),
            CudaError::NotCapturable => f.write_str(
                "what was captured cannot be replayed: besides launches, memory was allocated, freed or copied, \
                 something was waited for, or another graph was captured or replayed; make all buffers before the \
                 capture and pass them to it, and do the rest outside of it",
            ),
            CudaError::Captured { call } => write!(
                f,
                "`{call}`: another thread, or another device made of the same stream, captures this stream in a graph, \
                 of which this would become a part; wait until it has, or use a device of your own \
                 (`Cuda::on_new_stream`)"
            ),
            CudaError::LaunchElsewhere { workload } => write!(
                f,
                "`{workload}` is launched on another device than the one that this thread captures in a graph, and would \
                 run now and with no replay; launch on the device that the closure gets"
            ),
            CudaError::Unowned { workload, param } => write!(
                f,
                "`{workload}`: the buffer of `{param}` is a view of a slice, whose memory a graph cannot keep; use a \
                 `DeviceTensor` (`DeviceTensor::from_slice` makes one of the slice), or capture with \
                 `Cuda::capture_unowned` and keep the memory as long as the graph"
            ),
            CudaError::ForeignNodes { nodes } => write!(
                f,
                "{nodes} of the captured operations are no launches of generated kernels (copies, or kernels that were \
                 queued by other means), and a graph cannot keep their memory; queue them outside of the capture, or \
                 capture with `Cuda::capture_unowned` and keep the memory as long as the graph"
            ),
            CudaError::InGraph => f.write_str(
                "the slice of this tensor cannot be given away: a captured graph uses its memory; drop the graph \
                 first, or take its buffers out with `Graph::into_buffers`",
            ),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<CudaError> for crate::Error {
    fn from(error: CudaError) -> crate::Error {
        crate::Error::Cuda(error)
    }
}
