//! The schedule that runs everything: correct first, and vectorised where that needs no thought.
//!
//! Each stage is a phase of its own over memory that all threads see. The sums run along the innermost output dimension
//! in vectors and stay in registers over the whole reduction; what is not contiguous there is gathered lane by lane.

use super::steps::{extent, pieces, vectorize, vectorize_block};
use super::tile::{ceil_div, cycles_to_us};
use crate::integer::gcd;
use crate::ir::{BufferId, DType, Scope, VarId};
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, ScheduleError, Tail};
use crate::space::{Config, Space};
use crate::target::Target;
use crate::templates::rows::{element_cycles, matrix, row_loops, row_stages, rows_are_contiguous};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::pooled::Pooled;
use crate::workload::{Workload, naive};

/// See the module's text. Knob: `vectors` along the innermost output dimension.
pub struct Plain;

impl Template for Plain {
    fn name(&self) -> &str {
        "plain"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, _: &Workload, t: &Target) -> Result<(), String> {
        t.cpu().map(drop).ok_or("for CPUs".to_string())
    }

    fn takes_integers(&self) -> bool {
        true
    }

    fn takes_f8(&self) -> bool {
        true
    }

    fn space(&self, _: &Workload, _: &Target) -> Result<Space, TemplateError> {
        Ok(Space::builder().knob("vectors", [1, 2, 4]).build()?)
    }

    fn default_config(&self, _: &Workload, _: &Target) -> Result<Config, TemplateError> {
        Ok(Config::new().with("vectors", 2))
    }

