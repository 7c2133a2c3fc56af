//! The kernels of a range, as they are chosen: how much each does for fewer units than it is made for, its kernel says.

use crate::lower::{Units, Work};
use crate::model::{self, Rung};
use crate::records::Choice;
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::{Range, Workload};

/// The kernels of a range, that for the fewest units first. `candidates` are choices and the sizes that they were made for.
pub(crate) fn rungs(
    registry: &Registry,
    workload: &Workload,
    range: &Range,
    target: &Target,
    candidates: &[(i64, Choice)],
) -> Vec<Rung> {
    let mut shares = |choice: &Choice, most: i64, sizes: &[i64]| {
        let template = registry.find(&choice.template)?;
        let largest = range.at(workload, most);
        let config = template.space(&largest, target).ok()?.normalise(&choice.config).ok()?;
        let scheduled = template.schedule(&largest, target, &config).ok()?;
        let units = Units { most, params: range.params.clone() };
        let work = Work::of(scheduled.schedule.kernel, units).ok()?;
        Some(sizes.iter().map(|units| work.share(*units)).collect())
    };
    model::rungs(registry, workload, range, target, candidates, &mut shares)
}
