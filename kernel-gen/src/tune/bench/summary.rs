//! Means and counts over the rows of a report.

use super::report::{Measured, Report, Row};
use crate::records::{Measurement, Origin};
use crate::tune::measure::Provenance;
use std::fmt;

/// A re-timed record counts as confirmed within this share of the time that it states.
pub const CONFIRMED: f64 = 0.05;

/// How the records that were measured on this very device, with as many threads, did when they were timed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Again {
    /// Within [`CONFIRMED`] of the recorded time.
    pub confirmed: usize,
    /// Slower than that.
    pub slower: usize,
    /// Faster than that.
    pub faster: usize,
}

impl Again {
    /// All of them.
    pub fn total(&self) -> usize {
        self.confirmed + self.slower + self.faster
    }
}

/// A geometric mean, and of how many ratios it is one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mean {
    /// The mean.
    pub ratio: f64,
    /// How many workloads it is over.
    pub workloads: usize,
}

/// Times in sum, each workload as often as the network runs it, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sums {
    /// What is chosen.
    pub chosen: f64,
    /// Without any record; none if one of them failed.
    pub default: Option<f64>,
    /// The fastest library for each; none if one has none.
    pub peer: Option<f64>,
}

/// What a report says in one line.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The config without any record / the record's, over the workloads that have a record and where both ran.
    pub default: Option<Mean>,
    /// The config by records of other shapes / the record's, likewise.
    pub others: Option<Mean>,
    /// The kernel of a range / what is chosen for the size, over the sizes of ranges where both ran.
    pub ranged: Option<Mean>,
    /// The highest ratio behind [`Summary::ranged`], and whose it is.
    pub worst_ranged: Option<(f64, String)>,
    /// The fastest library / what is chosen, over the workloads where both ran.
    pub peer: Option<Mean>,
    /// The same with operands that are not in a cache.
    pub cold_peer: Option<Mean>,
    /// The fastest library / what is chosen where no call begins before the one in front has ended, if any does else.
    pub apart_peer: Option<Mean>,
    /// The same with operands that are not in a cache.
    pub cold_apart_peer: Option<Mean>,
    /// The lowest ratio behind [`Summary::peer`], and whose it is.
    pub worst: Option<(f64, String)>,
    /// The record's config now / its recorded time, over the records of this device.
    pub again: Option<Mean>,
    /// The same at the clock of the record, if the clock of any is known.
    pub again_at_clock: Option<Mean>,
    /// The same where nothing disturbs, if any record says what it took so.
    pub floor_again: Option<Mean>,
    /// How those did: where nothing disturbs, if the record says what it took so; else at the clock of the record where it is
    /// known.
    pub counts: Again,
    /// Of all launches, if all workloads were measured and some run more than once.
    pub sums: Option<Sums>,
    /// Workloads of which a record was used.
    pub recorded: usize,
    /// All workloads.
    pub workloads: usize,
    /// Candidates that failed, and workloads that were not measured.
    pub failed: usize,
}

fn mean(ratios: impl Iterator<Item = f64>) -> Option<Mean> {
    let (sum, workloads) = ratios.fold((0.0, 0), |(sum, n), ratio| (sum + ratio.ln(), n + 1));
    (workloads > 0).then(|| Mean { ratio: (sum / workloads as f64).exp(), workloads })
}

/// The times of all launches.
fn sums(report: &Report) -> Option<Sums> {
    if report.rows.iter().all(|row| row.weight == 1.0) {
        return None;
    }
    let sum = |us: &dyn Fn(&Measured) -> Option<f64>| -> Option<f64> {
        report.rows.iter().map(|row| Some(row.weight * us(row.result.as_ref().ok()?)?)).sum()
    };
    Some(Sums {
        chosen: sum(&|m| m.chosen.us())?,
        default: sum(&|m| Some(m.chosen.us()? * m.relative(&m.default)?)),
        peer: sum(&|m| Some(m.chosen.us()? * m.peer_ratio()?)),
    })
}

