//! Convolutions over planes of pixels (`[n, channels, pixels..]`) with pixels along the lanes: of one to three dimensions, with
//! groups, transposed, and those of one tap with a stride.
//!
//! A step of the reduction loads vectors of neighbouring pixels and broadcasts weights. Pixels are neighbours beyond the end of
//! a row, too: the input is copied with its padding, the zeros behind a row are those in front of the next one, and what lies
//! over them is computed and not stored. So short rows fill the lanes as well as long ones.
//!
//! Outputs of a transposed convolution that are a stride apart are a phase: they meet the same taps, one of every stride, in
//! neighbouring pixels. Each phase is a convolution with stride 1 of the same copy, and its sums are stored a stride apart. Where
//! the kernel is as large as the stride, each phase has one tap, and the input is read as it is.
//!
//! Of a convolution with a stride, pixels whose places are equal modulo the stride are copied beside each other.

mod choice;
mod cost;
mod cut;
mod kernel;
mod knobs;
mod pack;
mod steps;

use self::cost::estimate;
use self::cut::Cut;
use self::knobs::Knobs;
use super::conv2d_direct::Conv2dDirect;
use super::depthwise_rows::DepthwiseRows;
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::planes::Planes;
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Op, Workload};

/// See the module's text. Knobs:
///
/// * `mr` output channels and `nv` vectors of pixels of the register tile.
/// * `rows` of outputs of a task, and `columns` of each: all, where there are several rows.
/// * `tiles` of `mr` output channels of a task.
/// * `copy`: where the padded input is made, by each `task` for itself or in a phase beforehand, the whole `image` once, also with
///   the pixels of all `taps` for themselves, which fills the lanes where maps are small; or whether the `input` is read as it is.
pub struct ConvPlanes;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Planes, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let planes = Planes::layer(w).ok_or("for convolutions over planes: NCHW")?;
    if let Op::Conv2d(c) = &w.op {
        let is_strided_pointwise = c.kh * c.kw == 1 && c.stride != [1, 1];
        if c.groups == 1 && !is_strided_pointwise {
            return Err(
                "in two dimensions for groups, transposed convolutions, and kernels of one tap with a stride".into()
            );
        }
        // The direct kernel has a group's channels in its lanes, of which small groups leave most empty. With a stride it is the faster
        // one all the same.
        let fills_lanes = c.co / c.groups >= cpu.f32_lanes() || c.stride != [1, 1];
        let direct = c.groups > 1 && fills_lanes && Conv2dDirect.applies(w, t).is_ok();
        if direct || DepthwiseRows.applies(w, t).is_ok() {
            return Err("where neither `depthwise_rows` nor `conv2d_direct` fills its lanes, or has a stride".into());
        }
    }
    Ok((planes.in_phases(), cpu))
}

impl Template for ConvPlanes {
    fn name(&self) -> &str {
        "conv_planes"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (planes, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        choice::space(&planes, cpu)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (planes, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        choice::default_config(&planes, cpu)
            .ok_or_else(|| TemplateError::Limit("no task's sums stay in the second-level cache".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Knobs::read(config)) {
            (Ok((planes, cpu)), Ok(knobs)) => estimate(&Cut::new(planes, knobs, cpu.f32_lanes()), cpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (planes, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let cut = Cut::new(planes, Knobs::read(config)?, cpu.f32_lanes());
        let packs = pack::pack(w, &cut).into_iter().collect();
        Ok(Scheduled { schedule: Schedule::new(kernel::kernel(w, cut)), packs })
    }
}
