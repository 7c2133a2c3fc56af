// A packed weight is made by packing only, and not one of another table out of it.
//~ E0451 entry Packed
use kernel_gen_runtime::dispatch::{Entry, Packed};

fn packed(entry: &'static Entry, real: Packed) -> Packed {
    Packed { entry, ..real }
}

fn main() {}
