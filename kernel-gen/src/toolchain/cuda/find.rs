//! The one place that decides which compiler is used.

use super::arch::Arch;
use super::clang::{self, Clang};
use super::compile::{CudaCompiler, Tool};
use super::error::no_compiler;
use super::nvcc::Nvcc;
use super::nvrtc::{Nvrtc, library_at};
use super::ptxas;
use super::{CudaError, Environment, Looked, cache};
use crate::cache::Cache;
use crate::toolchain::resolve;
use std::fs;
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

/// A place of the lookup.
struct Candidate {
    family: Wanted,
    /// What it is called.
    place: String,
    /// The variable that names the tool: it serves, or the variable is wrong.
    variable: Option<&'static str>,
    /// The file, or why there is none.
    found: Result<PathBuf, String>,
}

/// Every place, in the order of the lookup: what a person sets comes before what happens to be on PATH. Files are looked
/// for, and none is opened.
fn candidates(environment: &Environment) -> Vec<Candidate> {
    let named = |(family, variable)| match environment.get(variable) {
        None => Candidate { family, place: variable.to_string(), variable: None, found: Err("not set".to_string()) },
        Some(value) => {
            let found = match family {
                // Its folder serves as well; who opens it says what is wrong.
                Wanted::Nvrtc => Ok(PathBuf::from(value)),
                _ => environment.program(value).ok_or_else(|| "there is no such program".to_string()),
            };
            Candidate { family, place: format!("named by {variable}"), variable: Some(variable), found }
        }
    };
    let variables = [
        (Wanted::Nvcc, "KERNEL_GEN_NVCC"),
        (Wanted::Nvcc, "NVCC"),
        (Wanted::Nvrtc, "KERNEL_GEN_NVRTC"),
        (Wanted::Clang, "KERNEL_GEN_CLANG"),
    ];
    let mut all: Vec<Candidate> = variables.map(named).into();
    let mut add = |family, place: &str, found: Vec<PathBuf>, otherwise: &str| {
        let found: Vec<Result<PathBuf, String>> = match found.is_empty() {
            true => vec![Err(otherwise.to_string())],
            false => found.into_iter().map(Ok).collect(),
        };
        let candidate = |found| Candidate { family, place: place.to_string(), variable: None, found };
        all.extend(found.into_iter().map(candidate));
    };
    let on_path = |names: &[&str]| names.iter().filter_map(|name| environment.program(name)).collect::<Vec<PathBuf>>();
    let libraries = |folders: &[PathBuf]| folders.iter().filter_map(|f| library_at(f)).collect::<Vec<PathBuf>>();
    let toolkits = environment.toolkits();
    if toolkits.is_empty() {
        add(Wanted::Nvcc, "nvcc in CUDA_HOME or CUDA_PATH", vec![], "neither is set");
    }
    // A toolkit's libnvrtc has the optimiser and the assembler of its nvcc and starts no processes.
    let libraries_of = |home: &Path| libraries(&["lib64", "lib"].map(|lib| home.join(lib)));
    for (variable, home) in toolkits {
        add(Wanted::Nvrtc, &format!("libnvrtc in {variable}"), libraries_of(&home), "not there");
        let nvcc = home.join("bin/nvcc");
        let otherwise = format!("{} is not there", nvcc.display());
        add(Wanted::Nvcc, &format!("nvcc in {variable}"), environment.program(nvcc).into_iter().collect(), &otherwise);
    }
    let nvcc = on_path(&["nvcc"]);
    if let Some(home) = nvcc.first().and_then(|nvcc| Some(fs::canonicalize(nvcc).ok()?.ancestors().nth(2)?.to_owned()))
    {
        add(Wanted::Nvrtc, "libnvrtc beside nvcc on PATH", libraries_of(&home), "not there");
    }
    add(Wanted::Nvcc, "nvcc on PATH", nvcc, "not there");
    for (place, folders) in environment.nvrtc_folders() {
        add(Wanted::Nvrtc, &place, libraries(&folders), "not there");
    }
    let clangs = format!("clang {} or newer on PATH", clang::OLDEST);
    add(Wanted::Clang, &clangs, on_path(&clang::NAMES), "not there");
    all
}

