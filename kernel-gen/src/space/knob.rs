//! A knob: one dimension of a space.

use super::annotate::AnnotateKnob;
use super::error::SpaceError;
use super::reorder::ReorderKnob;
use super::split::SplitKnob;
use super::value::Value;
use std::collections::BTreeSet;
use std::fmt;

/// One dimension of a space.
#[derive(Clone, Debug)]
pub enum Knob {
    /// How a loop is cut.
    Split(SplitKnob),
    /// How loops are ordered.
    Reorder(ReorderKnob),
    /// Which loops are unrolled or vectorised.
    Annotate(AnnotateKnob),
    /// One of a list of numbers, words or switches.
    Choice(Vec<Value>),
    /// Some of another knob's values, by their ranks.
    Part(Box<Knob>, Vec<u64>),
}

impl Knob {
    /// Number of values; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a knob is never empty")]
    pub fn len(&self) -> u64 {
        match self {
            Knob::Split(k) => k.len(),
            Knob::Reorder(k) => k.len(),
            Knob::Annotate(k) => k.len(),
            Knob::Choice(values) => values.len() as u64,
            Knob::Part(_, ranks) => ranks.len() as u64,
        }
    }

    /// The value at a rank below [`len`](Knob::len).
    pub fn get(&self, rank: u64) -> Value {
        assert!(rank < self.len(), "rank {rank} is outside a knob of {} values", self.len());
        match self {
            Knob::Split(k) => k.get(rank),
            Knob::Reorder(k) => k.get(rank),
            Knob::Annotate(k) => k.get(rank),
            Knob::Choice(values) => values[rank as usize].clone(),
            Knob::Part(knob, ranks) => knob.get(ranks[rank as usize]),
        }
    }

    /// The rank of a value, if the knob takes it.
    pub fn rank_of(&self, value: &Value) -> Option<u64> {
        match (self, value) {
            (Knob::Split(k), Value::Split(sizes)) => k.rank_of(sizes),
            (Knob::Reorder(k), Value::Perm(order)) => k.rank_of(order),
            (Knob::Annotate(k), Value::Annotate(list)) => k.rank_of(list),
            (Knob::Choice(values), value) => values.iter().position(|v| v == value).map(|i| i as u64),
            (Knob::Part(knob, ranks), value) => {
                let rank = knob.rank_of(value)?;
                ranks.iter().position(|r| *r == rank).map(|i| i as u64)
            }
            _ => None,
        }
    }

    /// The kind of value it takes, as error messages call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Knob::Split(_) => "split",
            Knob::Reorder(_) => "permutation",
            Knob::Annotate(_) => "annotation",
            Knob::Choice(values) => values[0].kind(),
            Knob::Part(knob, _) => knob.kind(),
        }
    }

    /// What the knob is made of, as fingerprints have it.
    pub(super) fn parameters(&self) -> String {
        match self {
            Knob::Split(k) => k.parameters(),
            Knob::Reorder(k) => k.parameters(),
            Knob::Annotate(k) => k.parameters(),
            Knob::Choice(_) | Knob::Part(..) => self.to_string(),
        }
    }

    /// A knob of a list of numbers, words or switches.
    pub(super) fn choice(knob: &str, values: Vec<Value>) -> Result<Knob, SpaceError> {
        let bad = |cause: String| Err(SpaceError::BadKnob { knob: knob.to_string(), cause });
        let Some(first) = values.first() else {
            return bad("it has no values".to_string());
        };
        if !matches!(first, Value::Int(_) | Value::Str(_) | Value::Bool(_)) {
            return bad(format!("its values are of kind {}; they must be integers, strings or bools", first.kind()));
        }
        let mut seen = BTreeSet::new();
        for value in &values {
            if value.kind() != first.kind() {
                return bad(format!("it mixes {first} ({}) and {value} ({})", first.kind(), value.kind()));
            }
            // Values of one kind are equal where their texts are.
            if !seen.insert(value.to_string()) {
                return bad(format!("the value {value} is listed twice"));
            }
        }
        Ok(Knob::Choice(values))
    }
}

impl fmt::Display for Knob {
    /// As AutoTVM prints it; a list of values is a Python list there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knob::Split(k) => k.fmt(f),
            Knob::Reorder(k) => k.fmt(f),
            Knob::Annotate(k) => k.fmt(f),
            Knob::Part(_, ranks) => {
                let words: Vec<String> = (0..ranks.len() as u64).map(|r| self.get(r).to_string()).collect();
                write!(f, "Part([{}]) len={}", words.join(", "), ranks.len())
            }
            Knob::Choice(values) => {
                let words: Vec<String> = values
                    .iter()
                    .map(|v| match v {
                        Value::Bool(true) => "True".to_string(),
                        Value::Bool(false) => "False".to_string(),
                        Value::Str(s) => s.clone(),
                        other => other.to_string(),
                    })
                    .collect();
                write!(f, "OtherOption([{}]) len={}", words.join(", "), values.len())
            }
        }
    }
}
