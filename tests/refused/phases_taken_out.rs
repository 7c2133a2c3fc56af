// A real program cannot be taken out of its table.
//~ E0616 program Variant
//~ E0616 packs Variant
use kernel_gen_runtime::dispatch::{Pack, Program, Variant};

fn taken(real: &'static Variant) -> (&'static Program, &'static [Pack]) {
    (&real.program, real.packs)
}

fn main() {}
