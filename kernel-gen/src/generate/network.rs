//! Networks of a spec as modules, and the files of their weights.

use crate::emit::rust::{ArgItem, ArgPlace, NetworkModule, PlanItem, Port, Section, StepItem};
use crate::ir::bits::{bf16_bits, f16_bits};
use crate::ir::{Access, DType};
use crate::network::{Network, Place, Plan, Program, Slot, Source, Step, ValueId};
use crate::spec::{NetworkSpec, Spec};
use crate::workload::Role;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// What a file of weights begins with; the runtime's `network.rs` reads it.
const MAGIC: &[u8; 16] = b"kernel-gen wts 1";

/// What every constant's place is a multiple of: a cache line, and what any kernel wants of its arguments.
const ALIGN: usize = 64;

/// A file that a module includes: its name and its bytes.
type WeightsFile = (String, Vec<u8>);

/// The modules of all networks, with the files of their weights. They lie in `folder`, below the build script's `OUT_DIR`.
pub(super) fn modules(spec: &Spec, folder: &str) -> (Vec<NetworkModule>, Vec<WeightsFile>) {
    spec.networks.iter().map(|network| module(network, folder)).unzip()
}

/// A file of constants while it is written.
struct File {
    bytes: Vec<u8>,
    /// Those of them that further ones may equal.
    sections: Vec<Section>,
}

impl File {
    /// Appends a constant as elements of a type, and says where it is.
    fn push(&mut self, program: &Program, id: ValueId, dtype: DType) -> Section {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        let (offset, tensor) = (self.bytes.len() as u64, program.constant(id).expect("constants have one"));
        match dtype {
            DType::I32 => {
                let all = tensor.to_integers().unwrap_or_default();
                let held = |v: &i64| (*v).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                self.bytes.extend(all.iter().flat_map(|v| held(v).to_le_bytes()));
            }
            DType::I8 | DType::U8 => {
                let all = tensor.to_integers().unwrap_or_default();
                self.bytes.extend(all.iter().map(|v| *v as u8));
            }
            DType::I64 => {
                let all = tensor.to_integers().unwrap_or_default();
                self.bytes.extend(all.iter().flat_map(|v| v.to_le_bytes()));
            }
            DType::F16 => {
                let stored = |v: &f32| f16_bits(within(*v, 2f32.powi(-24), 65504.0)).to_le_bytes();
                self.bytes.extend(tensor.to_floats().iter().flat_map(stored));
            }
            DType::Bf16 => {
                let stored = |v: &f32| bf16_bits(within(*v, 0.0, f32::from_bits(0x7f7f_0000))).to_le_bytes();
                self.bytes.extend(tensor.to_floats().iter().flat_map(stored));
            }
            _ => self.bytes.extend(tensor.to_floats().iter().flat_map(|v| v.to_le_bytes())),
        }
        Section { dtype, offset, elements: tensor.data.len() as i64 }
    }

    /// Appends a constant, unless its bytes lie in the file as elements of that type: networks use weights more than once, and passes
    /// that rewrite weights write each use.
    fn push_once(&mut self, program: &Program, id: ValueId, dtype: DType) -> Section {
        let section = self.push(program, id, dtype);
        let (before, own) = self.bytes.split_at(section.offset as usize);
        let same = |known: &&Section| known.dtype == dtype && before[known.offset as usize..].starts_with(own);
        if let Some(known) = self.sections.iter().find(same).copied() {
            self.bytes.truncate(section.offset as usize);
            return Section { elements: section.elements, ..known };
        }
        self.sections.push(section);
        section
    }
}

/// A number as one that a type can hold: what is finite stays so, and what is not zero, too. Masks of -1e9 and an epsilon of 1e-12 would
/// else become infinities and zeros, and what is computed of them no numbers.
fn within(value: f32, least: f32, most: f32) -> f32 {
    match value.abs() {
        size if size > most && size.is_finite() => most.copysign(value),
        size if size < least && size > 0.0 => least.copysign(value),
        _ => value,
    }
}

