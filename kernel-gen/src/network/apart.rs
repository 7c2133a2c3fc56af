//! Images one by one.
//!
//! On a CPU, what a step writes for several images has left the caches before the next step reads it, and behind every
//! step all threads wait for the slowest. Where no image depends on another, a network of several images can be that of
//! one, run for each of them: one behind the other on one thread, one beside the other on several.

use super::program::{Program, Source, ValueId};
use super::units::Units;
use crate::diagnostic::Size;
use crate::workload::Op;
use std::collections::{BTreeMap, BTreeSet};

/// How often a plan runs, and for what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Apart {
    /// The fewest images, and the most; the same if their number is known before.
    pub least: i64,
    /// The most.
    pub most: i64,
    /// Whether each input has images; of the results all have.
    pub inputs: Vec<bool>,
}

/// The numbers of images of a network's inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Images {
    pub(super) least: i64,
    pub(super) most: i64,
}

impl Images {
    /// The range that some extent has, or else what all first extents are that are not 1.
    pub(super) fn of(inputs: &BTreeMap<String, Vec<Size>>) -> Option<Images> {
        if let Some(size) = inputs.values().flatten().find(|size| size.is_range()) {
            return Some(Images { least: size.least, most: size.most });
        }
        let first = inputs.values().filter_map(|shape| shape.first()).map(|size| size.most);
        let several: BTreeSet<i64> = first.filter(|n| *n > 1).collect();
        let most = several.first().filter(|_| several.len() == 1)?;
        Some(Images { least: *most, most: *most })
    }

    /// Whether their number is known only when the network runs.
    pub(super) fn is_range(self) -> bool {
        self.least < self.most
    }

    /// The shapes of inputs with another number of images.
    pub(super) fn replaced(self, inputs: &BTreeMap<String, Vec<Size>>, by: i64) -> BTreeMap<String, Vec<i64>> {
        let counts = |at: usize, size: &Size| match self.is_range() {
            true => size.is_range(),
            false => at == 0 && size.most == self.most,
        };
        let extent = |(at, size): (usize, &Size)| if counts(at, size) { by } else { size.most };
        inputs.iter().map(|(name, shape)| (name.clone(), shape.iter().enumerate().map(extent).collect())).collect()
    }
}

/// Rows of an image for which a weight is read once. With fewer, images together read it less often.
const FEW_ROWS: i64 = 16;
/// Bytes of such weights that the last cache of a processor may not hold.
const LARGE_WEIGHTS: i64 = 32 << 20;
/// Multiply-adds of a launch of one image, in the mean: with fewer, what it costs beside them counts.
const SMALL_LAUNCH: i64 = 64 << 10;

/// Why images that do not depend on each other are faster together, if `one` is the program of one of them.
pub(super) fn slower(one: &Program) -> Option<String> {
    let (mut all, mut few, mut read) = (0i64, 0i64, BTreeSet::<ValueId>::new());
    for step in &one.steps {
        let macs = step.workload.macs();
        all = all.saturating_add(macs);
        if !matches!(step.workload.op, Op::Matmul(_) | Op::Conv2d(_) | Op::MatmulNbits(_)) {
            continue;
        }
        let constants = step.operands.iter().map(|id| one.root(*id));
        let constants = constants.filter(|id| matches!(one.values[*id].source, Source::Constant(_)));
        let of_few_rows: Vec<ValueId> = constants.filter(|id| macs / one.elements(*id).max(1) < FEW_ROWS).collect();
        if !of_few_rows.is_empty() {
            few = few.saturating_add(macs);
            read.extend(of_few_rows);
        }
    }
    let bytes: i64 = read.iter().map(|id| one.elements(*id) * one.values[*id].dtype.bytes() as i64).sum();
    if all < SMALL_LAUNCH.saturating_mul(one.steps.len() as i64) {
        Some(format!(
            "launches of one image are small, {} multiply-adds in the mean",
            all / one.steps.len().max(1) as i64
        ))
    } else if few > all / 4 {
        Some(format!("of {all} multiply-adds {few} are of weights with fewer than {FEW_ROWS} rows of an image"))
    } else if bytes > LARGE_WEIGHTS {
        Some(format!("{} MiB of weights have fewer than {FEW_ROWS} rows of an image", bytes >> 20))
    } else {
        None
    }
}

impl Apart {
    /// How the images of a program run one by one, and the program of one of them; `units` are those of the program.
    ///
    /// A value that varies then has an equal part for each image, one behind the other, and no step mixes them. What remains is that
    /// no part is taken of a value as if it were another image's, and that constants are the same for all.
    ///
    /// # Errors
    /// How they depend on each other.
    pub(super) fn of(images: Images, units: &Units, program: &Program) -> Result<(Apart, Program), String> {
        let mut one = program.clone();
        for id in super::units::touched(program) {
            let Some(each) = units.per_unit(program, id) else {
                match program.values[id].source {
                    Source::View(of) | Source::Part { of, .. } if units.varies[of] => {
                        return Err(format!("`{}` is of one image and for all", program.values[id].name));
                    }
                    _ => continue,
                }
            };
            let value = &mut one.values[id];
            match &mut value.source {
                Source::Constant(tensor) => {
                    let first = tensor.first(each as usize);
                    if !tensor.data.repeats(&first.data) {
                        return Err(format!("`{}` has other numbers for each image", value.name));
                    }
                    *tensor = first;
                }
                Source::Part { of, .. } if program.elements(*of) != program.elements(id) => {
                    return Err(format!("`{}` is a part of several images", value.name));
                }
                _ => {}
            }
            value.shape = match value.shape.first() {
                Some(first) if first % units.most == 0 => [&[first / units.most], &value.shape[1..]].concat(),
                _ => vec![each],
            };
        }
        for (step, range) in one.steps.iter_mut().zip(&units.ranges) {
            if let Some(range) = range {
                step.workload = range.at(&step.workload, range.most / units.most);
            }
        }
        if program.outputs.iter().any(|(_, id)| !units.varies[*id]) {
            return Err("a result is one for all of them".into());
        }
        let inputs = program.inputs.iter().map(|(_, id)| units.varies[*id]).collect();
        Ok((Apart { least: images.least, most: images.most, inputs }, one))
    }
}
