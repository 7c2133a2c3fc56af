//! Trial logs: everything that was tried, one JSON object a line.
//!
//! A log grows by whole lines, each flushed and each under a lock of the file, so several runs may share one and a
//! killed run costs at most the line that it was writing. Each line ends with a checksum. A line that is torn or
//! damaged is named and skipped; because every trial says by itself what it is a trial of and on which device, nothing
//! else is lost with it.
//!
//! ```text
//! {"log":1,"line":"run","run":"5f0c…","generator":"0.1.0","device":"NVIDIA H100","threads":1,"machine":{…},…,"sum":"1b2c3d4e"}
//! {"log":1,"line":"trial","workload":"conv2d-nchw-…","target":"sm_90a","device":"NVIDIA H100","threads":1,
//!  "template":"conv2d_no_batching","version":1,"space":"56e583029914c63f","index":4881186,
//!  "config":"tile_f=[-1,2,64,1] …","us":[97.8,97.9],"cold_us":[],"error":1.2e-7,"verified":true,
//!  "generator":"0.1.0","tuner":"auto","seed":1,"run":"5f0c…","n":17,"at":3.25,"sum":"90aabbcc"}
//! ```
//!
//! | line | what it says |
//! |---|---|
//! | `run` | one run of a tuner: the machine in full (driver, toolkit, clocks, unit), so that trials need not repeat it; in a fleet one a worker |
//! | `trial` | one config and what became of it: times of a result that was checked, or a `failure` and its `detail` |
//! | `compared` | the candidates of a workload's comparison at the end of a run, and which was chosen |
//! | `seed` | one config that somebody else measured and nobody here has checked: where a tuner may start, never a record |
//! | `dropped` | a worker of a fleet whose trials count no more: readers leave them out |
//!
//! Configs are written by content; the `index` beside it is for people. [`LogWriter`] appends, [`LogReader`] streams,
//! and [`Log`] holds what several files say, for whoever wants all of it.

mod collect;
mod entry;
mod line;
mod reader;
mod writer;

pub use collect::Log;
pub use entry::{
    Compared, ComparedConfig, Entry, Host, LOG_SCHEMA, Machine, Place, Run, RunId, Seed, Settings, TaskKey,
};
pub(super) use line::{Parsed, json_cause, parse_line, sealed};
pub(super) use reader::{BYTE_ORDER_MARK, diagnostic};
pub use reader::{LogItem, LogReader};
pub use writer::{LogError, LogWriter, append_dropped, append_seeds};

#[cfg(test)]
mod tests;
