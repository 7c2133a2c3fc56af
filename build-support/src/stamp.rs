//! The memory of the last run: if its key, inputs, tools and outputs are as they were, there is nothing to do.
//!
//! The file holds one fact a line, its fields between tabs:
//!
//! ```text
//! key      <hash of everything that is known before the spec is read>
//! program  <path, size and time of the build script> <hash of its contents>
//! tools    <hash of where tools are looked for> <hash of those that were found>
//! records  <hash of the files of records> <hash of the records that decide something here>
//! input    <path> <hash of its contents>
//! file     <path> <its size and time of change>        outputs and tools
//! line     <what cargo was told>
//! row/warning ...                                      the report
//! ```

use kernel_gen::generate::Report;
use kernel_gen::toolchain::file_identity;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a run leaves for the next.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) key: u64,
    /// The build script itself holds the generator and the user's templates: identity and hash of its contents.
    pub(crate) program: (String, u64),
    /// Where tools were looked for, and what was found; both are hashes.
    pub(crate) tools: (u64, u64),
    /// The user's records: all that is there, and what of it may decide something about this spec.
    pub(crate) records: (u64, u64),
    pub(crate) inputs: Vec<(PathBuf, u64)>,
    pub(crate) files: Vec<(PathBuf, String)>,
    pub(crate) lines: Vec<String>,
    pub(crate) report: Report,
}

impl Stamp {
    /// The stamp of an earlier run.
    pub(crate) fn load(path: &Path) -> Option<Stamp> {
        let text = fs::read_to_string(path).ok()?;
        let mut stamp = Stamp::default();
        let mut report = String::new();
        for line in text.lines() {
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["key", key] => stamp.key = hex(key)?,
                ["program", identity, hash] => stamp.program = (identity.into(), hex(hash)?),
                ["tools", places, found] => stamp.tools = (hex(places)?, hex(found)?),
                ["records", all, used] => stamp.records = (hex(all)?, hex(used)?),
                ["input", path, hash] => stamp.inputs.push((path.into(), hex(hash)?)),
                ["file", path, identity] => stamp.files.push((path.into(), identity.into())),
                ["line", text] => stamp.lines.push(text.into()),
                _ => report += &format!("{line}\n"),
            }
        }
        stamp.report = Report::parse(&report)?;
        Some(stamp)
    }

    /// The stamp as text.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("key\t{:016x}\nprogram\t{}\t{:016x}\n", self.key, self.program.0, self.program.1);
        out += &format!("tools\t{:016x}\t{:016x}\n", self.tools.0, self.tools.1);
        out += &format!("records\t{:016x}\t{:016x}\n", self.records.0, self.records.1);
        for (path, hash) in &self.inputs {
            out += &format!("input\t{}\t{hash:016x}\n", path.display());
        }
        for (path, identity) in &self.files {
            out += &format!("file\t{}\t{identity}\n", path.display());
        }
        for line in &self.lines {
            out += &format!("line\t{line}\n");
        }
        out + &self.report.to_lines()
    }

    /// Whether everything that the stamp names is as it was.
    pub(crate) fn holds(&self) -> bool {
        self.files.iter().all(|(path, identity)| path.exists() && identity_of(path) == *identity)
            && self.inputs.iter().all(|(path, hash)| hash_file(path) == Some(*hash))
    }
}

/// A file's size and time of change, in one field.
pub(crate) fn identity_of(path: &Path) -> String {
    file_identity(path).replace(['\t', '\n'], " ")
}

/// The identity and the hash of the running program. The contents are read only if the identity is not the one that
/// is known.
pub(crate) fn program(known: Option<&Stamp>) -> (String, u64) {
    let Ok(path) = std::env::current_exe() else { return (String::new(), 0) };
    let identity = identity_of(&path);
    match known {
        Some(stamp) if stamp.program.0 == identity => stamp.program.clone(),
        _ => (identity, hash_file(&path).unwrap_or(0)),
    }
}

/// The hash of a file's contents; nothing if it cannot be read.
pub(crate) fn hash_file(path: &Path) -> Option<u64> {
    // The pages of a buffer for all of a program take longer than its hash.
    const PIECE: usize = 1 << 18;
    let mut file = fs::File::open(path).ok()?;
    let (mut state, mut piece) = (0, Vec::with_capacity(PIECE));
    loop {
        piece.clear();
        let read = file.by_ref().take(PIECE as u64).read_to_end(&mut piece).ok()?;
        state = hash(state, &piece);
        if read < PIECE {
            return Some(state);
        }
    }
}

/// A hash that continues `state`. Build scripts are compiled without optimisation and hash their own megabytes, so it
/// takes sixteen bytes at a step.
pub(crate) fn hash(state: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let (words, rest) = bytes.as_chunks::<16>();
    let mut h = u128::from(state) ^ (bytes.len() as u128).wrapping_mul(FACTOR);
    for word in words {
        h = (h ^ u128::from_le_bytes(*word)).wrapping_mul(FACTOR).rotate_left(59);
    }
    for byte in rest {
        h = (h ^ u128::from(*byte)).wrapping_mul(FACTOR).rotate_left(59);
    }
    h = (h ^ (h >> 64)).wrapping_mul(FACTOR);
    (h >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_its_text_and_sees_changes() {
        let folder = std::env::temp_dir().join(format!("kernel-gen-stamp-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (input, output) = (folder.join("in"), folder.join("out"));
        fs::write(&input, "a").unwrap();
        fs::write(&output, "b").unwrap();
        let stamp = Stamp {
            key: 7,
            program: program(None),
            tools: (8, 9),
            records: (10, 11),
            inputs: vec![(input.clone(), hash_file(&input).unwrap())],
            files: vec![(output.clone(), identity_of(&output))],
            lines: vec!["cargo::rustc-link-lib=static=x".into()],
            report: Report { rows: vec![], warnings: vec!["w".into()] },
        };
        let file = folder.join("stamp");
        fs::write(&file, stamp.text()).unwrap();
        assert_eq!(Stamp::load(&file), Some(stamp.clone()));
        assert!(stamp.holds());
        fs::write(&input, "c").unwrap();
        assert!(!stamp.holds());
        fs::write(&input, "a").unwrap();
        fs::remove_file(&output).unwrap();
        assert!(!stamp.holds());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_hash_sees_every_byte_and_the_length() {
        let long: Vec<u8> = (0..100).collect();
        let first = hash(0, &long);
        for i in 0..100 {
            let mut other = long.clone();
            other[i] ^= 1;
            assert_ne!(hash(0, &other), first);
        }
        assert_ne!(hash(0, &[0; 8]), hash(0, &[0; 16]));
        assert_ne!(hash(1, b"x"), hash(0, b"x"));
    }
}
