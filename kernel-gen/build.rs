//! Hashes the sources: what is generated is kept and used by other builds of the same sources (`src/generate/memo.rs`).

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    // FNV-1a, as `src/stable.rs`.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add =
        |bytes: &[u8]| bytes.iter().for_each(|b| hash = (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    for file in files(&root.join("src"))? {
        let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let bytes = fs::read(&file)?;
        add(format!("{name}\n{}\n", bytes.len()).as_bytes());
        add(&bytes);
    }
    println!("cargo::rustc-env=SOURCES_HASH={hash:016x}");
    Ok(())
}

/// All files below a folder, in a fixed order, but for what editors hide there.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.retain(|entry| !entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
    entries.sort();
    let below = entries.into_iter().map(|entry| if entry.is_dir() { files(&entry) } else { Ok(vec![entry]) });
    Ok(below.collect::<io::Result<Vec<_>>>()?.concat())
}
