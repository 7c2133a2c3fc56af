//! What is compiled and what comes of it.

use super::arch::{Arch, Version};
use super::entries::entries;
use super::hash::ContentHash;
use super::resources::AssemblerLog;

/// What a compiler is told besides the source and the architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// The most registers that a thread may have.
    pub max_registers: Option<u32>,
    /// Approximate division, square root and functions, and subnormal numbers taken for zero.
    pub fast_math: bool,
    /// Line numbers in the code, for profilers.
    pub line_info: bool,
}

impl Flags {
    /// A text that differs where the flags do; part of hashes that are checked in.
    pub(super) fn key(&self) -> String {
        let registers = self.max_registers.map_or(String::new(), |n| format!(" registers={n}"));
        let fast = if self.fast_math { " fast_math" } else { "" };
        let lines = if self.line_info { " line_info" } else { "" };
        format!("flags{registers}{fast}{lines}")
    }

    /// As `nvcc` and NVRTC take them.
    pub(super) fn nvidia(&self) -> Vec<String> {
        let mut all: Vec<String> = self.max_registers.iter().map(|n| format!("--maxrregcount={n}")).collect();
        all.extend(self.fast_math.then(|| "--use_fast_math".to_string()));
        all.extend(self.line_info.then(|| "--generate-line-info".to_string()));
        all
    }
}

/// A source to compile for an architecture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The kernel's name, for messages and files.
    pub kernel: String,
    /// CUDA C++ that includes no header of a toolkit.
    pub source: String,
    /// What it is compiled for.
    pub arch: Arch,
    /// How.
    pub flags: Flags,
    /// Whether the text names each kernel as PTX does. What this library emits does; what a person writes may have
    /// templates, macros and names of C++.
    pub names_its_kernels: bool,
}

impl Request {
    /// A request with no flags.
    pub fn new(kernel: impl Into<String>, source: impl Into<String>, arch: Arch) -> Request {
        Request { kernel: kernel.into(), source: source.into(), arch, flags: Flags::default(), names_its_kernels: true }
    }

    /// The hash of source and flags: what a packaged artifact is found by, together with the architecture. The comment
    /// at the top of the source does not count: it says which version generated it and how fast it was, and another
    /// one there makes no other code. (It does where the code has line numbers in it.)
    pub fn hash(&self) -> ContentHash {
        let source = if self.flags.line_info { &self.source } else { without_head(&self.source) };
        ContentHash::of_parts(&[self.flags.key().as_bytes(), source.as_bytes()])
    }

    /// What tells that PTX is not of this source, as far as a text can tell: it is for another architecture, or does not
    /// define a kernel of the source.
    pub(super) fn differs_from(&self, ptx: &str) -> Option<String> {
        let target = ptx.lines().find_map(|line| line.trim().strip_prefix(".target "));
        let target = target.and_then(|names| names.split([',', ' ']).next());
        if target != Some(&self.arch.to_string()) {
            return Some(format!("it is not for {}", self.arch));
        }
        let wanted = if self.names_its_kernels { kernels(&self.source) } else { vec![] };
        let defined = entries(ptx);
        let missing = wanted.into_iter().find(|kernel| !defined.iter().any(|entry| entry.name == *kernel));
        missing.map(|kernel| format!("it has no kernel `{kernel}`"))
    }

    /// The kernel's name as the name of a file.
    pub(super) fn stem(&self) -> String {
        file_stem(&self.kernel)
    }
}

/// The source from its first line on that is neither empty nor all comment.
fn without_head(source: &str) -> &str {
    let mut rest = source;
    while let Some((line, after)) = rest.split_once('\n') {
        // A line that ends in a backslash would take the next one with it.
        let is_comment = line.starts_with("//") && !line.trim_end().ends_with('\\');
        if !is_comment && !line.trim().is_empty() {
            break;
        }
        rest = after;
    }
    rest
}

/// The names of the kernels that a source defines: the first name with parentheses behind `__global__` that is no attribute.
fn kernels(source: &str) -> Vec<&str> {
    source.split("__global__").skip(1).filter_map(kernel_of).collect()
}

/// The name of the function whose declaration that is.
fn kernel_of(mut rest: &str) -> Option<&str> {
    loop {
        let (before, _) = rest.split_once('(')?;
        let name = before.trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        if !name.starts_with("__") {
            return Some(name).filter(|name| !name.is_empty());
        }
        // Behind an attribute.
        rest = rest.split_once(')')?.1;
    }
}

/// A name as part of a file's name: nothing but letters, digits, `_`, `-` and `.`, and not too long.
pub(super) fn file_stem(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let stem: String = name.chars().map(fits).take(80).collect();
    if stem.is_empty() { "kernel".to_string() } else { stem }
}

