//! How deep the verifier looked.

use std::fmt;

/// What of a kernel was shown by running a part of it: the protocols of launches with statements that only a GPU has, and that
/// what is read was written, where that has no shorter proof. Every other rule holds for all loop values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Depth {
    /// Launches that were run, in the order of the text.
    pub launches: Vec<LaunchDepth>,
    /// Buffers of which not every read was looked at.
    pub reads: Vec<ReadDepth>,
}

/// How many reads of a buffer were followed back to their writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadDepth {
    /// The buffer's name.
    pub buffer: String,
    /// Reads of one element each, the first ones; none where the writes alone are more than is run.
    pub followed: u64,
}

/// Which clusters of a launch were run, and how far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchDepth {
    /// The variable of its outermost loop.
    pub name: String,
    /// Clusters of the grid; blocks, where a cluster is one.
    pub clusters: u64,
    /// Kinds of clusters: those of one kind take the same branches, and touch the same places of shared memory. None where
    /// they were not told apart.
    pub kinds: Option<u64>,
    /// Clusters that were run, each of another kind where kinds were told apart.
    pub run: u64,
    /// Clusters among them that were stopped before their end.
    pub stopped: u64,
    /// Statements of all threads of a cluster after which it was stopped.
    pub statements: u64,
}

impl LaunchDepth {
    /// Whether a cluster of every kind ran to its end.
    pub fn is_whole(&self) -> bool {
        self.stopped == 0 && (self.kinds.is_some_and(|kinds| kinds <= self.run) || self.clusters <= self.run)
    }
}

impl Depth {
    /// Whether nothing was left out.
    pub fn is_whole(&self) -> bool {
        self.reads.is_empty() && self.launches.iter().all(LaunchDepth::is_whole)
    }
}

impl fmt::Display for LaunchDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |n: u64| if n == 1 { "" } else { "s" };
        let (run, clusters) = (self.run, self.clusters);
        write!(f, "launch {}: {run} of {clusters} cluster{} run", self.name, s(clusters))?;
        match self.kinds {
            Some(kinds) if kinds == 1 && run == 1 => f.write_str(", which all do the same")?,
            Some(kinds) if kinds <= run => write!(f, ", one of each of {kinds} kinds")?,
            Some(kinds) => write!(f, ", of {run} of {kinds} kinds")?,
            None => f.write_str(", of kinds that were not told apart")?,
        }
        match self.stopped {
            0 => f.write_str(", to the end"),
            n if n == run => write!(f, ", for the first {} statements", self.statements),
            n => write!(f, ", {n} of them for the first {} statements, the others to the end", self.statements),
        }
    }
}

impl fmt::Display for ReadDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.followed {
            0 => write!(f, "reads of {}, which is too large to follow", self.buffer),
            n => write!(f, "reads of {}, of which the first {n} were followed", self.buffer),
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("proven for all loop values")?;
        if !self.launches.is_empty() {
            f.write_str(", but for protocols")?;
            self.launches
                .iter()
                .enumerate()
                .try_for_each(|(i, l)| write!(f, "{}{l}", if i == 0 { ": " } else { "; " }))?;
        }
        self.reads
            .iter()
            .enumerate()
            .try_for_each(|(i, r)| write!(f, "{}{r}", if i == 0 { ", but for " } else { "; " }))
    }
}
