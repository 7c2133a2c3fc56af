//! What earlier runs of the same program made, so that a changed line of a spec or of records costs its own kernels only.
//!
//! Two steps take nearly all of a generation's time, and both are functions of little: what is chosen for a workload, of it, its
//! target and the records of its kind; and the code of a choice. Each result is a file, which says in full what it was made of.
//! A result of another program is none: the key holds the hash of the one that runs, with the generator and all templates in it.

use super::chosen::Picked;
use super::made::Made;
use crate::files;
use crate::model::{self, Kinds};
use crate::records::{BestRecords, Choice, Measurement, Origin};
use crate::space::Config;
use crate::stable::{fnv1a, fnv1a_128};
use crate::stored::{Stored, stored};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::Workload;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long a result is kept that no run asks for.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How old a result may be that is asked for without being made young again.
const YOUNG: Duration = Duration::from_secs(24 * 3600);

/// A folder of results. Where it cannot be written, everything is made again, and nothing else happens.
#[derive(Clone, Debug)]
pub struct Memo {
    folder: PathBuf,
    program: u64,
    used: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Memo {
    /// The results in a folder, of a program that a hash stands for. The folder is this program's alone to write.
    pub fn open(folder: &Path, program: u64) -> Memo {
        Memo { folder: folder.to_path_buf(), program, used: Arc::default() }
    }

    /// Removes old results that nobody asked for since the folder was opened.
    pub fn forget(&self) {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for path in fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|e| e.path()) {
            let is_old = || fs::File::open(&path).is_ok_and(|file| files::is_older(&file, KEPT));
            if !used.contains(&path) && is_old() {
                let _ = fs::remove_file(&path);
            }
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        let path = self.folder.join(format!("{:032x}", fnv1a_128(key.as_bytes())));
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        path
    }

    fn get<T: Stored>(&self, key: &str) -> Option<T> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        if fs::File::open(&path).is_ok_and(|file| files::is_older(&file, YOUNG)) {
            let _ = fs::File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        let mut from = &bytes[..];
        let (of, value): (String, T) = Stored::get(&mut from)?;
        (of == key && from.is_empty()).then_some(value)
    }

    fn put(&self, key: &str, value: &impl Stored) {
        let mut bytes = vec![];
        key.to_string().put(&mut bytes);
        value.put(&mut bytes);
        let _ = fs::create_dir_all(&self.folder).and_then(|()| files::write_whole(&self.path(key), &bytes));
    }

    /// What is chosen: what an earlier run chose, or what `choose` does. A choice that something is to be said of is chosen again
    /// each time.
    pub(super) fn choice<E>(&self, of: &Asked<'_>, choose: impl FnOnce() -> Result<Choice, E>) -> Result<Choice, E> {
        let Asked { registry, workload, target, records, options } = of;
        let key = format!(
            "choice\n{:016x}\n{registry:?}\n{}\n{}\n{options:?}\n{records:016x}",
            self.program,
            workload.key(),
            target.name
        );
        let known: Option<KeptChoice> = self.get(&key);
        if let Some(choice) = known.and_then(KeptChoice::choice) {
            return Ok(choice);
        }
        let choice = choose()?;
        if let Some(kept) = KeptChoice::of(&choice) {
            self.put(&key, &kept);
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
        let key = format!("made\n{:016x}\n{registry:?}\n{prefix}\n{}", self.program, picked.facts());
        if let Some(made) = self.get(&key) {
            return Ok(made);
        }
        let made = make()?;
        self.put(&key, &made);
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
