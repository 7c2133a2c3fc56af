//! A choice for one workload on one CUDA architecture: verify, lower, emit CUDA.

use super::chosen::{Chosen, Place};
use super::early::Early;
use super::error::{Cause, GenerateError};
use super::own_code::OwnCode;
use crate::emit::cuda::{self, Arch, CudaOptions, Param};
use crate::emit::rust::{CudaPack, CudaProgram, CudaVariant, MAX_KERNEL_ARGS, MAX_TENSOR_MAPS};
use crate::ir::Kernel;
use crate::lower::{Units, lower_units};
use crate::stable::fnv1a;
use crate::target::Target;
use crate::toolchain::cuda::{CudaError, Request};

/// A CUDA source, to be compiled into an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CudaSource {
    /// The name of its files, without an ending.
    pub name: String,
    /// The architecture that it is for.
    pub arch: String,
    /// Its text.
    pub text: String,
    /// Present if it is the user's own.
    pub own: Option<OwnCode>,
}

impl CudaSource {
    /// What the compiler is asked for; packaged code is found by it.
    pub fn request(&self) -> Result<Request, CudaError> {
        let request = Request::new(&self.name, &self.text, self.arch.parse()?);
        Ok(Request { names_its_kernels: self.own.is_none(), ..request })
    }

    /// The name of the image's file.
    pub fn image(&self) -> String {
        format!("{}.kgi", self.name)
    }
}

/// Architectures in the order in which devices look at their code: the newest first, and of one capability the one with
/// instructions of its own.
pub(super) fn best_first(targets: &[&'static Target]) -> Vec<&'static Target> {
    let mut all = targets.to_vec();
    all.sort_by_key(|t| std::cmp::Reverse(Arch::of(t)));
    all
}

/// What there is of a workload on an architecture.
pub(super) struct Made {
    pub(super) variant: CudaVariant,
    pub(super) sources: Vec<CudaSource>,
}

/// Makes CUDA of a choice.
pub(super) fn make(chosen: &Chosen<'_>) -> Result<Made, GenerateError> {
    let target = chosen.target;
    let arch = Arch::of(target).expect("only CUDA targets become CUDA");
    let emit = |kernel: &Kernel, units, symbol: String, comment: String, early: &Early| {
        let options = CudaOptions { arch, symbol, comment, min_blocks: None };
        emit((kernel, units), options, target, &chosen.place, early)
    };
    let mut sources = vec![];
    let mut program = |name: String, emitted: cuda::CudaSource| {
        let source = CudaSource { name, arch: target.name.clone(), text: emitted.source, own: None };
        let image = source.image();
        sources.push(source);
        CudaProgram { image, launches: emitted.launches, workspace_bytes: emitted.workspace_bytes }
    };
    let (units, comment) = (chosen.picked.units(), chosen.picked.comment());
    let emitted = emit(&chosen.kernel, units, chosen.symbol.clone(), comment, &chosen.early)?;
    let mut align = emitted.alignment;
    let main = program(chosen.picked.file_stem(), emitted);
    let mut packs = vec![];
    for (position, pack) in &chosen.packs {
        // Named by what it computes: workloads share it, and files of one name are equal.
        let symbol = format!("{}_{:016x}", chosen.pack_stem, fnv1a(pack.kernel.to_string().as_bytes()));
        let emitted = emit(&pack.kernel, None, symbol.clone(), chosen.pack_comment(pack), &Early::NEVER)?;
        align = align.max(emitted.alignment);
        let bytes = pack.kernel.buffer(pack.kernel.params[1]).extent_bytes();
        packs.push((*position, CudaPack { bytes, program: program(symbol, emitted) }));
    }
    let variant = CudaVariant {
        arch: target.name.clone(),
        capability: (arch.capability / 10, arch.capability % 10),
        exact: arch.specific,
        most: chosen.picked.most_units(),
        program: main,
        packs,
        align,
        choice: chosen.picked.summary(),
    };
    Ok(Made { variant, sources })
}

/// Verifies, lowers and emits a kernel. `early` says whether it may be started before what is in front of it has ended.
fn emit(
    (kernel, units): (&Kernel, Option<Units>),
    options: CudaOptions,
    target: &Target,
    place: &Place<'_>,
    early: &Early,
) -> Result<cuda::CudaSource, GenerateError> {
    let lowered = early.apply(lower_units(kernel.clone(), target, units).map_err(|error| place.fault(error.into()))?);
    let mut emitted = cuda::emit(&lowered, &options).map_err(|error| place.fault(Cause::EmitCuda(error)))?;
    early.tell(&mut emitted.launches);
    let is_map = |p: &&Param| matches!(p, Param::TensorMap(_));
    let maps: usize = emitted.launches.iter().map(|l| l.params.iter().filter(is_map).count()).sum();
    let params = emitted.launches.iter().map(|l| l.params.len()).max().unwrap_or(0);
    if params > MAX_KERNEL_ARGS || maps > MAX_TENSOR_MAPS {
        return Err(place.fault(Cause::Parameters(format!(
            "`{}` takes {params} parameters and {maps} tensor maps; the runtime passes at most {MAX_KERNEL_ARGS} and {MAX_TENSOR_MAPS}",
            options.symbol
        ))));
    }
    Ok(emitted)
}