/// The constants of a network, as its modules hold them.
struct Constants {
    file: File,
    /// A constant that steps take packed is packed for each of their workloads: the module, and where in the file it is.
    weights: Vec<(String, Section)>,
    /// Arrays of those that are read as they are, one for each type.
    arrays: Vec<Section>,
    /// Where each operand of each plan's steps is, if it is a constant.
    places: Vec<BTreeMap<(usize, usize), ArgPlace>>,
}

impl Constants {
    fn of(network: &Network) -> Constants {
        let mut file = File { bytes: MAGIC.to_vec(), sections: vec![] };
        file.bytes.resize(ALIGN, 0);
        let mut weights: Vec<(String, Section)> = vec![];
        let mut plain: Vec<(usize, ValueId, DType)> = vec![];
        let mut places = vec![BTreeMap::new(); network.plans.len()];
        // Those that are read as they are, by what they are.
        let mut readers: Vec<(usize, (usize, usize), usize)> = vec![];
        for (at, plan) in network.plans.iter().enumerate() {
            for (i, step) in plan.program.steps.iter().enumerate() {
                let params = step.workload.params();
                let packed = weight_of(step);
                for (p, id) in step.operands.iter().map(|id| plan.program.root(*id)).enumerate() {
                    let Some(Place::Constant) = plan.memory.places[id] else { continue };
                    let dtype = params[p].dtype;
                    if Some(p) == packed {
                        let key = (module_of(network, plan, i), file.push_once(&plan.program, id, dtype));
                        let known = weights.iter().position(|known| *known == key);
                        places[at].insert((i, p), ArgPlace::Packed(known.unwrap_or(weights.len())));
                        if known.is_none() {
                            weights.push(key);
                        }
                    } else {
                        let same = |(of, known, as_type): &(usize, ValueId, DType)| {
                            *as_type == dtype && same_bits(&network.plans[*of].program, *known, &plan.program, id)
                        };
                        let known = plain.iter().position(same).unwrap_or(plain.len());
                        if known == plain.len() {
                            plain.push((at, id, dtype));
                        }
                        readers.push((at, (i, p), known));
                    }
                }
            }
        }
        // All constants of one type that are read as they are lie in one array.
        let mut arrays: Vec<Section> = vec![];
        let mut lie: Vec<Option<ArgPlace>> = vec![None; plain.len()];
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::I8, DType::U8] {
            let mut first = None;
            for (number, (at, id, _)) in plain.iter().enumerate().filter(|(_, (.., of))| *of == dtype) {
                let section = file.push(&network.plans[*at].program, *id, dtype);
                let start = *first.get_or_insert(section.offset);
                let from = (section.offset - start) as i64 / dtype.bytes() as i64;
                lie[number] = Some(ArgPlace::Constant(arrays.len(), from));
            }
            if let Some(offset) = first {
                let elements = (file.bytes.len() as u64 - offset) as i64 / dtype.bytes() as i64;
                arrays.push(Section { dtype, offset, elements });
            }
        }
        for (at, operand, known) in readers {
            places[at].insert(operand, lie[known].expect("each has a type of these"));
        }
        Constants { file, weights, arrays, places }
    }
}

/// Whether two constants have the same elements.
fn same_bits(a_of: &Program, a: ValueId, b_of: &Program, b: ValueId) -> bool {
    match (&a_of.values[a].source, &b_of.values[b].source) {
        (Source::Constant(a), Source::Constant(b)) => a.data.len() == b.data.len() && a.data.starts_with(&b.data),
        _ => false,
    }
}

/// The parameter of a step that is taken packed.
fn weight_of(step: &Step) -> Option<usize> {
    step.workload.params().iter().position(|p| p.role == Role::Weight)
}

/// The module of a step's workload.
fn module_of(network: &Network, plan: &Plan, step: usize) -> String {
    network.tasks[plan.step_tasks[step]].name.clone()
}

