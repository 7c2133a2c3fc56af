// A table cannot be written as a literal with a smaller workspace, or with none.
//~ E0451 phases workspace_bytes worker_bytes Program
use kernel_gen_runtime::dispatch::{Phase, Program};

fn smaller(phases: &'static [Phase]) -> Program {
    Program { phases, workspace_bytes: 0, worker_bytes: 0 }
}

fn main() {}