impl Summary {
    pub(super) fn of(report: &Report) -> Summary {
        let measured: Vec<&Measured> = report.rows.iter().filter_map(|row| row.result.as_ref().ok()).collect();
        let recorded: Vec<&Measured> = measured.iter().copied().filter(|m| m.recorded_us().is_some()).collect();
        let of_here = |m: &&&Measured| is_of_here(&m.chosen.choice.origin, &report.provenance);
        let mut counts = Again::default();
        for ratio in recorded.iter().filter(of_here).filter_map(|m| m.floor_again().or(m.again_at_clock())) {
            match ratio {
                r if r > 1.0 + CONFIRMED => counts.slower += 1,
                r if r < 1.0 - CONFIRMED => counts.faster += 1,
                _ => counts.confirmed += 1,
            }
        }
        let ratios = report.rows.iter().filter_map(|r| Some((r.result.as_ref().ok()?.peer_ratio()?, &r.name)));
        let worst = ratios.min_by(|a, b| a.0.total_cmp(&b.0));
        let ranged = |row: &Row| {
            let m = row.result.as_ref().ok()?;
            m.relative(m.ranged.as_ref()?)
        };
        let worst_ranged = report.rows.iter().filter_map(|row| Some((ranged(row)?, &row.name)));
        let worst_ranged = worst_ranged.max_by(|a, b| a.0.total_cmp(&b.0));
        let begin_early = measured.iter().any(|m| m.chosen.apart_us()[0].is_some());
        let apart = |i: usize| mean(measured.iter().filter_map(|m| m.apart_peer_ratios()[i])).filter(|_| begin_early);
        let failures = measured.iter().flat_map(|m| m.candidates()).filter(|(_, c)| c.us().is_none()).count();
        Summary {
            default: mean(recorded.iter().filter_map(|m| m.relative(&m.default))),
            others: mean(recorded.iter().filter_map(|m| m.relative(m.others.as_ref()?))),
            ranged: mean(measured.iter().filter_map(|m| m.relative(m.ranged.as_ref()?))),
            worst_ranged: worst_ranged.map(|(ratio, name)| (ratio, name.clone())),
            peer: mean(measured.iter().filter_map(|m| m.peer_ratio())),
            cold_peer: mean(measured.iter().filter_map(|m| m.cold_peer_ratio())),
            apart_peer: apart(0),
            cold_apart_peer: apart(1),
            worst: worst.map(|(ratio, name)| (ratio, name.clone())),
            again: mean(recorded.iter().filter(of_here).filter_map(|m| m.again())),
            again_at_clock: recorded
                .iter()
                .any(|m| m.clock().is_some())
                .then(|| mean(recorded.iter().filter(of_here).filter_map(|m| m.again_at_clock())))
                .flatten(),
            floor_again: mean(recorded.iter().filter(of_here).filter_map(|m| m.floor_again())),
            counts,
            sums: sums(report),
            recorded: recorded.len(),
            workloads: report.rows.len(),
            failed: failures + report.rows.len() - measured.len(),
        }
    }
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.workloads == 1 { "" } else { "s" };
        write!(f, "{:.3} over {} workload{s}", self.ratio, self.workloads)
    }
}

impl fmt::Display for Summary {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} workloads have a record", self.recorded, self.workloads)?;
        let mut means = vec![];
        let named = [
            ("default/record", self.default),
            ("others/record", self.others),
            ("range/now", self.ranged),
            ("now/recorded", self.again),
            ("at the record's clock", self.again_at_clock),
            ("undisturbed now/recorded", self.floor_again),
            ("peer/now", self.peer),
            ("peer/now cold", self.cold_peer),
            ("peer/apart", self.apart_peer),
            ("peer/apart cold", self.cold_apart_peer),
        ];
        for (name, mean) in named {
            means.extend(mean.map(|mean| format!("{name} {mean}")));
        }
        if !means.is_empty() {
            write!(f, "; geometric means: {}", means.join(", "))?;
        }
        if let Some((ratio, name)) = &self.worst_ranged {
            write!(f, "; range/now is {ratio:.2} at worst ({name})")?;
        }
        if let Some((ratio, name)) = &self.worst {
            write!(f, "; peer/now is {ratio:.2} at worst ({name})")?;
        }
        if let Some(Sums { chosen, default, peer }) = self.sums {
            write!(f, "; all launches together {:.3} ms", chosen / 1e3)?;
            for (us, of) in [(default, "by default"), (peer, "the peers")] {
                us.map_or(Ok(()), |us| write!(f, ", {of} {:.3} ms", us / 1e3))?;
            }
        }
        let Again { confirmed, slower, faster } = self.counts;
        if self.counts.total() > 0 {
            let within = CONFIRMED * 100.0;
            write!(
                f,
                "; {confirmed} of {} records of this device timed again within {within:.0} %",
                self.counts.total()
            )?;
            if slower + faster > 0 {
                write!(f, ", {slower} slower, {faster} faster")?;
            }
        }
        match self.failed {
            0 => Ok(()),
            1 => write!(f, "; 1 failed"),
            n => write!(f, "; {n} failed"),
        }
    }
}

impl Report {
    /// Means and counts over the rows.
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }
}

/// Whether a choice's record was measured as this machine measures: on this device, with as many threads.
fn is_of_here(origin: &Origin, provenance: &Provenance) -> bool {
    let of_here = |m: &Measurement| m.device == provenance.device && m.threads == provenance.threads;
    origin.measured_here().is_some_and(of_here)
}
