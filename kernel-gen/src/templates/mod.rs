//! Templates: families of schedules, each for a class of workloads.
//!
//! A [`Template`] says which workloads it can run, which choices it offers ([`Space`](crate::space::Space)), which choice is sane when
//! nothing was measured, and how a choice becomes a kernel. A [`Registry`] is the ordered list of those that exist;
//! users put theirs beside the built-in ones:
//!
//! ```
//! use kernel_gen::templates::Registry;
//! let registry = Registry::builtin();
//! assert!(registry.find("no such template").is_none());
//! ```

pub mod cpu;
pub mod cuda;
mod phases;
mod planes;
mod registry;
mod rows;
pub mod sketch;
mod template;
mod winograd;

pub use registry::Registry;
pub use template::{Pack, Scheduled, Template, TemplateError};

#[cfg(test)]
pub(crate) mod testing;
