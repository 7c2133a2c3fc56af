//! The configs that a tuner with a model chooses from: all of a small space, a sample of a large one that grows around
//! what turns out well.

use super::driver::Known;
use super::options::Options;
use crate::model::learned::{
    Belief, Earlier, Estimate, Features, Matrix, Objective, Process, Surrogate, Transfer, in_parallel,
};
use crate::space::{Rng, Space};
use crate::tune::Task;
use std::collections::{BTreeSet, HashMap};

/// What a tuner with a model knows of its task before anything was measured.
pub(super) struct Scope<'t> {
    task: &'t Task<'t>,
    features: Features<'t>,
    transfer: Option<(Transfer, Vec<f32>)>,
    pub(super) seed: u64,
    threads: usize,
}

impl<'t> Scope<'t> {
    pub(super) fn new(task: &'t Task<'t>, options: &Options<'t>) -> Scope<'t> {
        let features = features(task);
        let same =
            |other: &Task<'_>| other.template.name() == task.template.name() && other.target.name == task.target.name;
        let tasks = options.earlier.iter().filter(|(other, _)| same(other));
        let others: Vec<_> = tasks.map(|(other, trials)| (self::features(other), *trials)).collect();
        let earlier: Vec<Earlier<'_>> = others.iter().map(|(features, trials)| Earlier { features, trials }).collect();
        let transfer = Transfer::learn(&features, &earlier, options.seed).map(|t| (t, features.of_workload()));
        Scope { task, features, transfer, seed: options.seed, threads: options.threads.max(1) }
    }

    pub(super) fn space(&self) -> &'t Space {
        &self.task.space
    }

    /// The index of the config that is used without any record.
    pub(super) fn default_index(&self) -> Option<u64> {
        let config = self.task.template.default_config(&self.task.workload, self.task.target).ok()?;
        self.task.space.index_of(&config).ok()
    }

    /// The row of a config, and the logarithm of the time that is expected of it without measurements of its task.
    fn row(&self, index: u64) -> Option<(Vec<f32>, f64)> {
        let config = self.task.space.get(index)?;
        let mut row = self.features.row(&config)?;
        let mut prior = self.features.log_predicted(&config);
        if let Some((transfer, workload)) = &self.transfer {
            prior += transfer.correction(&row, workload);
            row[self.features.predicted()] = prior as f32;
        }
        Some((row, prior))
    }

    fn rows(&self, indices: &[u64]) -> Vec<Option<(Vec<f32>, f64)>> {
        in_parallel(indices.len(), self.threads, |i| self.row(indices[i]))
    }

    /// What is expected of configs without measurements.
    pub(super) fn priors(&self, indices: &[u64]) -> Vec<f64> {
        let prior = |row: Option<(Vec<f32>, f64)>| row.map_or(f64::INFINITY, |(_, prior)| prior);
        self.rows(indices).into_iter().map(prior).collect()
    }

    /// What a model says of configs that need not be in a pool.
    pub(super) fn means(&self, model: &Surrogate, indices: &[u64]) -> Vec<f64> {
        in_parallel(indices.len(), self.threads, |i| match self.row(indices[i]) {
            Some((row, prior)) => model.estimate(&row, prior).mean,
            None => f64::INFINITY,
        })
    }

    /// A model of what was tried; none as long as nothing was timed.
    pub(super) fn fit(&self, pool: &mut Pool, known: &Known<'_>, objective: Objective) -> Option<Surrogate> {
        pool.add(self, known.tried.iter().map(|t| t.index));
        let mut rows = self.features.matrix();
        let (mut priors, mut times) = (vec![], vec![]);
        for tried in &known.tried {
            if let Some(at) = pool.place.get(&tried.index) {
                rows.push(pool.rows.row(*at));
                priors.push(pool.priors[*at]);
                times.push(tried.log_us);
            }
        }
        let seed = self.seed.wrapping_add(known.tried.len() as u64 * 0x9e37_79b9);
        Surrogate::fit(&rows, &priors, &times, objective, seed, self.threads)
    }
}

/// Trials that a process is fitted to at most: the fastest.
const POINTS: usize = 160;

/// Logarithm of how much slower than the best a config may be before a process takes it for only slow.
const SLOW: f64 = 0.7;

/// What a process expects, relative to the fastest config so far, and for which configs of a pool it was asked how sure it
/// is: none for the others.
pub(super) struct Beliefs {
    pub(super) means: Vec<f64>,
    pub(super) deviations: Vec<Option<f64>>,
}

