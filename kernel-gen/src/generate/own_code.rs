//! What is known of CUDA code of the user's own, and whether its compiled form is as the spec says.

use crate::diagnostic::Diagnostic;
use crate::spec::ExternLaunch;
use crate::toolchain::cuda::{Code, entries};

/// What is known of a CUDA source of the user's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnCode {
    /// The spec's file.
    pub spec: String,
    /// The line of the `[[extern]]` in it.
    pub line: usize,
    /// The source, as the spec names it.
    pub source: String,
    /// How its kernels are launched.
    pub launches: Vec<ExternLaunch>,
    /// A header that it includes and that only a CUDA toolkit has.
    pub toolkit_header: Option<String>,
}

impl OwnCode {
    /// What is wrong with code that was compiled of it, or was not.
    pub fn faults(&self, code: &Code) -> Vec<Diagnostic> {
        let fault =
            |line: usize, cause: String, help: String| Diagnostic { file: self.spec.clone(), line, cause, help };
        let source = &self.source;
        match (code, &self.toolkit_header) {
            (Code::Absent, _) | (Code::Source, None) => vec![],
            (Code::Source, Some(header)) => {
                let cause = format!(
                    "\"{source}\" includes {header}, and there is no CUDA compiler here; NVRTC, which would compile it at \
                     its first use, has no headers"
                );
                let help = "build with nvcc, use packaged code (`kernel-gen package`), or do without the header";
                vec![fault(self.line, cause, help.into())]
            }
            (Code::Packaged(artifact) | Code::Compiled(artifact), _) => {
                let defined = entries(&artifact.ptx);
                let mut faults = vec![];
                for launch in &self.launches {
                    let (kernel, threads) = (&launch.kernel, u64::from(launch.threads()));
                    match defined.iter().find(|entry| entry.name == *kernel) {
                        Some(entry) => {
                            if let Some(most) = entry.max_threads.filter(|most| threads > *most) {
                                let cause = format!(
                                    "`{kernel}` is launched with {threads} threads a block, and its __launch_bounds__ in \
                                     \"{source}\" allow {most}"
                                );
                                faults.push(fault(launch.line, cause, "make `block` or the bounds fit".into()));
                            }
                        }
                        None => {
                            let cause = format!("\"{source}\" defines no kernel `{kernel}`");
                            faults.push(fault(launch.line, cause, help_for(kernel, &artifact.ptx)));
                        }
                    }
                }
                faults
            }
        }
    }
}

/// What to do about a kernel that PTX does not define.
fn help_for(kernel: &str, ptx: &str) -> String {
    // C++ writes the length of a name in front of it.
    let mangled = format!("{}{kernel}", kernel.len());
    let defined = entries(ptx);
    if defined.iter().any(|entry| entry.name.starts_with("_Z") && entry.name.contains(&mangled)) {
        return "it has one with a name of C++: declare it extern \"C\", with the parameters of the header".to_string();
    }
    let names: Vec<&str> = defined.iter().map(|entry| entry.name).collect();
    match names.is_empty() {
        true => "define it there: extern \"C\" __global__ void".to_string(),
        false => format!("define it there; it has {}", names.join(", ")),
    }
}
