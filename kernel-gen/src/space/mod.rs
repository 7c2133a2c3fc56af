//! Config spaces: which ways of scheduling a workload a template offers.
//!
//! A [`Space`] is the product of its knobs, minus what its joint constraints refuse. Points are numbered in a mixed
//! radix with the first-defined knob as the least significant digit, which is AutoTVM's numbering, and a point is
//! made from its number when it is asked for: a space of 10^9 points costs no more than its knobs.
//!
//! ```
//! use kernel_gen::space::{Space, Split};
//! let space = Space::builder()
//!     .split("tile_f", Split::factors(512, 4))
//!     .split("tile_x", Split::factors(7, 4))
//!     .knob("unroll", [0, 512, 1500])
//!     .filter("at most 1024 threads", |c| {
//!         matches!((c.split("tile_f"), c.split("tile_x")), (Ok(f), Ok(x)) if f[2] * x[2] <= 1024)
//!     })
//!     .build()?;
//! assert_eq!(space.range_len(), 220 * 4 * 3);
//! let config = space.get(881).expect("inside the space");
//! assert_eq!(config.to_string(), "tile_f=[-1,2,1,1] tile_x=[-1,1,1,1] unroll=512");
//! assert_eq!(space.index_of(&config), Ok(881));
//! # Ok::<(), kernel_gen::space::SpaceError>(())
//! ```
//!
//! A config is named by its content and not by its number, because any change to a template renumbers its space. The
//! [`Fingerprint`] of a space says whether a record was made in the same one.

mod annotate;
mod config;
mod error;
mod hash;
mod knob;
mod part;
mod product;
mod reorder;
mod sample;
mod split;
mod value;

pub use crate::stable::{Rng, stable_hash};
pub use annotate::{Annotate, AnnotateKnob};
pub use config::Config;
pub use error::{ConfigError, SpaceError};
pub use knob::Knob;
pub use product::{Fingerprint, Space, SpaceBuilder};
pub use reorder::{Reorder, ReorderKnob};
pub use sample::Sample;
pub use split::{Split, SplitKnob, SplitPolicy, divisors, fallback_split};
pub use value::{Annotation, Value, is_word as is_knob_name};

#[cfg(test)]
mod tests;
