//! The records that come with kernel-gen: the fastest checked configuration of each workload that was tuned, by target and
//! device.
//!
//! `kernel-gen-build` and the command put them under a user's own records, which go before them.
#![forbid(unsafe_code)]

/// The files of records: the name of each below this crate, and its text.
pub const FILES: &[(&str, &str)] = &[
    ("sm_90a/nvidia-h100-80gb-hbm3.toml", include_str!("../sm_90a/nvidia-h100-80gb-hbm3.toml")),
    ("sm_90a/nvidia-h200.toml", include_str!("../sm_90a/nvidia-h200.toml")),
    ("x86-64-v3/amd-epyc-family-25-model-1.toml", include_str!("../x86-64-v3/amd-epyc-family-25-model-1.toml")),
    ("x86-64-v4/amd-epyc-family-26-model-2.toml", include_str!("../x86-64-v4/amd-epyc-family-26-model-2.toml")),
];

#[cfg(test)]
mod tests {
    use super::FILES;
    use std::path::Path;

    /// A file of a new device ships only where it stands in the list.
    #[test]
    fn every_file_of_records_ships() {
        let tuned = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folders =
            std::fs::read_dir(tuned).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir() && !p.ends_with("src"));
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|e| e.unwrap().path());
        let mut files: Vec<String> =
            files.map(|file| file.strip_prefix(tuned).unwrap().display().to_string().replace('\\', "/")).collect();
        files.sort();
        assert_eq!(files, FILES.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>());
    }
}
