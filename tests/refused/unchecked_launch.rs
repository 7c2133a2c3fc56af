// A device takes no arguments that were not compared with the table.
//~ E0451 args Checked
//~ E0451 weight CheckedWeight
use kernel_gen_runtime::dispatch::{Arg, Checked, CheckedWeight, Entry};
use kernel_gen_runtime::{Cpu, Device};

fn launch(dev: &Cpu, entry: &'static Entry, args: &[Arg<'_>]) {
    dev.launch(Checked { entry, args, scalars: &[], units: 1 }).unwrap();
}

fn pack(dev: &Cpu, entry: &'static Entry, weight: Arg<'_>) {
    dev.pack(CheckedWeight { entry, param: 0, weight }).unwrap();
}

fn main() {}
