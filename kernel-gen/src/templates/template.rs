//! What a template is: choices for a class of workloads, and how a choice becomes a kernel.

use crate::ir::Kernel;
use crate::schedule::{Schedule, ScheduleError};
use crate::space::{Config, ConfigError, Space, SpaceError};
use crate::target::Target;
use crate::workload::Workload;
use crate::workload::special::Reach;
use std::fmt;

/// A family of schedules for a class of workloads.
///
/// Everything here is a pure function of its arguments: the same workload, target and config give the same kernel on
/// every machine and in every run.
pub trait Template: Send + Sync {
    /// A name that no other template has: letters, digits and `_`.
    fn name(&self) -> &str;

    /// Counted up whenever the same config would give another kernel. Records of another version are not used.
    fn version(&self) -> u32;

    /// Whether it can run the workload on the target at all; otherwise the reason, as half a sentence.
    fn applies(&self, workload: &Workload, target: &Target) -> Result<(), String>;

    /// Whether it also has kernels for inputs or outputs that are integers of eight bits. Templates that do not say so are not asked
    /// for them.
    fn takes_integers(&self) -> bool {
        false
    }

    /// Whether it also has kernels for inputs or outputs that are floats of eight bits, likewise.
    fn takes_f8(&self) -> bool {
        false
    }

    /// Its choices for a workload that it applies to. Limits of the target belong into the space's filters, so that
    /// nearly every config of the space gives a valid kernel.
    fn space(&self, workload: &Workload, target: &Target) -> Result<Space, TemplateError>;

    /// The config that is used without any record: inside the space, and sane by rules of thumb alone.
    fn default_config(&self, workload: &Workload, target: &Target) -> Result<Config, TemplateError>;

    /// The time in microseconds that one thread of the target (one whole GPU) is expected to take with a config. It
    /// ranks templates and configs that were not measured, so ratios matter more than the value; it must be positive,
    /// and comparable between templates: count the arithmetic at the rate that the config can reach, and the traffic,
    /// packing and padding that it adds.
    fn cost(&self, workload: &Workload, target: &Target, config: &Config) -> f64;

    /// What else a tuner's learned model should look at: numbers that tell fast configs from slow ones and are not
    /// knobs, such as the shared memory of a block or how full the last wave is. Equally many for every config of the
    /// template; logarithms of sizes rather than sizes. The knobs and the predicted time are looked at in any case, so
    /// most templates need none.
    fn features(&self, workload: &Workload, target: &Target, config: &Config) -> Vec<f64> {
        let _ = (workload, target, config);
        vec![]
    }

    /// In captured graphs, from compute capability 9.0 on, a launch may begin before the one in front has ended. Its kernels do where
    /// the workload takes at most so many microseconds at best (by arithmetic and memory): they gain up to the microsecond that a
    /// launch takes. What takes longer gains little, and may lose more: its blocks begin on other multiprocessors each time, in
    /// the order in which these become free.
    fn longest_early_us(&self) -> f64 {
        4.0
    }

    /// What an output of a config depends on, beside its own operands. Where that is anything, the classes `strict` and `local`
    /// are not for the template. Results are held to the bounds of [`Reach::reference`].
    fn reach(&self, workload: &Workload, config: &Config) -> Reach {
        let _ = (workload, config);
        Reach::Own
    }

    /// The kernel of a config.
    fn schedule(&self, workload: &Workload, target: &Target, config: &Config) -> Result<Scheduled, TemplateError>;
}

impl dyn Template + '_ {
    /// [`Template::applies`], but to nothing with integers unless the template [takes](Template::takes_integers) them, nor with floats of
    /// eight bits: what is asked of templates that are not known.
    pub fn admits(&self, workload: &Workload, target: &Target) -> Result<(), String> {
        let bytes = workload.is_quantised() || workload.out_dtype.is_byte();
        let words = workload.has_i32();
        let f8 = workload.dtype.is_f8() || workload.out_dtype.is_f8();
        // What is for another device says that first.
        self.applies(workload, target)?;
        match () {
            () if (bytes || words) && !self.takes_integers() => Err("for floating-point numbers".into()),
            () if f8 && !self.takes_f8() => Err("for numbers of 16 and 32 bits".into()),
            () => Ok(()),
        }
    }
}

/// A kernel as a template leaves it, with every step that led to it.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The kernel and its history.
    pub schedule: Schedule,
    /// The parameters that the kernel wants in a layout of its own.
    pub packs: Vec<Pack>,
}

/// How a parameter is brought into the layout that a kernel wants, once, before any call.
#[derive(Clone, Debug)]
pub struct Pack {
    /// The name of the packed parameter in the scheduled kernel.
    pub param: String,
    /// The kernel that packs: its parameters are the original and the packed tensor.
    pub kernel: Kernel,
}

/// Why a template cannot give what it was asked for.
#[derive(Clone, PartialEq, Debug)]
pub enum TemplateError {
    /// Its space cannot be made.
    Space(SpaceError),
    /// The config is not one of its space.
    Config(ConfigError),
    /// A step of its schedule was refused.
    Schedule(ScheduleError),
    /// The config is in the space, but the kernel would break a limit; the text says which.
    Limit(String),
}

impl TemplateError {
    /// Whether it says that a config is beyond the limits of the target. Where a template's own default is, none of its
    /// configs fits, as far as the template knows: others are asked then. All else is a defect of the template.
    pub(crate) fn is_of_limits(&self) -> bool {
        matches!(self, TemplateError::Limit(_) | TemplateError::Config(ConfigError::Filtered { .. }))
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::Space(error) => error.fmt(f),
            TemplateError::Config(error) => error.fmt(f),
            TemplateError::Schedule(error) => error.fmt(f),
            TemplateError::Limit(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for TemplateError {}

impl From<SpaceError> for TemplateError {
    fn from(error: SpaceError) -> TemplateError {
        TemplateError::Space(error)
    }
}

impl From<ConfigError> for TemplateError {
    fn from(error: ConfigError) -> TemplateError {
        TemplateError::Config(error)
    }
}

impl From<ScheduleError> for TemplateError {
    fn from(error: ScheduleError) -> TemplateError {
        TemplateError::Schedule(error)
    }
}
