//! A candidate that is loaded: its code, its own memory, and the check of what it writes.

use super::protocol::{Candidate, Program, Stage};
use super::stop::Stop;
use super::task::{Task, Tell};
use crate::emit::cuda::{Launch, Param, TensorBase, TensorMap, tensor_maps};
use crate::records::{FailureKind, Timing};
use crate::tune::measure::pipeline::failure;
use crate::workload::special::Reach;
use kernel_gen_runtime::cuda::candidate::{Bench, Bound, Code, Differ, Guarded, Start};
use kernel_gen_runtime::cuda::{CudaError, KernelArg, TensorMapSpec};

/// A candidate that is loaded, with its own memory.
pub(super) struct Ready<'b> {
    main: Loaded<'b>,
    packs: Vec<(usize, Guarded, Loaded<'b>)>,
    pub(super) reach: Reach,
}

/// A program that is loaded.
struct Loaded<'b> {
    code: Code<'b>,
    starts: Vec<Start>,
    maps: Vec<TensorMapSpec>,
    workspace: Option<Guarded>,
}

fn start(launch: &Launch, maps: &[&TensorMap]) -> Start {
    let arg = |param: &Param| match param {
        Param::Buffer { index, .. } => KernelArg::Param(*index),
        Param::Workspace { offset, .. } => KernelArg::Workspace(offset.unsigned_abs()),
        Param::Units(n) => KernelArg::Int(*n as i32),
        Param::TensorMap(map) => {
            KernelArg::Map(maps.iter().position(|m| *m == map).expect("the maps are those of the launches"))
        }
    };
    Start {
        kernel: launch.symbol.clone(),
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        shared_bytes: launch.dynamic_shared_bytes,
        overlap: launch.overlap.is_some(),
        args: launch.params.iter().map(arg).collect(),
    }
}

fn map(map: &TensorMap) -> TensorMapSpec {
    let base = match map.base {
        TensorBase::Buffer(index) if map.offset > 0 => KernelArg::Within(index, map.offset),
        TensorBase::Buffer(index) => KernelArg::Param(index),
        TensorBase::Workspace(offset) => KernelArg::Workspace(offset.unsigned_abs()),
    };
    let (dims, strides, box_dims, steps) = map.driver_lists();
    let (data_type, rank, swizzle) = (map.driver_type(), map.dims.len() as u32, map.driver_swizzle());
    TensorMapSpec { base, data_type, rank, dims, rows: map.rows, strides, box_dims, steps, swizzle }
}

