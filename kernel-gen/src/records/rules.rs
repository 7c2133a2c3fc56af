//! What happens to a record, or to a trial of a log, that does not belong to what it is read for.
//!
//! All rules are in one table, [`RULES`]. They follow from one thought: a number is only worth something together with
//! what was measured. What could change the kernel behind a config (template, version, space, knobs) makes it worthless
//! for everybody; what could change its time (device, capability) makes it a hint; what can do neither is only told.

use crate::diagnostic::Diagnostic;
use crate::space::{ConfigError, Fingerprint};
use std::fmt;

/// How what a build says of a record that it refuses begins, behind the record's place.
pub const REFUSED: &str = "the record is not used: ";

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is used, and there is nothing to say.
    Use,
    /// It is used, or used for less than it says, and a person is told.
    Warn,
    /// It is not used, and a person is told.
    Refuse,
}

/// What a record or a trial is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To generate code from the best record.
    Build,
    /// To make best records of trials.
    Prune,
    /// To go on tuning: trials are not repeated, and teach the tuner.
    Tune,
}

/// How something may not belong.
#[derive(Clone, PartialEq, Debug)]
pub enum Mismatch {
    /// The line cannot be read: torn, damaged, or no line of a log.
    Damaged,
    /// The line, or the file, is of another schema.
    Schema {
        /// Its schema.
        recorded: i64,
    },
    /// The line that describes its machine is lost.
    NoMachine,
    /// Its result was never checked.
    Unverified,
    /// Its workload or its target is not known here.
    Unknown {
        /// What is not known.
        what: String,
    },
    /// No template of that name can run the workload here.
    NoTemplate {
        /// The name.
        template: String,
        /// The templates that can.
        offered: Vec<String>,
    },
    /// The template has changed since.
    OtherVersion {
        /// The template.
        template: String,
        /// Its version in the record.
        recorded: u32,
        /// Its version now.
        current: u32,
    },
    /// The template's space has changed since.
    OtherSpace {
        /// The fingerprint in the record.
        recorded: Fingerprint,
        /// The fingerprint now.
        current: Fingerprint,
    },
    /// A knob is unknown, or has no value.
    Knob(ConfigError),
    /// A value, or a combination of values, is not in the space.
    Value(ConfigError),
    /// It was measured on another device of the same target.
    OtherDevice {
        /// The device in the record.
        recorded: String,
        /// The device here.
        current: String,
    },
    /// It was measured on another target.
    OtherTarget {
        /// The target in the record.
        recorded: String,
        /// The target here.
        current: String,
    },
    /// Another version of the generator measured it.
    OtherGenerator {
        /// The version in the record.
        recorded: String,
        /// The version now.
        current: String,
    },
}

/// One line of the table: what a mismatch means for each purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The mismatch, as [`Mismatch::name`] calls it.
    pub name: &'static str,
    /// When code is generated.
    pub build: Verdict,
    /// When best records are made.
    pub prune: Verdict,
    /// When tuning goes on.
    pub tune: Verdict,
    /// What a person can do.
    pub help: &'static str,
}

const fn rule(name: &'static str, [build, prune, tune]: [Verdict; 3], help: &'static str) -> Rule {
    Rule { name, build, prune, tune, help }
}

use Verdict::{Refuse, Use, Warn};

/// The table.
///
/// * A record of another target generates code only where its config is valid in the space here, limits included; the
///   choice's origin says so. Best records are made for each target by itself, so that for pruning it is no mismatch.
/// * A trial of another device or target is not taken for a result here, but teaches a tuner which configs to try first.
/// * A template's version says whether its configs still mean the same. The generator's version decides nothing; it is
///   told because compilers' flags and measuring may have changed with it.
pub static RULES: [Rule; 13] = [
    rule("damaged", [Refuse, Refuse, Refuse], "restore the file from version control, or delete the line"),
    rule("schema", [Refuse, Refuse, Refuse], "update kernel-gen, or tune again with this version"),
    rule("no-machine", [Use, Warn, Warn], "restore the file from version control to know the driver and clocks"),
    rule("unverified", [Refuse, Refuse, Warn], "tune the workload again: what was not checked is only where to start"),
    rule("unknown", [Refuse, Refuse, Refuse], "update kernel-gen, or delete it"),
    rule("no-template", [Refuse, Refuse, Refuse], "register the template, or tune the workload again"),
    rule("template-version", [Refuse, Refuse, Refuse], "tune the workload again or delete it"),
    rule("space", [Refuse, Refuse, Warn], "tune the workload again or delete it"),
    rule("knob", [Refuse, Refuse, Refuse], "tune the workload again or delete it"),
    rule("value", [Refuse, Refuse, Refuse], "tune the workload again or delete it"),
    rule("device", [Warn, Use, Warn], "tune on this device to have records of it"),
    rule("target", [Warn, Use, Warn], "tune for this target to have records of it"),
    rule("generator", [Use, Warn, Warn], "tune again to have numbers of this version"),
];

