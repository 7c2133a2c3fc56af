// The code of one table cannot be put into another with other parameters.
//~ E0616 variants Entry
//~ E0616 cuda Entry
use kernel_gen_runtime::dispatch::{Entry, Param};

fn other(real: &'static Entry, about: kernel_gen_runtime::dispatch::About, params: &'static [Param]) -> Entry {
    Entry { about, params, weight: None, units: None, variants: real.variants, cuda: real.cuda }
}

fn main() {}
