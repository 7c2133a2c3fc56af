//! Sources in, code out, from wherever it can be had.

use super::arch::Arch;
use super::compile::Options;
use super::find::{Found, Missing, find};
use super::request::{Artifact, Request};
use super::{Artifacts, CudaError, Environment, cache};

/// How to get code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SupplyOptions {
    /// What to do where there is no compiler.
    pub missing: Missing,
    /// How to compile.
    pub compile: Options,
}

impl Default for SupplyOptions {
    /// Without a compiler, the sources are embedded.
    fn default() -> SupplyOptions {
        SupplyOptions { missing: Missing::Embed, compile: Options::default() }
    }
}

/// The code of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Code {
    /// It was packaged.
    Packaged(Artifact),
    /// It was compiled just now, or earlier and cached.
    Compiled(Artifact),
    /// There is none: the source goes into the program, for NVRTC at first use.
    Source,
    /// The user wants no CUDA code.
    Absent,
}

impl Code {
    /// The artifact, if there is one.
    pub fn artifact(&self) -> Option<&Artifact> {
        match self {
            Code::Packaged(artifact) | Code::Compiled(artifact) => Some(artifact),
            Code::Source | Code::Absent => None,
        }
    }
}

/// Code for a list of requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Supplied {
    /// For each request.
    pub code: Vec<Code>,
    /// In one line, where it came from; for a build's report. Holds no path.
    pub summary: String,
    /// What the user must be told aloud, a line each.
    pub warnings: Vec<String>,
}

/// Gets code for every request: from the package where it has code of just this source, else from a compiler, else as
/// the options say. No compiler is looked for when the package has everything.
pub fn supply(
    requests: &[Request],
    packaged: Option<&Artifacts>,
    environment: &Environment,
    options: &SupplyOptions,
) -> Result<Supplied, Vec<CudaError>> {
    let mut supplied = Supplied::default();
    if requests.is_empty() {
        return Ok(supplied);
    }
    // A user who wants no CUDA code wants none from a package either.
    if environment.text("KERNEL_GEN_CUDA") == "off" {
        supplied.code = vec![Code::Absent; requests.len()];
        supplied.summary = "CUDA: none, because KERNEL_GEN_CUDA is `off`".to_string();
        return Ok(supplied);
    }
    let mut code = vec![];
    let mut errors = vec![];
    let mut stale = vec![];
    for request in requests {
        let found = packaged.map_or(Ok(None), |all| all.find(request));
        code.push(found.unwrap_or_else(|e| {
            errors.push(e);
            None
        }));
        let is_stale = |all: &Artifacts| all.has_other_source(&request.kernel, request.hash(), request.arch);
        if matches!(code.last(), Some(None)) && packaged.is_some_and(is_stale) {
            stale.push(format!("{} for {}", request.kernel, request.arch));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if let Some(first) = stale.first() {
        let more = if stale.len() > 1 { format!(" and {} more", stale.len() - 1) } else { String::new() };
        supplied.warnings.push(format!(
            "CUDA: the packaged artifact of {first}{more} was made from another source and is not used; run \
             `kernel-gen package` again"
        ));
    }
    let packaged_count = code.iter().flatten().count();
    let missing: Vec<Request> =
        requests.iter().zip(&code).filter(|(_, code)| code.is_none()).map(|(request, _)| request.clone()).collect();
    let (mut rest, how) = compile(&missing, environment, options, &mut supplied.warnings)?;
    // From the back, so that each can be taken off the end.
    rest.reverse();
    supplied.code = code
        .into_iter()
        .map(|found| found.map_or_else(|| rest.pop().unwrap_or(Code::Source), Code::Packaged))
        .collect();
    let count = |n: usize| if n == 1 { "1 kernel".to_string() } else { format!("{n} kernels") };
    let parts = [(packaged_count, "packaged".to_string()), (missing.len(), how)];
    let parts: Vec<String> =
        parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("{} {how}", count(n))).collect();
    supplied.summary = format!("CUDA: {}", parts.join(", "));
    Ok(supplied)
}

/// Code for what is not packaged, and how it was got.
fn compile(
    requests: &[Request],
    environment: &Environment,
    options: &SupplyOptions,
    warnings: &mut Vec<String>,
) -> Result<(Vec<Code>, String), Vec<CudaError>> {
    if requests.is_empty() {
        return Ok((vec![], String::new()));
    }
    let mut archs: Vec<Arch> = requests.iter().map(|r| r.arch).collect();
    archs.sort();
    archs.dedup();
    let all = |code: Code| vec![code; requests.len()];
    match find(environment, &archs, options.missing).map_err(|e| vec![e])? {
        Found::CpuOnly => Ok((all(Code::Absent), "absent".to_string())),
        Found::Embed { why } => {
            warnings.push(format!(
                "CUDA: {why}; {} kernel source(s) are embedded, and NVRTC on the machine that runs them compiles each \
                 at its first use. `kernel-gen doctor` says how to get a compiler",
                requests.len()
            ));
            Ok((all(Code::Source), "embedded as source for NVRTC at first use".to_string()))
        }
        Found::Compiler(compiler) => {
            let cache = cache::of(environment);
            let made = compiler.compile_all(requests, &options.compile, cache.as_ref())?;
            warnings.extend(cache::refused(environment));
            warnings.extend(cache.as_ref().and_then(cache::trouble));
            if options.compile.lowest_ptx && compiler.assembler().is_none() {
                let newest = made.iter().filter_map(Artifact::ptx_version).max();
                let driver = newest.map(|ptx| (ptx, super::toolkit_of(ptx)));
                warnings.extend(driver.map(|(ptx, toolkit)| {
                    format!(
                        "CUDA: without ptxas, PTX stays at version {ptx}: devices that have no machine code of their own \
                         need a driver of CUDA {toolkit} or newer; KERNEL_GEN_PTXAS names one (`kernel-gen doctor`)"
                    )
                }));
            }
            Ok((made.into_iter().map(Code::Compiled).collect(), format!("compiled by {}", compiler.name())))
        }
    }
}