/// Slots that plans share, and for each plan which of them its own are: of one type the largest of one is the largest of another. Those of
/// images that run one by one are others, behind the first.
fn slots(plans: &[Plan]) -> ([Vec<Slot>; 2], Vec<Vec<usize>>) {
    let mut both: [Vec<Slot>; 2] = [vec![], vec![]];
    let mut own = vec![];
    for plan in plans {
        let shared = &mut both[usize::from(plan.apart.is_some())];
        let mut order: Vec<usize> = (0..plan.memory.slots.len()).collect();
        if plans.len() > 1 {
            order.sort_by_key(|i| std::cmp::Reverse(plan.memory.slots[*i].elements));
        }
        let mut taken = vec![0; plan.memory.slots.len()];
        let mut free: Vec<usize> = (0..shared.len()).collect();
        for i in order {
            let slot = plan.memory.slots[i];
            match free.iter().position(|at| shared[*at].dtype == slot.dtype) {
                Some(at) => {
                    taken[i] = free.remove(at);
                    let elements = &mut shared[taken[i]].elements;
                    *elements = slot.elements.max(*elements);
                }
                None => {
                    taken[i] = shared.len();
                    shared.push(slot);
                }
            }
        }
        own.push(taken);
    }
    (both, own)
}

/// The launches of a plan.
fn steps(
    network: &Network,
    plan: &Plan,
    constants: &BTreeMap<(usize, usize), ArgPlace>,
    slots: &[usize],
) -> Vec<StepItem> {
    let Plan { program, memory, .. } = plan;
    let step = |(i, step): (usize, &Step)| {
        let params = step.slices.params(&step.workload);
        let range = plan.units.as_ref().and_then(|units| units.ranges[i].as_ref());
        let values = step.operands.iter().chain([&step.output]).map(|id| program.place(*id));
        let args = params.iter().zip(values).enumerate().map(|(p, (param, (id, at)))| {
            let from = match memory.places[id] {
                Some(Place::Input(i)) => ArgPlace::Input(i),
                Some(Place::Output(i)) => ArgPlace::Output(i),
                Some(Place::Slot(i)) => ArgPlace::Slot(slots[i]),
                _ => constants[&(i, p)],
            };
            let varies = range.is_some_and(|range| range.params.contains(&p));
            let most = plan.units.as_ref().map_or(1, |units| units.most);
            let elements = if varies { param.elements() / most } else { param.elements() };
            ArgItem { from, at, elements, varies, written: param.access == Access::Write }
        });
        let module = module_of(network, plan, i);
        StepItem { nodes: step.nodes.clone(), key: step.workload.key(), module, args: args.collect() }
    };
    program.steps.iter().enumerate().map(step).collect()
}