/// Compiled code of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Artifact {
    /// The kernel's name.
    pub kernel: String,
    /// What it was compiled for.
    pub arch: Arch,
    /// The request's hash.
    pub source: ContentHash,
    /// The compiler and its version.
    pub compiler: String,
    /// The PTX; no zero at its end.
    pub ptx: String,
    /// The machine code. Missing where the compiler makes none and there is no `ptxas`.
    pub cubin: Option<Vec<u8>>,
    /// What the assembler said; empty for packaged artifacts, which nothing was assembled for just now.
    pub log: AssemblerLog,
}

impl Artifact {
    /// The version of the PTX language that the text declares: a driver must know it.
    pub fn ptx_version(&self) -> Option<Version> {
        declared_version(&self.ptx)
    }
}

/// The version that PTX declares.
pub(super) fn declared_version(ptx: &str) -> Option<Version> {
    ptx.lines().find_map(|line| Version::parse(line.strip_prefix(".version")?))
}

/// The same PTX declaring another version.
pub(super) fn with_version(ptx: &str, version: Version) -> String {
    let mut out = String::with_capacity(ptx.len());
    let mut done = false;
    for line in ptx.split_inclusive('\n') {
        if !done && line.starts_with(".version") {
            done = true;
            out.push_str(&format!(".version {version}\n"));
        } else {
            out.push_str(line);
        }
    }
    out
}

/// What a compiler makes of a request.
pub(super) struct Made {
    pub(super) ptx: String,
    pub(super) cubin: Option<Vec<u8>>,
    /// Warnings and what the assembler says.
    pub(super) log: String,
    /// The compiler and its version.
    pub(super) compiler: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_sources_and_flags_apart_and_never_changes() {
        let arch = "sm_80".parse().unwrap();
        let plain = Request::new("k", "source", arch);
        // This value is in checked-in artifacts.
        assert_eq!(plain.hash().to_string(), "af2a0cbce1f882aa7aa57e2d3ea97340");
        let mut all = vec![plain.hash(), Request::new("k", "source ", arch).hash()];
        for flags in [
            Flags { fast_math: true, ..Flags::default() },
            Flags { line_info: true, ..Flags::default() },
            Flags { max_registers: Some(64), ..Flags::default() },
            Flags { max_registers: Some(65), ..Flags::default() },
        ] {
            all.push(Request { flags, ..plain.clone() }.hash());
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(Request { kernel: "other".into(), ..plain.clone() }.hash(), plain.hash());
    }

    #[test]
    fn the_comment_at_the_top_does_not_count() {
        let hash = |source: &str| Request::new("k", source, "sm_80".parse().unwrap()).hash();
        assert_eq!(hash("// a\n\n// b\nint x;\n"), hash("int x;\n"));
        assert_ne!(hash("// a\nint x; // c\n"), hash("int x;\n"));
        assert_ne!(hash("int x;\n// b\n"), hash("int x;\n"));
        assert_ne!(hash("// a \\\nint x;\nint y;\n"), hash("int y;\n"));
        assert_eq!(without_head("// all\n// comment"), "// comment");
        let lines = Flags { line_info: true, ..Flags::default() };
        let with = |source| Request { flags: lines, ..Request::new("k", source, "sm_80".parse().unwrap()) };
        assert_ne!(with("// a\nint x;\n").hash(), with("int x;\n").hash());
    }

    #[test]
    fn the_kernels_of_a_source_are_named() {
        let source = "__device__ int f(int x) { return x; }\n\
                      extern \"C\" __global__ void __launch_bounds__(128, 2) one(float *x, int (*f)[3]) { f(1); }\n\
                      extern \"C\" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384) two_p1 (const float *x) {}\n\
                      extern \"C\" __global__ void three(float *x) {}\n";
        assert_eq!(kernels(source), ["one", "two_p1", "three"]);
        assert_eq!(kernels("no kernel"), Vec::<&str>::new());
        assert_eq!(kernels("__global__ __launch_bounds__(1"), Vec::<&str>::new());
    }

    #[test]
    fn names_become_names_of_files() {
        assert_eq!(file_stem("conv2d n1/ci=3"), "conv2d_n1_ci_3");
        assert_eq!(file_stem(""), "kernel");
        assert_eq!(file_stem(&"x".repeat(300)).len(), 80);
        assert!(!file_stem("../..").contains('.'));
    }

    #[test]
    fn the_declared_version_is_read_and_replaced_once() {
        let ptx = "// .version 1.0\n.version 9.0\n.target sm_80\n.version 9.0\n";
        assert_eq!(declared_version(ptx), Some(Version(9, 0)));
        let low = with_version(ptx, Version(7, 0));
        assert_eq!(low, "// .version 1.0\n.version 7.0\n.target sm_80\n.version 9.0\n");
        assert_eq!(declared_version("nothing"), None);
    }
}
