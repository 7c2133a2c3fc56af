//! Measurers: what becomes of a config on a device.
//!
//! [`for_target`] gives the measurer of a target on this machine. Threads turn configs into code (schedule, verify, lower,
//! emit, compile in processes of their own that end at a time limit); one more thread holds the device and runs what they
//! made, in a process of its own: a candidate may hang, crash or write where it likes, and costs that process, no more.
//!
//! A candidate is checked before it is timed: fresh random inputs, outputs that are poisoned, canaries around every
//! buffer, and each element of the result held against the `f64` reference and its bound. What is wrong with it becomes a
//! [`FailureKind`](crate::records::FailureKind), and the next one is run.

mod backend;
mod cores;
mod cpu;
mod cuda;
mod data;
mod error;
mod measurer;
mod options;
mod outcome;
mod peers;
mod pipeline;
mod pool;
mod provenance;
mod rounds;
mod sampling;

pub use cuda::serve;
pub use error::MeasureError;
pub use measurer::{Attached, Contest, JobId, Judged, Measurer, Repeated, Worker};
pub use options::{Edit, Emitted, Options};
pub use outcome::WireOutcome;
pub use peers::{Comparison, Peer, PeerTiming};
pub use provenance::Provenance;
pub use rounds::Rounds;
pub use sampling::Sampling;

use crate::target::{Device, Target};
use std::thread::Scope;

/// The measurer of a target. Its threads are the scope's: they end when the measurer is dropped, at the latest after the
/// time limits of what they are doing.
///
/// ```no_run
/// use kernel_gen::target::Target;
/// use kernel_gen::templates::Registry;
/// use kernel_gen::tune::measure::{self, JobId, Measurer};
/// use kernel_gen::tune::Task;
/// use kernel_gen::workload::{Conv2d, Workload};
///
/// let (registry, target) = (Registry::builtin(), Target::find("x86-64-v3").unwrap());
/// let workload = Workload::f32(Conv2d::nchw(1, 64, 56, 56, 64, 3, 1, 1));
/// let task = Task::new(workload, target, registry.find("conv2d_direct").unwrap())?;
/// std::thread::scope(|scope| {
///     let mut attached = measure::for_target(scope, target, measure::Options::default())?;
///     let (index, config) = task.space.sample(1).next().expect("the space is not empty");
///     attached.measurer.submit(JobId(index), &task, &config);
///     println!("{}: {:?}", attached.provenance, attached.measurer.next(std::time::Duration::from_secs(60)));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the machine lacks what the target needs: the instruction set, a device, a compiler. Each says what to do about it.
pub fn for_target<'scope, 'r: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    target: &Target,
    options: Options,
) -> Result<Attached<'scope, 'r>, MeasureError> {
    match &target.device {
        Device::Cpu(_) => cpu::attach(scope, target, options),
        Device::Cuda(_) => cuda::attach(scope, target, options),
    }
}
