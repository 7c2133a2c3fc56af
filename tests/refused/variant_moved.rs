// A variant cannot be moved or copied out of a table, into another.
//~ E0507 shared reference
use kernel_gen_runtime::dispatch::{Entry, Variant};
use kernel_gen_runtime::Isa;

fn moved(real: &'static Entry) -> Variant {
    *real.variant(Isa::LOWEST).unwrap()
}

fn main() {}
