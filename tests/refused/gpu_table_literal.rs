// A table for a GPU cannot be written as a literal with a smaller alignment or packed form.
//~ E0451 align cuda::Variant
//~ E0451 bytes cuda::Pack
//~ E0451 workspace_bytes cuda::Program
use kernel_gen_runtime::cuda::{Arch, Pack, Program, Slot, Variant};
use kernel_gen_runtime::dispatch::Choice;

fn variant(arch: Arch, program: Program, choice: Choice) -> Variant {
    Variant { arch, most: 1, program, packs: &[], align: 1, choice }
}

fn pack(program: Program) -> Pack {
    Pack { param: 0, bytes: 1, program }
}

fn program(slot: &'static Slot) -> Program {
    Program { image: &[], slot, launches: &[], maps: &[], workspace_bytes: 0 }
}

fn main() {}
