//! The one place that decides which compiler is used.

use super::arch::Arch;
use super::clang::{self, Clang};
use super::compile::{CudaCompiler, Tool};
use super::nvcc::Nvcc;
use super::nvrtc::{Nvrtc, library_at};
use super::ptxas;
use super::{Cache, CudaError, Environment, Looked};
use std::path::{Path, PathBuf};

/// What to do where there is no compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// Put the source into the program, for NVRTC on the user's machine.
    Embed,
    /// Stop.
    Refuse,
}

/// What the lookup came to.
#[derive(Debug)]
pub enum Found {
    /// A compiler.
    Compiler(Box<CudaCompiler>),
    /// None, or the user does not want one: the source is to be compiled at first use. To be said aloud.
    Embed {
        /// Why.
        why: String,
    },
    /// The user wants no CUDA code.
    CpuOnly,
}

/// What KERNEL_GEN_CUDA asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    Nvcc,
    Nvrtc,
    Clang,
    Embed,
    CpuOnly,
}

/// Where to look: what a person sets comes before what happens to be on PATH.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A variable that names the tool.
    Named,
    /// The toolkit that CUDA_HOME or CUDA_PATH names.
    Toolkit,
    /// PATH, and the usual folders.
    Usual,
}

/// The order of the lookup.
fn order() -> impl Iterator<Item = (Place, Wanted)> {
    let families = [Wanted::Nvcc, Wanted::Nvrtc, Wanted::Clang];
    [Place::Named, Place::Toolkit, Place::Usual].into_iter().flat_map(move |place| families.map(|f| (place, f)))
}

fn wanted(environment: &Environment) -> Result<Wanted, CudaError> {
    match environment.text("KERNEL_GEN_CUDA").as_str() {
        "" => Ok(Wanted::Any),
        "nvcc" => Ok(Wanted::Nvcc),
        "nvrtc" => Ok(Wanted::Nvrtc),
        "clang" => Ok(Wanted::Clang),
        "embed" => Ok(Wanted::Embed),
        "off" => Ok(Wanted::CpuOnly),
        other => Err(CudaError::Named {
            variable: "KERNEL_GEN_CUDA".to_string(),
            value: other.to_string(),
            reason: "it can only be nvcc, nvrtc, clang, embed or off".to_string(),
        }),
    }
}

/// Looks for a compiler that makes code for all these architectures. The order is in the documentation of
/// [this module](super).
pub fn find(environment: &Environment, archs: &[Arch], missing: Missing) -> Result<Found, CudaError> {
    let mut search = Search { environment, archs, looked: vec![], all: vec![], keep_looking: false };
    let wanted = wanted(environment)?;
    match wanted {
        Wanted::CpuOnly => return Ok(Found::CpuOnly),
        Wanted::Embed => return Ok(Found::Embed { why: "KERNEL_GEN_CUDA is `embed`".to_string() }),
        _ => {}
    }
    for (place, family) in order() {
        if wanted == Wanted::Any || wanted == family {
            let found = search.family(family, place)?;
            if let Some(compiler) = found {
                return Ok(Found::Compiler(Box::new(compiler)));
            }
        }
    }
    let error = CudaError::NoCompiler { looked: search.looked };
    match missing {
        // Whoever asks for a compiler by name does not want to do without.
        Missing::Embed if wanted == Wanted::Any => Ok(Found::Embed { why: "no CUDA compiler was found".to_string() }),
        _ => Err(error),
    }
}

/// Everything that there is, for a person who wonders.
#[derive(Debug)]
pub struct Survey {
    /// Every compiler that works, in the order of the lookup, with how it was found.
    pub compilers: Vec<(String, CudaCompiler)>,
    /// Every place that holds none.
    pub looked: Vec<Looked>,
    /// What is wrong with the variables.
    pub errors: Vec<CudaError>,
    /// The assembler that stands by itself, and its version.
    pub ptxas: Option<(PathBuf, String)>,
}

/// Looks everywhere, and does not stop at the first compiler.
pub fn survey(environment: &Environment) -> Survey {
    let mut search = Search { environment, archs: &[], looked: vec![], all: vec![], keep_looking: true };
    let mut errors = vec![];
    for (place, family) in order() {
        errors.extend(search.family(family, place).err());
    }
    errors.extend(wanted(environment).err());
    let ptxas = ptxas::find(environment).unwrap_or_else(|e| {
        errors.push(e);
        None
    });
    // Several searches meet an assembler that does not work.
    let mut told = vec![];
    errors.retain(|e| {
        !told.contains(e) && {
            told.push(e.clone());
            true
        }
    });
    Survey { compilers: search.all, looked: search.looked, errors, ptxas }
}

/// A lookup at work.
struct Search<'a> {
    environment: &'a Environment,
    archs: &'a [Arch],
    looked: Vec<Looked>,
    all: Vec<(String, CudaCompiler)>,
    /// Whether to collect all compilers instead of giving the first.
    keep_looking: bool,
}

