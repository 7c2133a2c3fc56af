//! From a config to source code: what a build does with a record's config, without the record.

use super::backend::Job;
use super::options::{Edit, Emitted};
use crate::emit::c::{self, COptions, CSource, Isa};
use crate::emit::cuda::{self, Arch, CudaOptions, CudaSource};
use crate::generate::{Early, pack_positions};
use crate::ir::Kernel;
use crate::lower::lower_units;
use crate::records::{Failure, FailureKind};
use crate::templates::Scheduled;
use crate::tune::MadeFor;

/// A failure of a kind; of a long text the first lines.
pub(super) fn failure(kind: FailureKind, text: impl ToString) -> Failure {
    const MOST: usize = 400;
    let text = text.to_string();
    let mut detail: String =
        text.trim().lines().filter(|l| !l.trim().is_empty()).take(4).collect::<Vec<_>>().join("; ");
    if detail.len() > MOST {
        let end = (0..=MOST).rev().find(|at| detail.is_char_boundary(*at)).unwrap_or(0);
        detail.truncate(end);
        detail.push_str("...");
    }
    Failure { kind, detail }
}

fn refused(text: impl ToString) -> Failure {
    failure(FailureKind::Refused, text)
}

/// What a template makes of a config, and where its packs belong.
fn scheduled(job: &Job<'_>) -> Result<(Kernel, Vec<(usize, Kernel)>), Failure> {
    let Scheduled { schedule, packs } =
        job.template.schedule(job.made_for(), job.target, &job.config).map_err(refused)?;
    let positions = pack_positions(&schedule.kernel, &packs, job.made_for()).map_err(refused)?;
    let packs = positions.into_iter().zip(packs).map(|(at, pack)| (at, pack.kernel)).collect();
    Ok((schedule.kernel, packs))
}

/// A kernel and what packs its parameters, as C.
pub(super) struct CCode {
    pub(super) kernel: Kernel,
    pub(super) source: CSource,
    /// Position of the parameter, kernel and source of each pack.
    pub(super) packs: Vec<(usize, Kernel, CSource)>,
}

/// The C of a config.
pub(super) fn c(job: &Job<'_>, edit: Option<&Edit>) -> Result<CCode, Failure> {
    let isa = Isa::of_target(&job.target.name).map_err(refused)?;
    let emit = |kernel: Kernel, units, symbol: String| -> Result<(Kernel, CSource), Failure> {
        let lowered = lower_units(kernel, job.target, units).map_err(refused)?;
        // No comment: what packs is then the same text for all configs that pack alike.
        let options = COptions { isa, symbol, comment: String::new() };
        let source = c::emit(&lowered, &options).map_err(refused)?;
        Ok((lowered.kernel().clone(), source))
    };
    let (kernel, packs) = scheduled(job)?;
    let (mut kernel, mut source) = emit(kernel, job.units(), "kernel".into())?;
    if let Some(MadeFor { count, .. }) = job.made_for {
        (kernel, source) = (kernel.of_units(count), source.of_units(count));
    }
    if let Some(edit) = edit {
        edit(&job.config, Emitted::C(&mut source));
    }
    let packs = packs.into_iter().enumerate().map(|(i, (at, pack))| {
        let (kernel, source) = emit(pack, None, format!("pack{i}"))?;
        Ok((at, kernel, source))
    });
    Ok(CCode { kernel, source, packs: packs.collect::<Result<_, Failure>>()? })
}

/// A kernel and what packs its parameters, as CUDA C++.
pub(super) struct CudaCode {
    pub(super) source: CudaSource,
    /// Position of the parameter, bytes of its packed form, and source of each pack.
    pub(super) packs: Vec<(usize, i64, CudaSource)>,
}

/// The CUDA C++ of a config.
pub(super) fn cuda(job: &Job<'_>, edit: Option<&Edit>) -> Result<CudaCode, Failure> {
    let arch = Arch::of(job.target).ok_or_else(|| refused(format!("{} is not a CUDA target", job.target.name)))?;
    let emit = |kernel: Kernel, units, symbol: String, early: &Early| -> Result<CudaSource, Failure> {
        let lowered = early.apply(lower_units(kernel, job.target, units).map_err(refused)?);
        let options = CudaOptions { arch, symbol, comment: String::new(), min_blocks: None };
        let mut emitted = cuda::emit(&lowered, &options).map_err(refused)?;
        early.tell(&mut emitted.launches);
        Ok(emitted)
    };
    let (kernel, packs) = scheduled(job)?;
    let early = match &job.made_for {
        None => Early::of(job.template, &job.workload, job.target),
        Some(MadeFor { range: (largest, range), least, units, .. }) => {
            Early::of_units(job.template, (*least, units.most), job.target, |units| range.at(largest, units))
        }
    };
    let mut source = emit(kernel, job.units(), "kernel".into(), &early)?;
    if let Some(MadeFor { count, .. }) = job.made_for {
        source.launches = source.launches.into_iter().map(|launch| launch.of_units(count)).collect();
    }
    if let Some(edit) = edit {
        edit(&job.config, Emitted::Cuda(&mut source));
    }
    let packs = packs.into_iter().enumerate().map(|(i, (at, pack))| {
        let bytes = pack.buffer(pack.params[1]).extent_bytes();
        Ok((at, bytes, emit(pack, None, format!("pack{i}"), &Early::NEVER)?))
    });
    Ok(CudaCode { source, packs: packs.collect::<Result<_, Failure>>()? })
}
