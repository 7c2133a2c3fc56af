//! A part of a space: the same knobs with fewer values.

use super::config::Config;
use super::error::SpaceError;
use super::knob::Knob;
use super::product::Space;
use super::value::Value;
use std::sync::{Arc, OnceLock};

impl Space {
    /// The configs of this space whose knobs take one of the listed values; a knob that is not listed keeps all of its
    /// own. The joint constraints stay. For searches within bounds, and to measure all of a neighbourhood.
    ///
    /// # Errors
    /// A listed knob that the space has not, and a value that its knob does not take or that is listed twice.
    pub fn part(&self, listed: &[(&str, Vec<Value>)]) -> Result<Space, SpaceError> {
        let bad = |knob: &str, cause: String| SpaceError::BadKnob { knob: knob.to_string(), cause };
        if let Some((name, _)) = listed.iter().find(|(name, _)| self.find_knob(name).is_none()) {
            let known: Vec<&str> = self.knobs().map(|(n, _)| n).collect();
            return Err(bad(name, format!("the space has no such knob; its knobs are {}", known.join(", "))));
        }
        let mut knobs = vec![];
        let mut range_len = 1u64;
        for (name, knob) in &self.knobs {
            let knob = match listed.iter().find(|(n, _)| *n == &**name) {
                None => knob.clone(),
                Some((_, values)) => {
                    let ranks = values.iter().map(|v| {
                        knob.rank_of(v).ok_or_else(|| bad(name, format!("{v} is not among its values: {knob}")))
                    });
                    let ranks: Vec<u64> = ranks.collect::<Result<_, _>>()?;
                    let twice = (0..ranks.len()).find(|i| ranks[..*i].contains(&ranks[*i]));
                    if let Some(i) = twice {
                        return Err(bad(name, format!("{} is listed twice", values[i])));
                    }
                    if ranks.is_empty() {
                        return Err(bad(name, "no value of it is listed".to_string()));
                    }
                    Knob::Part(Box::new(knob.clone()), ranks)
                }
            };
            range_len = range_len.checked_mul(knob.len()).ok_or(SpaceError::TooLarge)?;
            knobs.push((name.clone(), knob));
        }
        Ok(Space { knobs, filters: self.filters.clone(), range_len, len: OnceLock::new() })
    }

    /// The configs of this space for which `keep` holds too. `name` says what is required.
    pub fn filtered(&self, name: &str, keep: impl Fn(&Config) -> bool + Send + Sync + 'static) -> Space {
        let mut filters = self.filters.clone();
        filters.push((name.to_string(), Arc::new(keep)));
        Space { knobs: self.knobs.clone(), filters, range_len: self.range_len, len: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Split;

    fn space() -> Space {
        let builder = Space::builder().split("tile", Split::factors(16, 2)).knob("unroll", [0, 1, 2]);
        builder.filter("even", |c| c.int("unroll").is_ok_and(|u| u != 1)).build().unwrap()
    }

    #[test]
    fn a_part_has_the_listed_values_and_the_constraints() {
        let all = space();
        let part = all.part(&[("tile", vec![Value::Split(vec![-1, 8]), Value::Split(vec![8, 2])])]).unwrap();
        assert_eq!((part.range_len(), part.len()), (6, 4));
        for (index, config) in part.sample(1) {
            assert_eq!(part.index_of(&config), Ok(index));
            assert!(all.index_of(&config).is_ok(), "{config}");
        }
        assert!(part.index_of(&Config::new().with_split("tile", &[-1, 4]).with("unroll", 0)).is_err());
        assert_ne!(part.fingerprint(), all.fingerprint());
        assert_eq!(part.part(&[("unroll", vec![Value::Int(2)])]).unwrap().len(), 2);
    }

    #[test]
    fn a_further_constraint_leaves_the_numbering_alone() {
        let some = space().filtered("inner 8", |c| c.split("tile").is_ok_and(|t| t[1] == 8));
        assert_eq!((some.len(), some.fingerprint()), (2, space().fingerprint()));
        assert!(some.sample(1).all(|(index, config)| space().get(index) == Some(config)));
        assert_eq!(space().sample(1).filter(|(index, _)| some.refused_by(*index) == Some("inner 8")).count(), 8);
    }

    #[test]
    fn what_is_no_part_is_named() {
        let cause = |listed: &[(&str, Vec<Value>)]| space().part(listed).unwrap_err().to_string();
        assert!(cause(&[("tiles", vec![])]).contains("its knobs are tile, unroll"));
        assert!(cause(&[("unroll", vec![Value::Int(3)])]).contains("3 is not among its values"));
        assert!(cause(&[("unroll", vec![Value::Int(2), Value::Int(2)])]).contains("2 is listed twice"));
        assert!(cause(&[("unroll", vec![])]).contains("no value of it is listed"));
    }
}
