//! Which kernels begin before the launch in front of them has ended.

use crate::emit::cuda::Launch;
use crate::lower::Lowered;
use crate::lower::overlap_launches::overlap_launches;
use crate::model::{begins_early, most_early};
use crate::target::Target;
use crate::templates::Template;
use crate::workload::{Role, Workload};

/// How a kernel begins before what is in front of it has ended, if it does.
pub(crate) struct Early {
    /// Parameters of the workload, by position, that it may read by then: weights, which launches in front do not write, as a rule;
    /// whoever starts the launches looks whether they do.
    constants: Vec<usize>,
    /// Blocks of the largest launch that does.
    most_blocks: i64,
    /// The fewest units that it is for, where their number varies, and the most with which it does.
    units: (i64, i64),
}

impl Early {
    /// It does not.
    pub(crate) const NEVER: Early = Early { constants: vec![], most_blocks: 0, units: (1, 1) };

    /// How a template's kernels of a workload do; never where the target cannot, and where that is not worth it.
    pub(crate) fn of(template: &dyn Template, workload: &Workload, target: &Target) -> Early {
        Early::of_units(template, (1, 1), target, |_| workload.clone())
    }

    /// The same for kernels that serve a range of unit counts, both ends included; `at` gives the workload with a given count.
    pub(crate) fn of_units(
        template: &dyn Template,
        (least, most): (i64, i64),
        target: &Target,
        at: impl Fn(i64) -> Workload,
    ) -> Early {
        let short = most_early(template, target, most, &at);
        let Some(cuda) = target.cuda().filter(|_| short >= least && begins_early(short, most)) else {
            return Early::NEVER;
        };
        let params = at(least).params();
        let weights = params.iter().enumerate().filter(|(_, p)| p.role == Role::Weight).map(|(i, _)| i);
        Early { constants: weights.collect(), most_blocks: cuda.sm_count, units: (least, short) }
    }

    /// The kernel as it begins so.
    pub(crate) fn apply(&self, lowered: Lowered) -> Lowered {
        overlap_launches(lowered, &self.constants, self.most_blocks, self.units.0)
    }

    /// The launches of such a kernel, which say up to how many units they do.
    pub(crate) fn tell(&self, launches: &mut [Launch]) {
        launches.iter_mut().for_each(|launch| launch.early_units = self.units.1);
    }
}
