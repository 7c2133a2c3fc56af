//! How a default is found in a space: all of it, or coordinate descent by what a template's model says that configs cost.

use crate::space::{Config, ConfigError, Space};
use crate::templates::TemplateError;
use std::collections::BTreeMap;

/// What a config costs by a template's model; none where a constraint of the space refuses it. One function answers both, because
/// both need the config's plan. Not a parameter of the functions that call it: they would be compiled once for each template, which
/// every consumer's build would wait for.
pub(in crate::templates) type Cost<'a> = &'a dyn Fn(&Config) -> Option<f64>;

/// The config that coordinate descent finds: one knob after the other takes the value that costs least, until a round
/// changes nothing. Deterministic, and cheap because costs are closed forms.
pub(in crate::templates) fn descend(space: &Space, start: &Config, cost: Cost<'_>) -> Result<Config, ConfigError> {
    let start = space.index_of(start)?;
    let (best, _) = Costs { space, cost, known: BTreeMap::new() }.descend(start);
    Ok(space.at(best))
}

/// What the configs of a space cost, each computed once: the rounds of a descent, and several descents, meet many again.
struct Costs<'a> {
    space: &'a Space,
    cost: Cost<'a>,
    known: BTreeMap<u64, f64>,
}

impl Costs<'_> {
    /// The cost of the config at an index; infinite where a constraint refuses it.
    fn of(&mut self, index: u64) -> f64 {
        let Costs { space, cost, known } = self;
        *known.entry(index).or_insert_with(|| cost(&space.at(index)).unwrap_or(f64::INFINITY))
    }

    /// The index where [`descend`] ends, and its cost.
    fn descend(&mut self, start: u64) -> (u64, f64) {
        let (mut best_index, mut best) = (start, self.of(start));
        for _ in 0..8 {
            let before = best_index;
            for (knob, len) in self.space.dims().into_iter().enumerate() {
                let mut point = self.space.point_of(best_index);
                for rank in 0..len {
                    point[knob] = rank;
                    let index = self.space.index_of_point(&point);
                    let found = self.of(index);
                    if found < best {
                        (best, best_index) = (found, index);
                    }
                }
            }
            if best_index == before {
                break;
            }
        }
        (best_index, best)
    }
}

/// The config with the shortest time, the first of several; an error where there is none.
pub(super) fn fastest(candidates: impl IntoIterator<Item = (f64, Config)>) -> Result<Config, TemplateError> {
    let best = candidates.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, config)| config).ok_or_else(|| TemplateError::Limit("no tile fits the device".into()))
}

/// All configs of a small space with what they cost.
pub(super) fn with_costs<'a>(space: &'a Space, cost: Cost<'a>) -> impl Iterator<Item = (f64, Config)> + 'a {
    (0..space.range_len()).map(|index| space.at(index)).filter_map(move |config| Some((cost(&config)?, config)))
}

/// The config of a small space that costs least; `otherwise` where none costs clearly less.
pub(super) fn least(space: &Space, otherwise: &Config, cost: Cost<'_>) -> Result<Config, ConfigError> {
    let otherwise = space.normalise(otherwise)?;
    let mut best = (cost(&otherwise).unwrap_or(f64::INFINITY), otherwise);
    for (found, config) in with_costs(space, cost) {
        if found < 0.95 * best.0 {
            best = (found, config);
        }
    }
    Ok(best.1)
}

/// The best that [`descend`] finds from `start` and from the `descents` cheapest of configs drawn from all over the space,
/// always the same ones: one descent alone is caught where the first knobs lead it.
pub(in crate::templates) fn descend_from(
    space: &Space,
    start: &Config,
    descents: usize,
    cost: Cost<'_>,
) -> Result<Config, ConfigError> {
    const DRAWN: usize = 600;
    // Tiles of several sums that must agree in threads leave one config of ten thousand.
    const LOOKED_AT: usize = 100 * DRAWN;
    let looked_at = space.shuffled(1).take(LOOKED_AT);
    let mut starts: Vec<(f64, u64)> =
        looked_at.filter_map(|index| Some((cost(&space.at(index))?, index))).take(DRAWN).collect();
    let mut costs = Costs { space, cost, known: starts.iter().map(|(cost, index)| (*index, *cost)).collect() };
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    starts.truncate(descents);
    let mut starts: Vec<u64> = starts.into_iter().map(|(_, index)| index).collect();
    // A start that is beyond the device's limits, as the smallest tiles of many images are, is none.
    let refused = space.index_of(start).map(|index| starts.push(index)).err();
    let mut best: Option<(f64, u64)> = None;
    for from in starts {
        let (index, found) = costs.descend(from);
        if best.is_none_or(|(least, _)| found < least) {
            best = Some((found, index));
        }
    }
    match (best, refused) {
        (Some((_, index)), _) => Ok(space.at(index)),
        (None, Some(refused)) => Err(refused),
        (None, None) => Ok(start.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;
    use crate::templates::Template;
    use crate::templates::cuda::conv2d_no_batching;
    use crate::workload::{Conv2d, Workload};

    #[test]
    fn a_start_beyond_the_limits_is_left_out() {
        let space = |least: i64| {
            let space = Space::builder().knob("a", 0..20).knob("b", 0..20);
            space.filter("many", move |c| c.int("a").is_ok_and(|a| a >= least)).build().unwrap()
        };
        let cost = |c: &Config| {
            let (a, b) = (c.int("a").unwrap(), c.int("b").unwrap());
            (a >= 5).then_some((a + (b - 7).abs()) as f64)
        };
        let start = Config::new().with("a", 0).with("b", 0);
        let found = descend_from(&space(5), &start, 4, &cost).unwrap();
        assert_eq!((found.int("a"), found.int("b")), (Ok(5), Ok(7)));
        // 256 images make more blocks of the smallest tiles than a grid has.
        let many = Workload::f32(Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1));
        let (target, template) = (Target::find("sm_90a").unwrap(), conv2d_no_batching::Conv2dNoBatching);
        let config = template.default_config(&many, target).unwrap();
        assert!(template.space(&many, target).unwrap().normalise(&config).is_ok());
    }

    #[test]
    fn descent_finds_the_bottom_of_a_bowl() {
        let space = Space::builder()
            .knob("a", 0..20)
            .knob("b", 0..20)
            .filter("a + b < 30", |c| matches!((c.int("a"), c.int("b")), (Ok(a), Ok(b)) if a + b < 30));
        let space = space.build().unwrap();
        let bowl = |c: &Config| {
            let (a, b) = (c.int("a").unwrap() as f64, c.int("b").unwrap() as f64);
            (a + b < 30.0).then_some((a - 13.0).powi(2) + (b - 4.0).powi(2) + 0.5 * (a - 13.0) * (b - 4.0))
        };
        let found = descend(&space, &Config::new().with("a", 0).with("b", 0), &bowl).unwrap();
        assert_eq!(found.to_string(), "a=13 b=4");
    }
}