impl Search<'_> {
    fn note(&mut self, place: impl Into<String>, found: impl Into<String>) {
        self.looked.push(Looked { place: place.into(), found: found.into() });
    }

    /// The compiler of a family that the lookup meets first in such a place.
    fn family(&mut self, family: Wanted, place: Place) -> Result<Option<CudaCompiler>, CudaError> {
        match family {
            Wanted::Nvcc => self.nvcc(place),
            Wanted::Nvrtc => self.nvrtc(place),
            Wanted::Clang => self.clang(place),
            Wanted::Any | Wanted::Embed | Wanted::CpuOnly => Ok(None),
        }
    }

    /// A compiler that was found by searching: it is taken if it serves, and noted otherwise.
    fn consider(&mut self, place: &str, opened: Result<CudaCompiler, String>) -> Option<CudaCompiler> {
        let checked = opened.and_then(|compiler| {
            let refused = self.archs.iter().find_map(|arch| compiler.supports(*arch).err());
            refused.map_or(Ok(compiler), |e| Err(e.to_string()))
        });
        match checked {
            Ok(compiler) if self.keep_looking => self.all.push((place.to_string(), compiler)),
            Ok(compiler) => return Some(compiler),
            Err(why) => self.note(place, why),
        }
        None
    }

    /// A compiler that a variable names: it serves, or the variable is wrong.
    fn named(
        &mut self,
        variable: &str,
        open: impl FnOnce(&Environment) -> Result<CudaCompiler, String>,
    ) -> Result<Option<CudaCompiler>, CudaError> {
        let wrong = |reason| CudaError::Named {
            variable: variable.to_string(),
            value: self.environment.text(variable),
            reason,
        };
        let compiler = open(self.environment).map_err(wrong)?;
        for arch in self.archs {
            compiler.supports(*arch)?;
        }
        if self.keep_looking {
            self.all.push((format!("named by {variable}"), compiler));
            return Ok(None);
        }
        Ok(Some(compiler))
    }

    fn nvcc(&mut self, place: Place) -> Result<Option<CudaCompiler>, CudaError> {
        let environment = self.environment;
        let open = |program: &Path| {
            Nvcc::open(program, environment).map(|nvcc| CudaCompiler { tool: Tool::Nvcc(nvcc), ptxas: None })
        };
        let mut programs = vec![];
        match place {
            Place::Named => {
                for variable in ["KERNEL_GEN_NVCC", "NVCC"] {
                    let Some(value) = environment.get(variable) else {
                        self.note(variable, "not set");
                        continue;
                    };
                    let compiler = self.named(variable, |environment| {
                        open(&environment.program(value).ok_or("there is no such program")?)
                    })?;
                    if compiler.is_some() {
                        return Ok(compiler);
                    }
                }
            }
            Place::Toolkit => {
                let toolkits = environment.toolkits();
                if toolkits.is_empty() {
                    self.note("nvcc in CUDA_HOME or CUDA_PATH", "neither is set");
                }
                for (variable, home) in toolkits {
                    let (place, program) = (format!("nvcc in {variable}"), home.join("bin/nvcc"));
                    match environment.program(&program) {
                        Some(program) => programs.push((place, program)),
                        None => self.note(place, format!("{} is not there", program.display())),
                    }
                }
            }
            Place::Usual => match environment.program("nvcc") {
                Some(program) => programs.push(("nvcc on PATH".to_string(), program)),
                None => self.note("nvcc on PATH", "not there"),
            },
        }
        Ok(programs.iter().find_map(|(place, program)| self.consider(place, open(program))))
    }

    fn nvrtc(&mut self, place: Place) -> Result<Option<CudaCompiler>, CudaError> {
        let environment = self.environment;
        let cache = Cache::of(environment).map(|cache| cache.folder().to_path_buf());
        let open = |path: &Path, ptxas: &Option<(PathBuf, String)>| {
            let nvrtc = Nvrtc::open(path, cache.as_deref())?;
            Ok(CudaCompiler { tool: Tool::Nvrtc(nvrtc), ptxas: ptxas.clone() })
        };
        let folders = match place {
            Place::Named => {
                let Some(path) = environment.path("KERNEL_GEN_NVRTC") else {
                    self.note("KERNEL_GEN_NVRTC", "not set");
                    return Ok(None);
                };
                let ptxas = ptxas::find(environment)?;
                return self.named("KERNEL_GEN_NVRTC", |_| open(&path, &ptxas));
            }
            Place::Toolkit => environment.toolkit_libraries(),
            Place::Usual => environment.nvrtc_folders(),
        };
        let ptxas = ptxas::find(environment)?;
        for (place, folders) in folders {
            let libraries: Vec<PathBuf> = folders.iter().filter_map(|folder| library_at(folder)).collect();
            if libraries.is_empty() {
                self.note(&place, "not there");
            }
            for library in libraries {
                let opened = open(&library, &ptxas);
                if let Some(compiler) = self.consider(&place, opened) {
                    return Ok(Some(compiler));
                }
            }
        }
        Ok(None)
    }

    fn clang(&mut self, place: Place) -> Result<Option<CudaCompiler>, CudaError> {
        let environment = self.environment;
        let open = |program: &Path, ptxas: &Option<(PathBuf, String)>| {
            Clang::open(program).map(|clang| CudaCompiler { tool: Tool::Clang(clang), ptxas: ptxas.clone() })
        };
        match place {
            Place::Named => {
                let Some(value) = environment.get("KERNEL_GEN_CLANG") else {
                    self.note("KERNEL_GEN_CLANG", "not set");
                    return Ok(None);
                };
                let ptxas = ptxas::find(environment)?;
                self.named("KERNEL_GEN_CLANG", |environment| {
                    open(&environment.program(value).ok_or("there is no such program")?, &ptxas)
                })
            }
            Place::Toolkit => Ok(None),
            Place::Usual => {
                let ptxas = ptxas::find(environment)?;
                let on_path: Vec<PathBuf> = clang::NAMES.iter().filter_map(|name| environment.program(name)).collect();
                if on_path.is_empty() {
                    self.note(format!("clang {} or newer on PATH", clang::OLDEST), "not there");
                }
                Ok(on_path.iter().find_map(|program| self.consider("clang on PATH", open(program, &ptxas))))
            }
        }
    }
}
