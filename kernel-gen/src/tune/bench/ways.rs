//! What is chosen for a workload with all records, with none, and with those of other shapes.

use super::options::Options;
use crate::model::{self, ModelError, choose};
use crate::records::{BestRecords, Choice};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::Workload;

/// The choices for one workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Ways {
    /// With all records.
    pub chosen: Choice,
    /// With none.
    pub default: Choice,
    /// With records of other shapes, if that is asked for.
    pub others: Option<Choice>,
}

impl Ways {
    /// Asks the lookup and the models.
    ///
    /// # Errors
    /// If no template can run the workload. That fallback is denied in the spec does not count here: what it would be is
    /// the question.
    pub fn of(
        registry: &Registry,
        workload: &Workload,
        target: &Target,
        records: &BestRecords,
        options: &Options,
    ) -> Result<Ways, ModelError> {
        let model = model::Options { deny_fallback: false, ..options.model.clone() };
        let with = |records: &BestRecords| choose(registry, workload, target, records, &model);
        let others = options.others.then(|| with(&without_shape(records, workload))).transpose()?;
        Ok(Ways { chosen: with(records)?, default: with(&BestRecords::new())?, others })
    }

    /// All choices.
    pub(super) fn all(&self) -> impl Iterator<Item = &Choice> {
        [&self.chosen, &self.default].into_iter().chain(&self.others)
    }
}

/// The records without those of a workload's shape, on whatever device and target: neither its own, nor one that differs
/// from it in its epilogue or types only, because that would tell nearly as much.
pub fn without_shape(records: &BestRecords, workload: &Workload) -> BestRecords {
    let mut others = BestRecords::new();
    for record in records.iter() {
        // A record whose key nobody understands any more teaches nothing.
        if Workload::from_key(&record.workload).is_ok_and(|other| other.op != workload.op) {
            others.insert(record.clone());
        }
    }
    others
}

/// Whether two choices are the same kernel, wherever they come from.
pub(super) fn is_same(a: &Choice, b: &Choice) -> bool {
    a.template == b.template && a.config == b.config
}
