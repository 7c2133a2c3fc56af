//! What was measured of the workload itself, on its target or on a related one.

use super::error::{ModelError, failed};
use super::options::Options;
use crate::records::{BestRecords, Lookup, Offer, Query, lookup};
use crate::space::Space;
use crate::target::Target;
use crate::templates::Template;
use crate::workload::Workload;

/// The record to use, as lookup finds it among those of the templates.
pub(super) fn recorded(
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    records: &BestRecords,
    options: &Options,
    defects: &mut Vec<ModelError>,
) -> Lookup {
    let key = workload.key();
    // Spaces are not made for workloads that nobody measured.
    if !records.iter().any(|r| r.workload == key) {
        return Lookup { found: None, refusals: vec![] };
    }
    let mut spaces: Vec<(&dyn Template, Space)> = vec![];
    for t in templates {
        match t.space(workload, target) {
            Ok(space) => spaces.push((*t, space)),
            Err(error) => defects.push(failed(*t, workload, error)),
        }
    }
    let offers: Vec<Offer<'_>> =
        spaces.iter().map(|(t, space)| Offer { template: t.name(), version: t.version(), space }).collect();
    let related = related_targets(target);
    let query = Query {
        workload: &key,
        target: &target.name,
        related_targets: &related,
        device: options.device.as_deref(),
        threads: options.threads,
    };
    lookup(records, &query, &offers)
}

/// Targets whose records may serve for another: the other levels of a CPU's architecture, the nearest first, and the
/// other CUDA architectures of the same major version, those of the same capability first.
pub fn related_targets(target: &Target) -> Vec<&'static str> {
    let mut related: Vec<(i64, &'static str)> = Target::all()
        .iter()
        .filter(|other| other.name != target.name)
        .filter_map(|other| {
            let distance = match (target.cpu(), other.cpu()) {
                // A level with more instructions for integers is nearer than another level.
                (Some(a), Some(b)) => (a.arch == b.arch)
                    .then(|| 2 * (a.level - b.level).abs() + i64::from(a.integers_only != b.integers_only)),
                _ => {
                    let (a, b) = (target.capability()?, other.capability()?);
                    (a / 10 == b / 10).then(|| i64::from(a.abs_diff(b)))
                }
            };
            distance.map(|d| (d, other.name.as_str()))
        })
        .collect();
    related.sort();
    related.into_iter().map(|(_, name)| name).collect()
}
