//! What can go wrong in a launch.

use crate::{DType, Isa};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

/// The result of a launch.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a view or a launch was refused. A refused launch has written nothing.
///
/// The message of each variant is complete: it includes that of its [`source`](std::error::Error::source).
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A slice does not have as many elements as its shape.
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// Elements in the slice.
        elements: usize,
    },
    /// An array has another shape than the view that was asked for.
    ArrayShape {
        /// Shape of the view.
        expected: Vec<usize>,
        /// Shape of the array.
        got: Vec<usize>,
    },
    /// An array is not dense and row-major.
    NotContiguous,
    /// No declared workload has these shapes.
    NoWorkload {
        /// The function that was called.
        function: &'static str,
        /// The shapes it was called with, by parameter.
        got: Vec<(&'static str, Vec<usize>)>,
        /// The workloads that exist: name and shapes.
        declared: Vec<String>,
    },
    /// Several declared workloads have these shapes and differ in something else.
    Ambiguous {
        /// The function that was called.
        function: &'static str,
        /// The workloads, each a module to call by name.
        workloads: Vec<&'static str>,
    },
    /// An argument has another element type or length than the parameter.
    Argument {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        param: &'static str,
        /// What the parameter holds.
        expected: (DType, usize),
        /// What came.
        got: (DType, usize),
    },
    /// There are fewer or more units (images, rows) than the workload is declared for.
    Units {
        /// The workload.
        workload: &'static str,
        /// How many came.
        got: usize,
        /// The fewest.
        least: usize,
        /// The most.
        most: usize,
    },
    /// The crate was built without code for this workload.
    NoCode {
        /// The workload.
        workload: &'static str,
        /// Why there is none.
        reason: &'static str,
    },
    /// There is code, but none that this device runs.
    NoVariant {
        /// The workload.
        workload: &'static str,
        /// The device's level.
        device: Isa,
        /// The levels there is code for.
        built: Vec<Isa>,
    },
    /// A weight was packed by another workload.
    ForeignPack {
        /// The workload that was launched.
        workload: &'static str,
        /// The one that packed.
        packed_by: &'static str,
    },
    /// A weight was packed for a level that this device does not run.
    PackedFor {
        /// The workload.
        workload: &'static str,
        /// The level it was packed for.
        packed: Isa,
        /// The device's level.
        device: Isa,
    },
    /// The asked instruction set level is not one that this machine runs.
    UnsupportedIsa {
        /// What was asked.
        asked: Isa,
        /// What the machine has.
        machine: Isa,
    },
    /// Memory for a tensor, a packed weight or a launch's workspace could not be allocated, on the CPU or on a GPU.
    OutOfMemory {
        /// Bytes of the allocation; `usize::MAX` if their number does not fit a `usize`.
        bytes: usize,
    },
    /// The bytes are not the weights of a network.
    Weights {
        /// The network.
        network: &'static str,
        /// Why not.
        reason: String,
    },
    /// The file of a network's weights cannot be read.
    WeightsFile {
        /// The network.
        network: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: IoError,
    },
    /// Something went wrong with a GPU.
    #[cfg(feature = "cuda")]
    Cuda(crate::CudaError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Length { shape, elements } => {
                let needed = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
                match needed {
                    Some(n) => {
                        write!(f, "a view of shape {shape:?} needs {n} elements, but the slice has {elements}")
                    }
                    None => write!(f, "a view of shape {shape:?} has more elements than memory can hold"),
                }
            }
            Error::ArrayShape { expected, got } => {
                write!(f, "an array of shape {got:?} is no view of shape {expected:?}")
            }
            Error::NotContiguous => write!(
                f,
                "the array is not dense and row-major; copy it into standard layout (`as_standard_layout`) first"
            ),
            Error::NoWorkload { function, got, declared } => {
                write!(f, "`{function}` is not declared for")?;
                for (name, shape) in got {
                    write!(f, " {name} {shape:?}")?;
                }
                write!(f, "; the spec declares:")?;
                for workload in declared {
                    write!(f, "\n  {workload}")?;
                }
                Ok(())
            }
            Error::Ambiguous { function, workloads } => write!(
                f,
                "several workloads of `{function}` have these shapes; call one by its name: {}",
                workloads.iter().map(|w| format!("`{w}::launch_unpacked`")).collect::<Vec<_>>().join(" or ")
            ),
            Error::Argument { workload, param, expected, got } => write!(
                f,
                "`{workload}`: parameter `{param}` holds {} elements of {}, but the argument holds {} of {}",
                expected.1, expected.0, got.1, got.0
            ),
            Error::Units { workload, got, least, most } => write!(
                f,
                "`{workload}` is declared for {least} to {most} images or rows, and was given {got}; declare more in the spec, or \
                 launch it several times"
            ),
            Error::NoCode { workload, reason } => write!(f, "there is no code for `{workload}`: {reason}"),
            Error::NoVariant { workload, device, built } => write!(
                f,
                "`{workload}` was built for {}, which this device ({device}) does not run; add its level to \
                 `[targets] cpu` in the spec",
                built.iter().map(|i| i.name()).collect::<Vec<_>>().join(", ")
            ),
            Error::ForeignPack { workload, packed_by } => {
                write!(f, "`{workload}` was given a weight that `{packed_by}` packed; pack it with `{workload}`")
            }
            Error::PackedFor { workload, packed, device } => write!(
                f,
                "the weight of `{workload}` was packed for {packed}, which this device ({device}) does not run; pack \
                 it with this device"
            ),
            Error::UnsupportedIsa { asked, machine } => {
                write!(f, "{asked} code does not run here: this machine has {machine}")
            }
            Error::OutOfMemory { bytes } => {
                write!(
                    f,
                    "{bytes} bytes of memory could not be allocated; free memory of the device, or use smaller shapes"
                )
            }
            Error::Weights { network, reason } => write!(f, "the weights of `{network}` cannot be used: {reason}"),
            Error::WeightsFile { network, path, cause } => {
                write!(f, "the weights of `{network}` cannot be used: `{}` cannot be read: {cause}", path.display())
            }
            #[cfg(feature = "cuda")]
            Error::Cuda(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::WeightsFile { cause, .. } => Some(&*cause.0),
            // The message is that of the inner error, which would appear twice in a chain of errors.
            #[cfg(feature = "cuda")]
            Error::Cuda(error) => error.source(),
            _ => None,
        }
    }
}

/// An [`io::Error`] that can be cloned and compared: two are equal if they have the same kind and the same message.
#[derive(Clone, Debug)]
pub struct IoError(Arc<io::Error>);

impl IoError {
    /// The error of the standard library.
    pub fn get(&self) -> &io::Error {
        &self.0
    }
}

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> IoError {
        IoError(Arc::new(error))
    }
}

impl PartialEq for IoError {
    fn eq(&self, other: &IoError) -> bool {
        self.0.kind() == other.0.kind() && self.to_string() == other.to_string()
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_cause_of_an_unreadable_file_is_its_source() {
        let cause = IoError::from(io::Error::from(io::ErrorKind::NotFound));
        let error = Error::WeightsFile { network: "net", path: "w.bin".into(), cause };
        assert_eq!(error, error.clone());
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
        assert!(Error::NotContiguous.source().is_none());
    }
}
