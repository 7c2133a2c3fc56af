//! What is wrong with a file that a person wrote: `file:line: cause; help`.
//!
//! A [`Report`] collects everything that is wrong with one file, so that a user sees all of it at once. [`Table`]
//! reads TOML tables into it.

mod report;
mod spelling;
mod table;

pub use report::{Diagnostic, Report, leaves_its_line, one_line};
pub use spelling::{closest, suggest};
pub(crate) use table::choose;
pub use table::{Array, Element, Found, Size, Table, parse};