fn module(spec: &NetworkSpec, folder: &str) -> (NetworkModule, WeightsFile) {
    let network = &spec.network;
    let Constants { mut file, weights, arrays, places } = Constants::of(network);
    let (both, own) = slots(&network.plans);
    let [together, each] = both.map(|slots| slots.iter().map(|slot| (slot.dtype, slot.elements)).collect());
    let plan = |(i, plan): (usize, &Plan)| {
        let program = &plan.program;
        let together = plan.units.as_ref().map(|units| (units.least, units.most));
        let apart = plan.apart.as_ref().map(|apart| (apart.least, apart.most));
        let units = together.or(apart).filter(|(least, most)| least < most);
        let port = |(name, id): &(String, ValueId), has_images: bool| {
            let value = &program.values[*id];
            let mut shape = if value.shape.is_empty() { vec![1] } else { value.shape.clone() };
            if let Some((_, most)) = apart.filter(|_| has_images) {
                shape[0] = most;
            }
            let varies = units.is_some() && has_images;
            Port { name: name.clone(), shape, varies, apart: apart.is_some() && has_images, dtype: value.dtype }
        };
        let varies = |id: ValueId| plan.units.as_ref().is_some_and(|units| units.varies[id]);
        let has_images = |i: usize, id: ValueId| plan.apart.as_ref().map_or(varies(id), |apart| apart.inputs[i]);
        let inputs = program.inputs.iter().enumerate().map(|(i, input)| port(input, has_images(i, input.1)));
        let outputs = program.outputs.iter().map(|output| port(output, apart.is_some() || varies(output.1)));
        PlanItem {
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            units,
            apart: apart.map(|(_, most)| most),
            steps: steps(network, plan, &places[i], &own[i]),
        }
    };
    let plans = network.plans.iter().enumerate().map(plan).collect();
    // Module and file are of one build, so that the function may change with the compiler; it is compiled for speed, as a build
    // script's own code is not, and weights are many.
    let mut hasher = DefaultHasher::new();
    hasher.write(&file.bytes);
    let mark = hasher.finish();
    let length = file.bytes.len() as u64;
    file.bytes[16..24].copy_from_slice(&mark.to_le_bytes());
    file.bytes[24..32].copy_from_slice(&length.to_le_bytes());
    let name = format!("{}.weights", spec.name);
    let model = spec.model.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let module = NetworkModule {
        name: spec.name.clone(),
        model,
        plans,
        slots: together,
        lane: each,
        constants: arrays,
        weights,
        file: name.clone(),
        folder: folder.to_string(),
        bytes: length,
        mark,
    };
    (module, (name, file.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Memory, Tensor, Value};

    #[test]
    fn finite_weights_stay_finite_and_what_is_not_zero_stays_so() {
        let constant = Tensor::floats(&[6], [1e9, -1e-30, 0.0, 65519.0, f32::NEG_INFINITY, 0.1].as_slice());
        let value = |dtype, source| Value { name: String::new(), shape: vec![6], dtype, source };
        let program = Program { values: vec![value(DType::F32, Source::Constant(constant))], ..Program::default() };
        let bits = |dtype| {
            let mut file = File { bytes: vec![], sections: vec![] };
            let section = file.push(&program, 0, dtype);
            assert_eq!((section.offset, section.elements, file.bytes.len()), (0, 6, 12));
            file.bytes.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect::<Vec<_>>()
        };
        // 65504, the smallest subnormal, and what 0.1 is nearest to.
        assert_eq!(bits(DType::F16), [0x7bff, 0x8001, 0, 0x7bff, 0xfc00, 0x2e66]);
        assert_eq!(bits(DType::Bf16)[..3], [0x4e6e, 0x8da2, 0]);
    }

    #[test]
    fn plans_share_slots_of_one_type_the_largest_with_the_largest() {
        let plan = |slots: &[(DType, i64)]| {
            let slots = slots.iter().map(|(dtype, elements)| Slot { dtype: *dtype, elements: *elements }).collect();
            let memory = Memory { slots, places: vec![] };
            Plan { program: Program::default(), units: None, apart: None, memory, step_tasks: vec![], passes: vec![] }
        };
        let plans = [
            plan(&[(DType::F32, 10), (DType::U8, 7), (DType::F32, 30)]),
            plan(&[(DType::F32, 20), (DType::F32, 5), (DType::F32, 40), (DType::U8, 6)]),
        ];
        let ([shared, _], own) = slots(&plans);
        let shared: Vec<(DType, i64)> = shared.iter().map(|slot| (slot.dtype, slot.elements)).collect();
        assert_eq!(shared, [(DType::F32, 40), (DType::F32, 20), (DType::U8, 7), (DType::F32, 5)]);
        assert_eq!(own, [vec![1, 2, 0], vec![1, 3, 0, 2]]);
        // Alone it keeps the order that its plan has.
        assert_eq!(slots(&plans[..1]).1, [[0, 1, 2]]);
    }

    #[test]
    fn constants_of_the_same_bytes_lie_in_the_file_once() {
        let value = |numbers: &[f32]| {
            let constant = Tensor::floats(&[numbers.len() as i64], numbers);
            let shape = constant.shape.clone();
            Value { name: String::new(), shape, dtype: DType::F32, source: Source::Constant(constant) }
        };
        let values = vec![value(&[1.0, 2.0]), value(&[3.0]), value(&[1.0, 2.0]), value(&[1.0]), value(&[3.0, 4.0])];
        let program = Program { values, ..Program::default() };
        let mut file = File { bytes: vec![], sections: vec![] };
        let places: Vec<(u64, i64)> = (0..5)
            .map(|id| file.push_once(&program, id, DType::F32))
            .map(|section| (section.offset, section.elements))
            .collect();
        // The fourth is the beginning of the first; the last only begins with the second.
        assert_eq!(places, [(0, 2), (64, 1), (0, 2), (0, 1), (128, 2)]);
        assert_eq!(file.bytes.len(), 136);
    }
}