impl Scope<'_> {
    /// What a process that is fitted to the fastest trials expects of the configs of a pool. Deviations are worked out for
    /// those with the least means, `sure` of them, and for those in `around`.
    pub(super) fn believe(
        &self,
        pool: &Pool,
        known: &Known<'_>,
        sure: usize,
        around: &BTreeSet<u64>,
    ) -> Option<Beliefs> {
        let best = known.fastest()?.log_us?;
        let failed = known.tried.iter().filter(|t| t.log_us.is_none());
        let (mut chosen, mut values) = (vec![], vec![]);
        for tried in known.by_speed().into_iter().chain(failed).take(POINTS) {
            if let Some(at) = pool.place_of(tried.index) {
                chosen.push(at);
                values.push(tried.log_us.map_or(SLOW, |log_us| (log_us - best).min(SLOW)));
            }
        }
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        values.iter_mut().for_each(|v| *v -= mean);
        let process = Process::fit(&pool.rows, &chosen, &values, self.features.groups())?;
        let count = pool.indices.len();
        let means = in_parallel(count, self.threads, |i| mean + process.mean(pool.rows.row(i)));
        let mut order: Vec<usize> = (0..count).filter(|i| !known.is_seen(pool.indices[*i])).collect();
        order.sort_by(|a, b| means[*a].total_cmp(&means[*b]).then(a.cmp(b)));
        order.truncate(sure);
        order.extend(around.iter().filter_map(|i| pool.place_of(*i)));
        order.sort_unstable();
        order.dedup();
        let found = in_parallel(order.len(), self.threads, |i| process.believe(pool.rows.row(order[i])));
        let mut deviations = vec![None; count];
        for (place, Belief { deviation, .. }) in order.into_iter().zip(found) {
            deviations[place] = Some(deviation);
        }
        Some(Beliefs { means, deviations })
    }
}

/// Configs with their rows.
pub(super) struct Pool {
    /// Their indices, in the order in which they came.
    pub(super) indices: Vec<u64>,
    rows: Matrix,
    /// See [`Scope::priors`].
    pub(super) priors: Vec<f64>,
    place: HashMap<u64, usize>,
    /// Whether it is the whole space.
    pub(super) whole: bool,
    /// One over the width of each column; 0 where all rows are the same.
    scales: Vec<f32>,
}

/// Spaces of at most so many indices are looked at whole.
const WHOLE: u64 = 1 << 16;

/// Configs of the sample of a larger space.
const SAMPLE: usize = 1 << 14;

/// Indices that are looked at for the sample, where constraints refuse most.
const LOOKS: usize = 1 << 18;

/// Starting points of the search for what is expected to be fast.
const CLIMBERS: usize = 8;

impl Pool {
    pub(super) fn new(scope: &Scope<'_>) -> Pool {
        let space = scope.space();
        let whole = space.range_len() <= WHOLE;
        let mut pool = Pool {
            indices: vec![],
            rows: scope.features.matrix(),
            priors: vec![],
            place: HashMap::new(),
            whole,
            scales: vec![],
        };
        if whole {
            pool.add(scope, (0..space.range_len()).filter(|i| space.is_valid(*i)));
        } else {
            // Different from the order in which the driver fills in.
            let mut rng = Rng::new(scope.seed ^ 0x706f_6f6c);
            let mut sample = BTreeSet::new();
            for _ in 0..LOOKS {
                let index = rng.below(space.range_len());
                if sample.len() < SAMPLE && space.is_valid(index) {
                    sample.insert(index);
                }
            }
            pool.add(scope, sample.into_iter().chain(scope.default_index()));
            // A sample holds nothing but chance finds; what is expected to be the best is a few steps from them.
            for top in pool.best_apart(CLIMBERS, 0.5, &pool.priors, |_| true) {
                pool.climb(scope, top);
            }
        }
        pool.scales = pool.widths();
        pool
    }

    /// Goes from a config to the neighbour that is expected to be fastest until there is none, and takes in all neighbours
    /// of the last one.
    fn climb(&mut self, scope: &Scope<'_>, start: u64) {
        let mut at = start;
        let mut least = scope.priors(&[at])[0];
        for _ in 0..32 {
            let around: Vec<u64> = scope.space().neighbours(at).collect();
            let priors = scope.priors(&around);
            let best = (0..around.len()).min_by(|a, b| priors[*a].total_cmp(&priors[*b]));
            match best.filter(|b| priors[*b] < least) {
                Some(best) => (at, least) = (around[best], priors[best]),
                None => {
                    self.add(scope, around.into_iter().chain([at]));
                    return;
                }
            }
        }
    }

    /// Takes in configs that it does not have yet.
    pub(super) fn add(&mut self, scope: &Scope<'_>, indices: impl IntoIterator<Item = u64>) {
        let mut new = BTreeSet::new();
        let new: Vec<u64> = indices.into_iter().filter(|i| !self.place.contains_key(i) && new.insert(*i)).collect();
        for (index, row) in new.iter().zip(scope.rows(&new)) {
            if let Some((row, prior)) = row {
                self.place.insert(*index, self.indices.len());
                self.indices.push(*index);
                self.rows.push(&row);
                self.priors.push(prior);
            }
        }
    }

