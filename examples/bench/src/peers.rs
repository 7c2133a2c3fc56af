//! The file that `peers/peers.py` writes.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What was measured of other libraries.
#[derive(Deserialize, Debug)]
pub(crate) struct Peers {
    schema: u32,
    processor: String,
    started_unix: u64,
    load_before: f64,
    load_after: f64,
    missing: Vec<Missing>,
    results: Vec<Measured>,
}

#[derive(Deserialize, Debug)]
struct Missing {
    peer: String,
    reason: String,
}

#[derive(Deserialize, Debug)]
struct Measured {
    peer: String,
    version: String,
    workload: String,
    variant: String,
    threads: usize,
    us: f64,
    error: f64,
}

/// The best times of other libraries on one layer, in the same tensors as ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// ONNX Runtime.
    pub(crate) ort_us: Option<f64>,
    /// oneDNN, the faster of its ways with plain tensors.
    pub(crate) onednn_us: Option<f64>,
}

impl Peers {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Peers, Box<dyn Error>> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let peers: Peers = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        if peers.schema != 1 {
            return Err(format!("{}: schema {} is not known; this reads 1", path.display(), peers.schema).into());
        }
        Ok(peers)
    }

    /// The times for a layer. Plain layers meet the peers' plain variants. A blocked layer meets oneDNN's blocked one,
    /// and ONNX Runtime in plain tensors, since it has no other interface.
    pub(crate) fn times(&self, layer: &str, threads: usize) -> Times {
        let (workload, blocked) = match layer.strip_suffix("_nchw16c") {
            Some(plain) => (plain, true),
            None => (layer, false),
        };
        let best = |peer: &str, fits: &dyn Fn(&str) -> bool| {
            let of = |r: &&Measured| {
                r.peer == peer && r.workload == workload && r.threads == threads && fits(&r.variant) && r.error < 1e-4
            };
            self.results.iter().filter(of).map(|r| r.us).min_by(f64::total_cmp)
        };
        Times {
            ort_us: best("ONNX Runtime", &|_| true),
            onednn_us: best("oneDNN", &|variant| (variant == "blocked") == blocked),
        }
    }

    /// What was measured, when, and what is missing: one line each.
    pub(crate) fn describe(&self) -> String {
        let versions: BTreeMap<&str, &str> = self.results.iter().map(|r| (&*r.peer, &*r.version)).collect();
        let names: Vec<String> = versions.iter().map(|(peer, version)| format!("{peer} {version}")).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let minutes = now.saturating_sub(self.started_unix) / 60;
        let mut text = format!(
            "peers: {} on {}, begun {minutes} minutes ago, load {:.2} before and {:.2} after\n",
            names.join(", "),
            self.processor,
            self.load_before,
            self.load_after
        );
        if minutes > 60 {
            text += "peers: measured more than an hour ago; ratios of moving clocks say little\n";
        }
        for m in &self.missing {
            text += &format!("peers: without {}: {}\n", m.peer, m.reason);
        }
        text
    }
}
