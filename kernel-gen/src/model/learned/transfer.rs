//! What the trials of other workloads say about a new one.
//!
//! Boosted trees learn how far the template's prediction was off, relative to its mean error on the same workload, from
//! the features of configs together with those of their workloads. For a new workload they correct the prediction before
//! anything was measured: so the first batch is chosen by what is known of the template on this device.
//!
//! AutoTVM asks for 500 trials of the very same task, and lets them fade; here every workload of the template counts,
//! and what the new trials say comes on top of it ([`Surrogate`](super::Surrogate)).

use super::features::Features;
use super::trees::{Labels, Matrix, Parameters, Trees};
use crate::records::Trial;

/// Trials of another workload with the same template and target.
#[derive(Clone, Copy)]
pub struct Earlier<'a> {
    /// The features of its space.
    pub features: &'a Features<'a>,
    /// What was tried.
    pub trials: &'a [Trial],
}

/// Fewest timed configs that are worth a fit.
const ENOUGH: usize = 16;

/// How slow a config may be in comparison with what is predicted, as a logarithm, before it is only slow.
const FAR: f64 = 3.0;

/// A correction of a template's predictions. See the module's text.
#[derive(Clone, Debug)]
pub struct Transfer {
    trees: Trees,
}

impl Transfer {
    /// Learns from earlier trials whose configs look like those of `features`; none if there are too few.
    pub fn learn(features: &Features<'_>, earlier: &[Earlier<'_>], seed: u64) -> Option<Transfer> {
        let mut rows = Matrix::new(features.names().len() + features.of_workload().len());
        let mut targets = vec![];
        for task in earlier.iter().filter(|e| e.features.names() == features.names()) {
            let workload = task.features.of_workload();
            let mut errors = vec![];
            for trial in task.trials {
                let Some(time) = trial.outcome.time_us().filter(|t| *t > 0.0) else { continue };
                let Some(mut row) = task.features.row(&trial.config) else { continue };
                row.extend(&workload);
                rows.push(&row);
                errors.push((time.ln() - task.features.log_predicted(&trial.config)).clamp(-FAR, FAR));
            }
            let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
            targets.extend(errors.iter().map(|e| e - mean));
        }
        if rows.len() < ENOUGH {
            return None;
        }
        let parameters =
            Parameters { rounds: 120, depth: 5, learning_rate: 0.1, column_share: 0.5, seed, ..Parameters::default() };
        let trees = Trees::fit(&rows, Labels { targets: &targets, margins: &[], groups: &[] }, &parameters);
        Some(Transfer { trees })
    }

    /// What to add to the logarithm of a predicted time, given the config's row and its workload's.
    pub fn correction(&self, row: &[f32], workload: &[f32]) -> f64 {
        let mut whole = row.to_vec();
        whole.extend(workload);
        self.trees.predict(&whole)
    }
}