    /// What the members of a model say of each config.
    pub(super) fn opinions(&self, scope: &Scope<'_>, model: &Surrogate) -> Vec<Vec<f64>> {
        let of = |i: usize| model.opinions(self.rows.row(i), self.priors[i]).collect();
        in_parallel(self.indices.len(), scope.threads, of)
    }

    /// Where a config stands.
    pub(super) fn place_of(&self, index: u64) -> Option<usize> {
        self.place.get(&index).copied()
    }

    fn widths(&self) -> Vec<f32> {
        let mut low = vec![f32::INFINITY; self.rows.columns()];
        let mut high = vec![f32::NEG_INFINITY; self.rows.columns()];
        for r in 0..self.rows.len() {
            for (c, value) in self.rows.row(r).iter().enumerate() {
                low[c] = low[c].min(*value);
                high[c] = high[c].max(*value);
            }
        }
        low.iter().zip(&high).map(|(l, h)| if h > l { 1.0 / (h - l) } else { 0.0 }).collect()
    }

    /// How alike two configs are: 1 for the same, 0 for two of which nothing is alike.
    pub(super) fn likeness(&self, a: usize, b: usize) -> f64 {
        let used = self.scales.iter().filter(|s| **s > 0.0).count().max(1);
        let apart = |((x, y), scale): ((&f32, &f32), &f32)| f64::from((x - y).abs() * scale);
        let distance: f64 = self.rows.row(a).iter().zip(self.rows.row(b)).zip(&self.scales).map(apart).sum();
        // Two configs drawn at random differ by about a third of a column's width.
        (1.0 - 3.0 * distance / used as f64).max(0.0)
    }

    /// So many configs with small scores (one a config of the pool) that are not all alike: each costs its score and
    /// `weight` times its likeness to the most similar one before it. AutoTVM's `submodular_pick` wants to weigh scores
    /// against diversity too, but multiplies the scores by 0.
    pub(super) fn best_apart(&self, count: usize, weight: f64, scores: &[f64], may: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut short: Vec<usize> = (0..self.indices.len()).filter(|i| may(self.indices[*i])).collect();
        short.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]).then(self.indices[*a].cmp(&self.indices[*b])));
        short.truncate(32 * count.max(8));
        let mut alike = vec![0.0f64; short.len()];
        let mut out = vec![];
        while out.len() < count && !short.is_empty() {
            let cost = |i: usize| scores[short[i]] + weight * alike[i];
            let best = (1..short.len()).fold(0, |best, i| if cost(i) < cost(best) { i } else { best });
            let taken = short.remove(best);
            alike.remove(best);
            for (like, other) in alike.iter_mut().zip(&short) {
                *like = like.max(self.likeness(taken, *other));
            }
            out.push(self.indices[taken]);
        }
        out
    }

    /// The config with a small score that is least like any of some others: a likeness of 1 counts as much as being three
    /// times as slow.
    pub(super) fn best_unlike(&self, others: &[u64], scores: &[f64], may: impl Fn(u64) -> bool) -> Option<u64> {
        let others: Vec<usize> = others.iter().filter_map(|i| self.place_of(*i)).collect();
        let cost = |i: usize| scores[i] + others.iter().map(|o| self.likeness(*o, i)).fold(0.0, f64::max);
        let able = (0..self.indices.len()).filter(|i| may(self.indices[*i]));
        let best = able.map(|i| (cost(i), i)).min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        best.map(|(_, i)| self.indices[i])
    }

    /// So many configs as unlike each other and those in `before` as can be found among a few drawn at random.
    pub(super) fn apart(&self, count: usize, before: &[u64], rng: &mut Rng, may: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut taken: Vec<usize> = before.iter().filter_map(|i| self.place_of(*i)).collect();
        let mut out = vec![];
        for _ in 0..count {
            let mut best: Option<(f64, usize)> = None;
            for _ in 0..16 {
                let Some(i) = (!self.indices.is_empty()).then(|| rng.below(self.indices.len() as u64) as usize) else {
                    break;
                };
                if taken.contains(&i) || !may(self.indices[i]) {
                    continue;
                }
                let like = taken.iter().map(|t| self.likeness(*t, i)).fold(0.0, f64::max);
                if best.is_none_or(|(least, _)| like < least) {
                    best = Some((like, i));
                }
            }
            if let Some((_, i)) = best {
                taken.push(i);
                out.push(self.indices[i]);
            }
        }
        out
    }
}

/// Mean and spread of opinions.
pub(super) fn estimate(opinions: &[f64]) -> Estimate {
    let count = opinions.len().max(1) as f64;
    let mean = opinions.iter().sum::<f64>() / count;
    let squares = opinions.iter().map(|o| (o - mean).powi(2)).sum::<f64>();
    Estimate { mean, spread: (squares / count).sqrt() }
}

/// The features of a task's configs.
fn features<'t>(task: &'t Task<'t>) -> Features<'t> {
    Features::new(&task.workload, task.target, task.template, &task.space)
}