impl Mismatch {
    /// Its name in [`RULES`].
    pub fn name(&self) -> &'static str {
        match self {
            Mismatch::Damaged => "damaged",
            Mismatch::Schema { .. } => "schema",
            Mismatch::NoMachine => "no-machine",
            Mismatch::Unverified => "unverified",
            Mismatch::Unknown { .. } => "unknown",
            Mismatch::NoTemplate { .. } => "no-template",
            Mismatch::OtherVersion { .. } => "template-version",
            Mismatch::OtherSpace { .. } => "space",
            Mismatch::Knob(_) => "knob",
            Mismatch::Value(_) => "value",
            Mismatch::OtherDevice { .. } => "device",
            Mismatch::OtherTarget { .. } => "target",
            Mismatch::OtherGenerator { .. } => "generator",
        }
    }

    /// Its line of the table.
    pub fn rule(&self) -> &'static Rule {
        // Every name is in the table, which a test holds; one that were not would be treated as damage.
        RULES.iter().find(|rule| rule.name == self.name()).unwrap_or(&RULES[0])
    }

    /// What is to be done.
    pub fn verdict(&self, purpose: Purpose) -> Verdict {
        let rule = self.rule();
        match purpose {
            Purpose::Build => rule.build,
            Purpose::Prune => rule.prune,
            Purpose::Tune => rule.tune,
        }
    }

    /// What a person is told about a line of a file.
    pub fn diagnostic(&self, file: &str, line: usize, purpose: Purpose) -> Diagnostic {
        let what = match (purpose, self.verdict(purpose)) {
            (Purpose::Build, Verdict::Refuse) => REFUSED,
            (_, Verdict::Refuse) => "the trial is not used: ",
            _ => "",
        };
        Diagnostic { file: file.into(), line, cause: format!("{what}{self}"), help: self.rule().help.into() }
    }

    /// The mismatch that a config is which a space refuses.
    pub(super) fn of_config(error: ConfigError) -> Mismatch {
        match error {
            ConfigError::Unknown { .. } | ConfigError::Missing { .. } => Mismatch::Knob(error),
            _ => Mismatch::Value(error),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Damaged => f.write_str("the line is damaged"),
            Mismatch::Schema { recorded } => write!(f, "it has schema {recorded}"),
            Mismatch::NoMachine => f.write_str("the line of its run is lost, and with it the driver and the clocks"),
            Mismatch::Unverified => f.write_str("its result was never checked"),
            Mismatch::Unknown { what } => write!(f, "{what} is not known here"),
            Mismatch::NoTemplate { template, offered } if offered.is_empty() => {
                write!(f, "its template `{template}` does not apply, and no other does")
            }
            Mismatch::NoTemplate { template, offered } => {
                write!(f, "its template `{template}` does not apply here; those that do: {}", offered.join(", "))
            }
            Mismatch::OtherVersion { template, recorded, current } => {
                write!(f, "it was made for version {recorded} of the template `{template}`, which is now {current}")
            }
            Mismatch::OtherSpace { recorded, current } => {
                write!(f, "it was made in another config space ({recorded}, now {current})")
            }
            Mismatch::Knob(error) | Mismatch::Value(error) => error.fmt(f),
            Mismatch::OtherDevice { recorded, current } => {
                write!(f, "it was measured on {recorded}, and this is {current}")
            }
            Mismatch::OtherTarget { recorded, current } => {
                write!(f, "it was measured for {recorded}, and this is {current}")
            }
            Mismatch::OtherGenerator { recorded, current } => {
                write!(f, "it was measured by version {recorded} of the generator, which is now {current}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each.
    fn all() -> Vec<Mismatch> {
        let (a, b) = (|| "a".to_string(), || "b".to_string());
        let error = || ConfigError::Missing { knob: a() };
        vec![
            Mismatch::Damaged,
            Mismatch::Schema { recorded: 2 },
            Mismatch::NoMachine,
            Mismatch::Unverified,
            Mismatch::Unknown { what: a() },
            Mismatch::NoTemplate { template: a(), offered: vec![] },
            Mismatch::OtherVersion { template: a(), recorded: 1, current: 2 },
            Mismatch::OtherSpace { recorded: Fingerprint(1), current: Fingerprint(2) },
            Mismatch::Knob(error()),
            Mismatch::Value(error()),
            Mismatch::OtherDevice { recorded: a(), current: b() },
            Mismatch::OtherTarget { recorded: a(), current: b() },
            Mismatch::OtherGenerator { recorded: a(), current: b() },
        ]
    }

    #[test]
    fn every_mismatch_has_its_line_of_the_table() {
        let names: Vec<&str> = all().iter().map(Mismatch::name).collect();
        assert_eq!(names, RULES.map(|rule| rule.name));
        for mismatch in all() {
            assert_eq!(mismatch.rule().name, mismatch.name());
            for purpose in [Purpose::Build, Purpose::Prune, Purpose::Tune] {
                let text = mismatch.diagnostic("f", 3, purpose).to_string();
                assert!(text.starts_with("f:3: ") && text.ends_with(mismatch.rule().help), "{text}");
            }
        }
    }

    #[test]
    fn nothing_unchecked_and_nothing_of_another_kernel_is_ever_built_or_made_a_record() {
        for name in ["unverified", "no-template", "template-version", "space", "knob", "value", "damaged", "schema"] {
            let rule = RULES.iter().find(|r| r.name == name).unwrap();
            assert_eq!((rule.build, rule.prune), (Verdict::Refuse, Verdict::Refuse), "{name}");
        }
    }
}