    fn cost(&self, w: &Workload, t: &Target, _: &Config) -> f64 {
        // No reuse: every multiply-add loads both of its operands, and most of the time some of them lane by lane.
        let Some(cpu) = t.cpu() else { return f64::INFINITY };
        if row_stages(w).is_some() {
            // In vectors of as many lanes as divide a row. A sum waits for the one before, and its lanes are added up one by one.
            let columns = w.output_shape().last().map_or(1, |columns| gcd(*columns, cpu.f32_lanes()));
            let elements = w.output_shape().iter().product::<i64>() as f64;
            let rank = w.output_shape().len();
            let stages = w.op.get().stages(w.dtype, DType::F32);
            let all = stages.iter().filter(|stage| stage.reduce > 0 || stage.shape.len() == rank);
            let cycles: f64 = all.map(|stage| element_cycles(stage).max(4.0)).sum();
            let numbers = stages.iter().filter(|stage| stage.reduce > 0).count() as f64;
            let rows = matrix(w).map_or(0.0, |[rows, _]| rows as f64);
            return cycles_to_us(elements / columns as f64 * cycles + rows * numbers * 2.0 * columns as f64, cpu);
        }
        if let Some([rows, columns]) = matrix(w) {
            // Lanes are rows, and every term is gathered.
            let stages = w.op.get().stages(w.dtype, DType::F32);
            let lanes = cpu.f32_lanes() as f64;
            let all = stages.iter().filter(|stage| stage.reduce > 0);
            let cycles: f64 = all.map(|stage| 2.0 + element_cycles(stage) / lanes).sum();
            return cycles_to_us((rows * columns) as f64 * cycles, cpu);
        }
        if let Some(of) = Pooled::of(&w.op) {
            // A vector of each tap is loaded and combined; a copy with the padding is made element by element.
            let [rows, columns] = [of.windows.windows(0), of.windows.windows(1)];
            let vectors = (rows * ceil_div(columns, cpu.f32_lanes())) as f64;
            let padded = [0, 1].map(|i| of.windows.padded(i));
            let copied = if padded == of.windows.pixels[..2] { 0 } else { padded[0] * padded[1] };
            let plane = vectors * (3.0 * w.reduction_length() as f64 + 5.0) + 1.5 * copied as f64;
            return cycles_to_us((of.n * of.c) as f64 * plane, cpu);
        }
        cycles_to_us(w.flops() as f64 / 2.0, cpu)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let cpu = t.cpu().ok_or(TemplateError::Limit("for CPUs".into()))?;
        let lanes = cpu.f32_lanes();
        let mut s = Schedule::new(naive(w));
        let out = *s.kernel.params.last().expect("every workload has an output");
        if let Some(rows) = row_stages(w).filter(|_| rows_are_contiguous(w)) {
            let [row, column] = row_loops(&mut s, w, out)?;
            s.parallel(row)?;
            // In vectors, as far as they divide a row: sums of lanes, which are added up at the end, and the elements of the output.
            let partial = lane_sums(&mut s, w, lanes)?;
            let [strip, lane] = s.split(column, gcd(extent(&s, column), lanes), Tail::Perfect)?;
            for (i, name) in rows.iter().enumerate().rev() {
                let stage = s.stage(name)?;
                s.set_scope(stage, Scope::Register)?;
                s.compute_at(stage, if i + 1 == rows.len() { strip } else { row })?;
                if let Some(sums) = partial[i] {
                    let of_lanes = *s.loops_of(stage).last().expect("lanes are combined");
                    s.unroll(of_lanes)?;
                    s.set_scope(sums, Scope::Register)?;
                    s.compute_at(sums, row)?;
                    let loops = s.loops_of(sums);
                    vectorize_block(&mut s, sums, &loops, lanes)?;
                }
            }
            let acc = s.stage(rows[rows.len() - 1])?;
            let own = *s.loops_of(acc).last().expect("an output has a dimension");
            vectorize(&mut s, own)?;
            vectorize(&mut s, lane)?;
            return Ok(Scheduled { schedule: s, packs: vec![] });
        }
        let stages = w.op.get().stages(w.dtype, DType::F32);
        if let [one] = &stages[..]
            && one.reduce == 0
        {
            // Nothing is stored between the two stages.
            let acc = s.stage(one.name)?;
            let loops = s.loops_of(out);
            let (outer, last) = loops.split_at(loops.len() - 1);
            let [strip, lane] = pieces(&mut s, last[0], lanes)?;
            s.set_scope(acc, Scope::Register)?;
            s.compute_at(acc, strip)?;
            let own = *s.loops_of(acc).last().expect("an output has a dimension");
            vectorize(&mut s, own)?;
            vectorize(&mut s, lane)?;
            parallel(&mut s, if outer.is_empty() { std::slice::from_ref(&strip) } else { outer })?;
            return Ok(Scheduled { schedule: s, packs: vec![] });
        }
        for stage in stages.iter().filter(|stage| stage.reduce > 0) {
            let acc = s.stage(stage.name)?;
            let loops = s.loops_of(acc);
            let rank = loops.len() - stage.reduce;
            let (spatial, reduce) = loops.split_at(rank);
            let (outer, last) = spatial.split_at(rank - 1);
            let [strip, within] = pieces(&mut s, last[0], lanes * config.int("vectors")?)?;
            // The outer loops stay where they are: with groups, their digits overlap the last strip's surplus.
            let order: Vec<VarId> = [&strip].into_iter().chain(reduce).chain([&within]).copied().collect();
            s.reorder(&order)?;
            let (tile, copy) = s.cache_write_at(acc, strip, Scope::Register)?;
            let sums = s.loops_of(tile);
            vectorize_block(&mut s, tile, &sums, lanes)?;
            vectorize_block(&mut s, acc, &copy, lanes)?;
            parallel(&mut s, outer)?;
        }
        let elementwise =
            stages.iter().filter(|stage| stage.reduce == 0).map(|stage| s.stage(stage.name)).chain([Ok(out)]);
        for stage in elementwise.collect::<Result<Vec<_>, _>>()? {
            let loops = s.loops_of(stage);
            let (outer, last) = loops.split_at(loops.len() - 1);
            if s.kernel.buffer(stage).name != "pad" {
                let [_, lane] = pieces(&mut s, last[0], lanes)?;
                vectorize(&mut s, lane)?;
            }
            parallel(&mut s, outer)?;
        }
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

/// Cuts what each of the stages combines along a row into lanes, as many as divide it: gives for each the stage of what a lane
/// combines, if there is one.
fn lane_sums(s: &mut Schedule, w: &Workload, lanes: i64) -> Result<Vec<Option<BufferId>>, TemplateError> {
    let mut all = vec![];
    for stage in w.op.get().stages(w.dtype, DType::F32) {
        all.push(None);
        if stage.reduce == 0 {
            continue;
        }
        let stage = s.stage(stage.name)?;
        let along = *s.loops_of(stage).last().expect("a stage that reduces has a loop");
        let lanes = gcd(extent(s, along), lanes);
        if lanes > 1 {
            let [_, lane] = s.split(along, lanes, Tail::Perfect)?;
            let partial = s.rfactor(stage, lane)?;
            let dims = s.kernel.buffer(partial).shape.len();
            let order: Vec<LayoutDim> = (1..dims).chain([0]).map(LayoutDim::whole).collect();
            s.transform_layout(partial, &order)?;
            *all.last_mut().expect("just pushed") = Some(partial);
        }
    }
    Ok(all)
}

/// Runs all iterations of the given perfect nest in parallel.
fn parallel(s: &mut Schedule, loops: &[VarId]) -> Result<(), ScheduleError> {
    match loops {
        [] => Ok(()),
        [one] => s.parallel(*one),
        [first, second, ..] => {
            let fused = s.fuse_all(&[*first, *second])?;
            s.parallel(fused)
        }
    }
}