impl<'b> Loaded<'b> {
    fn new(bench: &'b Bench, program: &Program, images: &mut &[u8]) -> Result<Loaded<'b>, Stop> {
        let (image, rest) = images
            .split_at_checked(program.image_bytes)
            .ok_or_else(|| failure(FailureKind::Worker, "the request ends in the middle of an image"))?;
        *images = rest;
        let maps = tensor_maps(&program.launches);
        let starts: Vec<Start> = program.launches.iter().map(|launch| start(launch, &maps)).collect();
        let code = bench.load(image, &starts)?;
        let bytes = program.workspace_bytes;
        let workspace = if bytes > 0 { Some(bench.poisoned(bytes)?) } else { None };
        Ok(Loaded { code, starts, maps: maps.into_iter().map(map).collect(), workspace })
    }

    fn bind<'a>(&'a self, bench: &Bench, params: &[&'a Guarded]) -> Result<Bound<'a>, CudaError> {
        bench.bind(&self.code, &self.starts, params, self.workspace.as_ref(), &self.maps)
    }
}

impl<'b> Ready<'b> {
    /// Loads a candidate; its images are taken from the front of `images`, also where it fails.
    pub(super) fn load(
        bench: &'b Bench,
        task: &Task,
        candidate: &Candidate,
        images: &mut &[u8],
    ) -> Result<Ready<'b>, Stop> {
        let programs = std::iter::once(&candidate.main).chain(candidate.packs.iter().map(|p| &p.program));
        let bytes = programs.map(|p| p.image_bytes).sum::<usize>().min(images.len());
        let (mut own, rest) = images.split_at(bytes);
        *images = rest;
        let main = Loaded::new(bench, &candidate.main, &mut own)?;
        let mut packs = vec![];
        for pack in &candidate.packs {
            let original = task.inputs.get(pack.param);
            let original = original.ok_or_else(|| failure(FailureKind::Worker, "it packs what is no input"))?;
            let packed = bench.poisoned(pack.bytes)?;
            let program = Loaded::new(bench, &pack.program, &mut own)?;
            bench.launch(&program.bind(bench, &[original, &packed])?)?;
            bench.synchronize()?;
            packs.push((pack.param, packed, program));
        }
        Ok(Ready { main, packs, reach: candidate.reach })
    }

    /// The kernel with a set of buffers.
    pub(super) fn bind<'a>(
        &'a self,
        bench: &Bench,
        inputs: &'a [Guarded],
        output: &'a Guarded,
    ) -> Result<Bound<'a>, CudaError> {
        let packed = |i: usize| self.packs.iter().find(|(param, ..)| *param == i).map(|(_, packed, _)| packed);
        let mut params: Vec<&Guarded> = inputs.iter().enumerate().map(|(i, b)| packed(i).unwrap_or(b)).collect();
        params.push(output);
        self.main.bind(bench, &params)
    }

    /// Runs it once and looks at everything that it may and may not have written. Gives a timing without samples.
    pub(super) fn check(
        &self,
        bench: &Bench,
        task: &mut Task,
        differ: &mut Differ<'_>,
        tell: &mut Tell<'_>,
    ) -> Result<Timing, Stop> {
        bench.poison(&mut task.output)?;
        let packed = self.packs.iter().map(|(_, packed, _)| bench.copy(packed)).collect::<Result<Vec<_>, _>>()?;
        tell(Stage::Run, 1.0)?;
        bench.launch(&self.bind(bench, &task.inputs, &task.output)?)?;
        bench.synchronize()?;
        tell(Stage::Check, self.check_s())?;
        let outside = |what: &str, at: Option<i64>| match at {
            None => Ok(()),
            Some(at) => {
                Err(failure(FailureKind::OutsideWrite, format!("it wrote {at} bytes from the start of {what}")))
            }
        };
        for i in 0..task.inputs.len() {
            if differ.differ(&task.inputs[i], &task.given[i])? {
                let given = &task.data.inputs[i];
                let wrong = outside(&format!("input {i}"), changed(bench, &task.inputs[i], given)?);
                // The next candidate wants what this one has overwritten, which may be the copy.
                task.inputs[i] = bench.upload(given)?;
                task.given[i] = bench.copy(&task.inputs[i])?;
                wrong?;
            }
        }
        for ((param, buffer, _), before) in self.packs.iter().zip(&packed) {
            if differ.differ(buffer, before)? {
                let before = bench.download(before)?.data;
                outside(&format!("packed input {param}"), changed(bench, buffer, &before)?)?;
            }
        }
        if let Some(workspace) = &self.main.workspace {
            outside("the workspace", bench.download(workspace)?.outside)?;
        }
        let output = bench.download(&task.output)?;
        outside("the output", output.outside)?;
        let checked = task.data.check(&output.data, self.reach);
        checked.map_err(|mismatch| failure(FailureKind::WrongAnswer, mismatch).into())
    }

    /// Seconds that a check may take. Bounds that are wider than an output's own are computed when the first output wants them.
    pub(super) fn check_s(&self) -> f64 {
        if self.reach == Reach::Own { 120.0 } else { 600.0 }
    }
}

/// The first byte that is not what was given, or that is outside and was written.
fn changed(bench: &Bench, buffer: &Guarded, given: &[u8]) -> Result<Option<i64>, CudaError> {
    let held = bench.download(buffer)?;
    let inside = held.data.iter().zip(given).position(|(a, b)| a != b);
    Ok(inside.map(|at| at as i64).or(held.outside))
}
