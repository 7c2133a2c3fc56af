//! Where the values between steps lie: slots of memory that values share whose lifetimes do not meet.
//!
//! As TVM's graph planner, it walks over the steps, takes the smallest free slot that is large enough for a result, or makes the
//! largest one larger, and frees the slots of what is not read again.

use super::program::{Program, Source};
use crate::ir::DType;

/// A slot of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The type of its elements.
    pub dtype: DType,
    /// How many there are.
    pub elements: i64,
}

/// Where a value lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The caller's input of this number.
    Input(usize),
    /// The caller's result of this number.
    Output(usize),
    /// The slot of this number, from its first element on.
    Slot(usize),
    /// Among the network's constants.
    Constant,
}

/// The plan.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    /// The slots.
    pub slots: Vec<Slot>,
    /// Where each value lies, by its root; values that no step touches lie nowhere.
    pub places: Vec<Option<Place>>,
}

impl Memory {
    /// Plans the memory of a network.
    pub(super) fn plan(program: &Program) -> Memory {
        let mut memory = Memory { places: vec![None; program.values.len()], ..Memory::default() };
        for (i, (_, id)) in program.inputs.iter().enumerate() {
            memory.places[*id] = Some(Place::Input(i));
        }
        for (i, (_, id)) in program.outputs.iter().enumerate() {
            memory.places[program.root(*id)] = Some(Place::Output(i));
        }
        let mut last_read = vec![0; program.values.len()];
        for (i, step) in program.steps.iter().enumerate() {
            for id in &step.operands {
                last_read[program.root(*id)] = i;
            }
        }
        let mut free: Vec<usize> = vec![];
        for (i, step) in program.steps.iter().enumerate() {
            for id in &step.operands {
                let root = program.root(*id);
                if matches!(program.values[root].source, Source::Constant(_)) && memory.places[root].is_none() {
                    memory.places[root] = Some(Place::Constant);
                }
            }
            let output = program.root(step.output);
            if memory.places[output].is_none() {
                let wanted = Slot { dtype: program.values[output].dtype, elements: program.elements(output) };
                let slot = memory.take(&mut free, wanted);
                memory.places[output] = Some(Place::Slot(slot));
            }
            for id in &step.operands {
                let root = program.root(*id);
                if let Some(Place::Slot(slot)) = memory.places[root]
                    && last_read[root] == i
                    && !free.contains(&slot)
                {
                    free.push(slot);
                }
            }
        }
        memory
    }

    /// A slot for a value: a free one, or a new one.
    fn take(&mut self, free: &mut Vec<usize>, wanted: Slot) -> usize {
        let slots = &self.slots;
        let fitting = free.iter().enumerate().filter(|(_, slot)| slots[**slot].dtype == wanted.dtype);
        let large = fitting.clone().filter(|(_, slot)| slots[**slot].elements >= wanted.elements);
        let best = large.min_by_key(|(_, slot)| slots[**slot].elements);
        let best = best.or_else(|| fitting.max_by_key(|(_, slot)| slots[**slot].elements));
        match best.map(|(i, _)| i) {
            Some(i) => {
                let slot = free.swap_remove(i);
                self.slots[slot].elements = self.slots[slot].elements.max(wanted.elements);
                slot
            }
            None => {
                self.slots.push(wanted);
                self.slots.len() - 1
            }
        }
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> i64 {
        self.slots.iter().map(|slot| slot.elements * slot.dtype.bytes() as i64).sum()
    }
}
