//! A choice for one workload on one CPU level: verify, lower, emit C.

use super::chosen::{Chosen, Place};
use super::error::{Cause, GenerateError};
use crate::emit::c::{self, COptions, CSource, Isa};
use crate::emit::rust;
use crate::ir::{Access, Kernel};
use crate::lower::{Units, lower_units};
use crate::stable::fnv1a;
use crate::target::Target;
use crate::toolchain::FLAGS;

/// A C source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The file's name.
    pub name: String,
    /// What the compiler must be told.
    pub flags: Vec<String>,
    /// Its text.
    pub text: String,
    /// Parts of the text that define functions which other sources may define as well.
    pub helpers: Vec<String>,
    /// The declarations of its functions, a line each; of none, if the source is the user's own.
    pub prototypes: String,
}

/// What there is of a workload on a level.
pub(super) struct Made {
    pub(super) variant: rust::Variant,
    pub(super) sources: Vec<Source>,
}

/// Makes C of a choice; `prefix` is what its symbols start with.
pub(super) fn make(chosen: &Chosen<'_>, prefix: &str) -> Result<Made, GenerateError> {
    let target = chosen.target;
    let isa = Isa::of_target(&target.name).map_err(|error| chosen.place.fault(Cause::Emit(error)))?;
    let emit = |kernel: &Kernel, units, stem: &str, comment: String| -> Result<CSource, GenerateError> {
        emit(kernel, units, COptions { isa, symbol: format!("{prefix}_{stem}"), comment }, target, &chosen.place)
    };
    let main = emit(&chosen.kernel, chosen.picked.units(), &chosen.stem, chosen.picked.comment())?;
    let mut sources = vec![source(&main, &chosen.picked.file_stem(), target)];
    let mut packs = vec![];
    for (position, pack) in &chosen.packs {
        let c = emit(&pack.kernel, None, &chosen.pack_stem, chosen.pack_comment(pack))?;
        // What packs is named by its code, so files of one name are equal, and one is enough.
        sources.push(source(&c, &c.symbol, target));
        let packed = pack.kernel.buffer(pack.kernel.params[1]);
        packs.push((*position, rust::Pack { bytes: packed.extent_bytes(), program: program(&pack.kernel, &c) }));
    }
    let program = program(&chosen.kernel, &main);
    let variant =
        rust::Variant { isa, most: chosen.picked.most_units(), program, packs, choice: chosen.picked.summary() };
    Ok(Made { variant, sources })
}

/// Verifies, lowers and emits a kernel. To the symbol in the options it adds a hash of the code.
///
/// All C of a program shares one space of names, and a linker takes the first function of a name without a word. Package,
/// version and workload name the same thing in two revisions of one crate, which may both be in a program. So code
/// that differs must have names that differ. Equal names then mean equal code, and sharing it is right.
fn emit(
    kernel: &Kernel,
    units: Option<Units>,
    options: COptions,
    target: &Target,
    place: &Place<'_>,
) -> Result<CSource, GenerateError> {
    let lowered = lower_units(kernel.clone(), target, units).map_err(|error| place.fault(error.into()))?;
    let unnamed = c::translate(&lowered, options.isa).map_err(|error| place.fault(Cause::Emit(error)))?;
    // Comments are no code: where a choice came from makes no other function.
    let bare = unnamed.named(&options.symbol, "");
    let code = format!("{}\n{}", flags(&bare).join(" "), bare.source);
    let symbol = format!("{}_{:016x}", options.symbol, fnv1a(code.as_bytes()));
    Ok(unnamed.named(&symbol, &options.comment))
}

fn flags(c: &CSource) -> Vec<String> {
    FLAGS.iter().chain(c.isa.flags()).map(|f| f.to_string()).collect()
}

fn source(c: &CSource, stem: &str, target: &Target) -> Source {
    debug_assert!(target.cpu().is_some(), "only CPU levels become C");
    // The prototypes of the header, without the rest of it.
    let prototypes = c.header.lines().filter(|l| l.starts_with("void ")).map(|l| format!("{l}\n")).collect();
    Source {
        name: format!("{stem}.c"),
        flags: flags(c),
        text: c.source.clone(),
        helpers: c.helpers.clone(),
        prototypes,
    }
}

/// What the wrappers need to know of a kernel and its C.
fn program(kernel: &Kernel, c: &CSource) -> rust::Program {
    let params = kernel.params.iter().map(|p| {
        let b = kernel.buffer(*p);
        rust::CParam { name: b.name.clone(), dtype: b.dtype, written: b.access != Access::Read }
    });
    rust::Program {
        symbol: c.symbol.clone(),
        params: params.collect(),
        extents: c.phases.iter().map(|p| (if p.parallel { p.extent } else { 1 }, p.first)).collect(),
        takes_units: c.units.is_some(),
        workspace_bytes: c.workspace_bytes,
        worker_bytes: c.worker_bytes,
    }
}
