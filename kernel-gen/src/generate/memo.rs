//! What earlier runs of the same generator made, so that a changed line of a spec or of records costs its own kernels only.
//!
//! Two steps take nearly all of a generation's time, and both are functions of little: what is chosen for a workload, of it, its
//! target and the records of its kind; and the code of a choice. Each result is an entry of a cache, which names what it was made of.
//! A result of another generator is none: the key holds the hash of its sources or, with templates of a user's, of the program that runs.

use super::chosen::Picked;
use super::made::Made;
use crate::cache::Cache;
use crate::model::{self, Kinds};
use crate::records::{BestRecords, Choice, Measurement, Origin};
use crate::space::Config;
use crate::stable::fnv1a;
use crate::stored::{Stored, stored};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::Workload;

/// Results in a cache.
#[derive(Clone, Debug)]
pub struct Memo {
    cache: Cache,
    program: u64,
}

impl Memo {
    /// The results in a cache, of a program that a hash stands for; 0 where nobody knows its hash.
    pub fn open(cache: Cache, program: u64) -> Memo {
        Memo { cache, program }
    }

    /// The beginning of a key: who makes the result. The templates of the library are known by its sources, so that programs that are
    /// compiled in several ways share results; what templates of a user's do only the whole program says. None where that is unknown.
    fn maker(&self, kind: &str, registry: &Registry) -> Option<String> {
        let maker = match (registry.is_builtin(), self.program) {
            (true, _) => concat!("sources ", env!("SOURCES_HASH")).to_string(),
            (false, 0) => return None,
            (false, program) => format!("program {program:016x}\n{registry:?}"),
        };
        Some(format!("{kind}\n{maker}"))
    }

    /// What is chosen: what an earlier run chose, or what `choose` does. A choice that something is to be said of is chosen again
    /// each time.
    pub(super) fn choice<E>(&self, of: &Asked<'_>, choose: impl FnOnce() -> Result<Choice, E>) -> Result<Choice, E> {
        let Asked { registry, workload, target, records, options } = of;
        let Some(maker) = self.maker("choice", registry) else { return choose() };
        let key = format!("{maker}\n{}\n{}\n{options:?}\n{records:016x}", workload.key(), target.name);
        let known: Option<KeptChoice> = self.cache.get(&key);
        if let Some(choice) = known.and_then(KeptChoice::choice) {
            return Ok(choice);
        }
        let choice = choose()?;
        if let Some(kept) = KeptChoice::of(&choice) {
            self.cache.put(&key, &kept);
        }
        Ok(choice)
    }

    /// The code of a choice: an earlier run's, or what `make` makes.
    pub(super) fn made<E>(
        &self,
        picked: &Picked<'_>,
        registry: &Registry,
        prefix: &str,
        make: impl FnOnce() -> Result<Made, E>,
    ) -> Result<Made, E> {
        let Some(maker) = self.maker("made", registry) else { return make() };
        let key = format!("{maker}\n{prefix}\n{}", picked.facts());
        if let Some(made) = self.cache.get(&key) {
            return Ok(made);
        }
        let made = make()?;
        self.cache.put(&key, &made);
        Ok(made)
    }
}

/// What a choice is a function of.
pub(super) struct Asked<'a> {
    pub(super) registry: &'a Registry,
    pub(super) workload: &'a Workload,
    pub(super) target: &'a Target,
    /// The hash of the records of its kind, see [`Digests`].
    pub(super) records: u64,
    pub(super) options: &'a model::Options,
}

/// A hash of the records of each kind of workload: what may decide a choice.
pub(super) struct Digests {
    kinds: Kinds,
    hashes: Vec<u64>,
}

impl Digests {
    pub(super) fn new<'w>(workloads: impl IntoIterator<Item = &'w Workload>, records: &BestRecords) -> Digests {
        let kinds = Kinds::of(workloads);
        // Where nobody names a device, the main one decides, which all records make.
        let main = fnv1a(format!("{:?}", records.main_devices()).as_bytes());
        let mut hashes = vec![main; kinds.len()];
        for entry in records.entries() {
            let kind = Workload::from_key(&entry.record.workload).ok().and_then(|workload| kinds.position(&workload));
            if let Some(kind) = kind {
                let slot = entry.record.slot();
                let facts = (slot.target, slot.device, entry.record.to_line(), entry.is_shipped, hashes[kind]);
                hashes[kind] = fnv1a(format!("{facts:?}").as_bytes());
            }
        }
        Digests { kinds, hashes }
    }

    /// The hash for a workload; none where it was not among those at the start.
    pub(super) fn of(&self, workload: &Workload) -> u64 {
        self.kinds.position(workload).map_or(0, |kind| self.hashes[kind])
    }
}

/// A choice of which nothing is to be said.
struct KeptChoice {
    template: String,
    config: String,
    origin: Origin,
}

stored! {
    KeptChoice { template, config, origin }
    Measurement { target, device, threads, time_us, core_gflops, floor_us, is_shipped }
}

impl KeptChoice {
    fn of(choice: &Choice) -> Option<KeptChoice> {
        let Choice { template, config, origin, refusals, passed_over, unusable } = choice;
        let is_plain = refusals.is_empty() && passed_over.is_none() && unusable.is_empty();
        let text = config.to_string();
        let reads_back = Config::parse(&text).is_ok_and(|read| read == *config);
        (is_plain && reads_back).then(|| KeptChoice {
            template: template.clone(),
            config: text,
            origin: origin.clone(),
        })
    }

    fn choice(self) -> Option<Choice> {
        let KeptChoice { template, config, origin } = self;
        let config = Config::parse(&config).ok()?;
        Some(Choice { template, config, origin, refusals: vec![], passed_over: None, unusable: vec![] })
    }
}

impl Stored for Origin {
    fn put(&self, out: &mut Vec<u8>) {
        let mut tagged = |tag: u8| {
            tag.put(out);
            self.measured().into_iter().for_each(|m| m.put(out));
        };
        match self {
            Origin::Exact(_) => tagged(0),
            Origin::SameTarget(_) => tagged(1),
            Origin::SameCapability(_) => tagged(2),
            Origin::OtherTarget(_) => tagged(3),
            Origin::Model { predicted_us, records } => {
                tagged(4);
                (*predicted_us, *records).put(out);
            }
            Origin::Analytic { predicted_us } => {
                tagged(5);
                predicted_us.put(out);
            }
        }
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::get(from)? {
            0 => Origin::Exact(Stored::get(from)?),
            1 => Origin::SameTarget(Stored::get(from)?),
            2 => Origin::SameCapability(Stored::get(from)?),
            3 => Origin::OtherTarget(Stored::get(from)?),
            4 => Origin::Model { predicted_us: Stored::get(from)?, records: Stored::get(from)? },
            5 => Origin::Analytic { predicted_us: Stored::get(from)? },
            _ => return None,
        })
    }
}
