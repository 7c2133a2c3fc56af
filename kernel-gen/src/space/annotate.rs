//! The annotate knob: which loops are unrolled or vectorised.
//!
//! Two kinds of AutoTVM's policies are not here. `bind_gpu` and `bind_gpu_virtual` have one value each, so they are no choice:
//! templates say `schedule.bind`. `locate_cache` chooses a loop to compute at: that is a knob of places.

use super::error::SpaceError;
use super::value::{Annotation, Value};
use std::fmt;

/// Which annotations each loop may have. At most one loop of a value is vectorised, whatever the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Annotate {
    /// Every loop is unrolled.
    Unroll,
    /// The one loop is vectorised.
    Vec,
    /// Each loop is unrolled or left alone.
    TryUnroll,
    /// One loop is vectorised, or none.
    TryVec,
    /// Each loop is unrolled or left alone, and at most one vectorised.
    TryUnrollVec,
}

impl Annotate {
    /// The name that spaces print.
    pub fn name(self) -> &'static str {
        match self {
            Annotate::Unroll => "unroll",
            Annotate::Vec => "vec",
            Annotate::TryUnroll => "try_unroll",
            Annotate::TryVec => "try_vec",
            Annotate::TryUnrollVec => "try_unroll_vec",
        }
    }

    fn choices(self) -> &'static [Annotation] {
        match self {
            Annotate::Unroll => &[Annotation::Unroll],
            Annotate::Vec => &[Annotation::Vec],
            Annotate::TryUnroll => &[Annotation::None, Annotation::Unroll],
            Annotate::TryVec => &[Annotation::None, Annotation::Vec],
            Annotate::TryUnrollVec => &[Annotation::None, Annotation::Unroll, Annotation::Vec],
        }
    }

    pub(super) fn resolve(self, knob: &str, axes: &[&str]) -> Result<AnnotateKnob, SpaceError> {
        let bad = |cause: &str| SpaceError::BadKnob { knob: knob.to_string(), cause: cause.to_string() };
        if axes.is_empty() {
            return Err(bad("there is no loop to annotate"));
        }
        if axes.len() > 32 {
            return Err(bad("more than 32 loops to annotate"));
        }
        if self == Annotate::Vec && axes.len() > 1 {
            return Err(bad("the policy `vec` vectorises exactly one loop; use `try_vec` to choose one of several"));
        }
        Ok(AnnotateKnob { policy: self, axes: axes.iter().map(|a| a.to_string()).collect() })
    }
}

/// An annotate knob of a space.
#[derive(Clone, Debug)]
pub struct AnnotateKnob {
    policy: Annotate,
    axes: Vec<String>,
}

impl AnnotateKnob {
    /// Values for `left` more loops. With `k` choices that are not `vec`: none is vectorised, or one of them is.
    fn count(&self, left: usize, vec_used: bool) -> u64 {
        let choices = self.policy.choices();
        let plain = choices.iter().filter(|a| **a != Annotation::Vec).count() as u64;
        let none = plain.pow(left as u32);
        if vec_used || left == 0 || !choices.contains(&Annotation::Vec) {
            return none;
        }
        none + left as u64 * plain.pow(left as u32 - 1)
    }

    /// Number of values.
    pub(super) fn len(&self) -> u64 {
        self.count(self.axes.len(), false)
    }

    pub(super) fn get(&self, mut rank: u64) -> Value {
        let mut vec_used = false;
        let mut list = vec![];
        for left in (0..self.axes.len()).rev() {
            for &choice in self.policy.choices() {
                let is_vec = choice == Annotation::Vec;
                if is_vec && vec_used {
                    continue;
                }
                let count = self.count(left, vec_used || is_vec);
                if rank < count {
                    vec_used |= is_vec;
                    list.push(choice);
                    break;
                }
                rank -= count;
            }
        }
        Value::Annotate(list)
    }

    pub(super) fn rank_of(&self, list: &[Annotation]) -> Option<u64> {
        if list.len() != self.axes.len() || list.iter().any(|a| !self.policy.choices().contains(a)) {
            return None;
        }
        let mut vec_used = false;
        let mut rank = 0;
        for (i, &wanted) in list.iter().enumerate() {
            if wanted == Annotation::Vec && vec_used {
                return None;
            }
            for &choice in self.policy.choices().iter().take_while(|c| **c != wanted) {
                rank += self.count(list.len() - i - 1, vec_used || choice == Annotation::Vec);
            }
            vec_used |= wanted == Annotation::Vec;
        }
        Some(rank)
    }

    pub(super) fn parameters(&self) -> String {
        format!("{self} axes={}", self.axes.join(","))
    }
}

impl fmt::Display for AnnotateKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Annotate(policy={}) len={}", self.policy.name(), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn lengths_are_autotvms() {
        let len = |p: Annotate| p.resolve("t", &AXES).unwrap().len();
        assert_eq!(len(Annotate::Unroll), 1);
        assert_eq!(len(Annotate::TryUnroll), 8);
        assert_eq!(len(Annotate::TryVec), 4);
        assert_eq!(len(Annotate::TryUnrollVec), 20);
        assert_eq!(Annotate::Vec.resolve("t", &["a"]).unwrap().len(), 1);
        assert!(Annotate::Vec.resolve("t", &AXES).is_err());
    }

    #[test]
    fn rank_inverts_get_and_at_most_one_loop_is_vectorised() {
        for policy in [Annotate::Unroll, Annotate::TryUnroll, Annotate::TryVec, Annotate::TryUnrollVec] {
            let knob = policy.resolve("t", &AXES).unwrap();
            for rank in 0..knob.len() {
                let Value::Annotate(list) = knob.get(rank) else { panic!("not an annotation") };
                assert!(list.iter().filter(|a| **a == Annotation::Vec).count() <= 1);
                assert_eq!(knob.rank_of(&list), Some(rank));
            }
        }
        let knob = Annotate::TryVec.resolve("t", &AXES).unwrap();
        assert_eq!(knob.rank_of(&[Annotation::Vec, Annotation::Vec, Annotation::None]), None);
        assert_eq!(knob.rank_of(&[Annotation::Unroll, Annotation::None, Annotation::None]), None);
        assert_eq!(knob.rank_of(&[Annotation::Vec]), None);
    }
}