/// Every file that the lookup would try, in its order, and the assemblers: where these are the same files, the lookup
/// comes to the same, whatever PATH and the like hold. None is opened.
pub fn tools(environment: &Environment) -> Vec<PathBuf> {
    let compilers = candidates(environment).into_iter().filter_map(|candidate| candidate.found.ok());
    let files = compilers.map(|path| library_at(&path).unwrap_or(path)).chain(ptxas::candidates(environment));
    files.map(|path| resolve(&path).unwrap_or(path)).collect()
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
    let mut search = Search { environment, archs, looked: vec![], all: vec![], keep_looking: false, ptxas: None };
    let wanted = wanted(environment)?;
    match wanted {
        Wanted::CpuOnly => return Ok(Found::CpuOnly),
        Wanted::Embed => return Ok(Found::Embed { why: "KERNEL_GEN_CUDA is `embed`".to_string() }),
        _ => {}
    }
    for candidate in candidates(environment) {
        if (wanted == Wanted::Any || wanted == candidate.family)
            && let Some(compiler) = search.look(candidate)?
        {
            return Ok(Found::Compiler(Box::new(compiler)));
        }
    }
    // One that is named and does not work is an error, whether or not anything would have used it.
    search.ptxas()?;
    match missing {
        // Whoever asks for a compiler by name does not want to do without.
        Missing::Embed if wanted == Wanted::Any => Ok(Found::Embed { why: no_compiler(&search.looked) }),
        _ => Err(CudaError::NoCompiler { looked: search.looked }),
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
    let mut search = Search { environment, archs: &[], looked: vec![], all: vec![], keep_looking: true, ptxas: None };
    let mut errors: Vec<CudaError> = vec![];
    let mut tell = |error: CudaError| {
        // Several compilers meet the same assembler.
        if !errors.contains(&error) {
            errors.push(error);
        }
    };
    for candidate in candidates(environment) {
        search.look(candidate).err().map(&mut tell);
    }
    wanted(environment).err().map(&mut tell);
    let ptxas = search.ptxas().map_err(&mut tell).unwrap_or_default();
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
    /// The assembler that stands by itself, once it was looked for.
    ptxas: Option<Option<(PathBuf, String)>>,
}

impl Search<'_> {
    fn ptxas(&mut self) -> Result<Option<(PathBuf, String)>, CudaError> {
        if self.ptxas.is_none() {
            self.ptxas = Some(ptxas::find(self.environment)?);
        }
        Ok(self.ptxas.clone().flatten())
    }

    /// The compiler of a candidate, if it serves. One that a variable names serves, or the variable is wrong; another one
    /// is noted.
    fn look(&mut self, candidate: Candidate) -> Result<Option<CudaCompiler>, CudaError> {
        let Candidate { family, place, variable, found } = candidate;
        let opened = match found {
            Ok(ref path) => self.open(family, path)?,
            Err(ref why) => Err(why.clone()),
        };
        let supports = |compiler: &CudaCompiler| self.archs.iter().try_for_each(|arch| compiler.supports(*arch));
        let checked = match (opened, variable) {
            (Ok(compiler), Some(_)) => supports(&compiler).map(|()| Ok(compiler))?,
            (Ok(compiler), None) => supports(&compiler).map(|()| compiler).map_err(|e| e.to_string()),
            (Err(reason), Some(variable)) => {
                let (variable, value) = (variable.to_string(), self.environment.text(variable));
                return Err(CudaError::Named { variable, value, reason });
            }
            (Err(why), None) => Err(why),
        };
        match checked {
            Ok(compiler) if self.keep_looking => self.all.push((place, compiler)),
            Ok(compiler) => return Ok(Some(compiler)),
            Err(why) => self.looked.push(Looked { place, found: why, present: found.is_ok() }),
        }
        Ok(None)
    }

    /// Opens a tool; gives what is wrong with it otherwise.
    fn open(&mut self, family: Wanted, path: &Path) -> Result<Result<CudaCompiler, String>, CudaError> {
        // nvcc knows where its own is.
        let ptxas = if family == Wanted::Nvcc { None } else { self.ptxas()? };
        let tool = match family {
            Wanted::Nvcc => Nvcc::open(path, self.environment).map(Tool::Nvcc),
            Wanted::Clang => Clang::open(path).map(Tool::Clang),
            _ => {
                let cache = cache::of(self.environment);
                Nvrtc::open(path, cache.as_ref().map(Cache::folder)).map(Tool::Nvrtc)
            }
        };
        Ok(tool.map(|tool| CudaCompiler { tool, ptxas }))
    }
}
