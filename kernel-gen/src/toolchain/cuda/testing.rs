//! Folders and small programs for this room's tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that vanishes with its value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("kernel-gen-cuda-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.clone()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes an executable shell script.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Written by another process: a file that this one holds open for writing, if only in a child that another
        // test is starting right now, cannot be run.
        let shell = which::which("sh").unwrap();
        let text = format!("#!{}\n{text}\n", shell.display());
        let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let status = Command::new(&shell).args(["-c", write, "sh", &text]).arg(&path).status().unwrap();
        assert!(status.success());
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A shell script that answers as `nvcc` does, writes what it is asked for, and keeps a line for each call.
pub(crate) fn fake_nvcc(folder: &Folder, name: &str, release: &str) -> PathBuf {
    let log = folder.join("calls");
    let text = format!(
        r#"case "$1" in --version) echo "Cuda compilation tools, release {short}, V{release}"; exit 0;; esac
echo "$@" >> {log}
arch=sm_80
while [ $# -gt 1 ]; do
    case "$1" in -o) out=$2;; arch=*) arch=sm_${{1##*compute_}};; esac
    shift
done
case "$out" in
*.ptx)
    printf '.version 9.0\n.target %s\n' "$arch" > "$out"
    sed -n 's/.*__global__.* \([A-Za-z0-9_]*\)(.*/.visible .entry \1(/p' "$1" >> "$out";;
*.cubin)
    version=$(grep '^.version' assemble.ptx)
    if [ "$version" = ".version 7.0" ]; then
        echo "ptxas a.ptx, line 1; error : Feature 'x' requires PTX ISA .version 7.4 or later" >&2; exit 255
    fi
    echo "ptxas info    : Compiling entry function 'k' for 'sm_80'"
    echo "ptxas info    : Used 9 registers, used 1 barriers, 128 bytes smem"
    printf 'machine code' > "$out";;
esac"#,
        short = release.rsplit_once('.').unwrap().0,
        log = log.display()
    );
    folder.script(name, &text)
}

/// How often a script of [`fake_nvcc`] in the folder was called.
pub(crate) fn calls(folder: &Folder) -> usize {
    fs::read_to_string(folder.join("calls")).map_or(0, |text| text.lines().count())
}
