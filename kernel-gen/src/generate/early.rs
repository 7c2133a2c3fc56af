//! Which kernels begin before the launch in front of them has ended.

use crate::lower::Lowered;
use crate::lower::overlap_launches::overlap_launches;
use crate::model::roofline::Roofline;
use crate::target::{CudaFeature, Target};
use crate::templates::Template;
use crate::workload::{Role, Workload};

/// How a kernel begins before what is in front of it has ended, if it does.
pub(crate) struct Early {
    /// Parameters of the workload, by position, that it may read by then: weights, which launches in front do not write, as a rule;
    /// whoever starts the launches looks whether they do.
    constants: Vec<usize>,
    /// Blocks of the largest launch that does.
    most_blocks: i64,
    /// For how many units that is, where their number varies.
    units: i64,
}

impl Early {
    /// It does not.
    pub(crate) const NEVER: Early = Early { constants: vec![], most_blocks: 0, units: 1 };

    /// How a template's kernels of a workload do; never where the target cannot, and where that is not worth it. Of kernels for
    /// several numbers of units, the workload and the number are those of the fewest.
    pub(crate) fn of(template: &dyn Template, workload: &Workload, units: i64, target: &Target) -> Early {
        let Some(cuda) = target.cuda().filter(|cuda| cuda.has(CudaFeature::Cluster)) else { return Early::NEVER };
        if Roofline::new(workload, target, 1).floor_us(workload) > template.longest_early_us() {
            return Early::NEVER;
        }
        let params = workload.params();
        let weights = params.iter().enumerate().filter(|(_, p)| p.role == Role::Weight).map(|(i, _)| i);
        Early { constants: weights.collect(), most_blocks: cuda.sm_count, units }
    }

    /// The kernel as it begins so.
    pub(crate) fn apply(&self, lowered: Lowered) -> Lowered {
        overlap_launches(lowered, &self.constants, self.most_blocks, self.units)
    }
}
