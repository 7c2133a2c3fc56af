//! The list of passes, and a kernel's way through it.

use super::pass::{LowerError, LowerOptions, Pass};
use super::{
    decompose_reduction, distribute_fragments, expand_transposes, fold_storage, hoist_shared, inject_vthread,
    insert_barriers, narrow, partition_loops, simplify, transpose_copies, unroll, vectorize,
};
use crate::analysis::verify::{Depth, Verified};
use crate::ir::Kernel;

/// The passes, in the order in which they run. `simplify` runs again where a pass leaves arithmetic to fold.
pub const PASSES: &[Pass] = &[
    Pass { name: "narrow", run: narrow::run },
    Pass { name: "simplify", run: simplify::run },
    Pass { name: "decompose_reduction", run: decompose_reduction::run },
    Pass { name: "expand_transposes", run: expand_transposes::run },
    Pass { name: "inject_vthread", run: inject_vthread::run },
    Pass { name: "distribute_fragments", run: distribute_fragments::run },
    Pass { name: "hoist_shared", run: hoist_shared::run },
    Pass { name: "partition_loops", run: partition_loops::run },
    Pass { name: "transpose_copies", run: transpose_copies::run },
    Pass { name: "fold_storage", run: fold_storage::run },
    Pass { name: "insert_barriers", run: insert_barriers::run },
    Pass { name: "vectorize", run: vectorize::run },
    Pass { name: "unroll", run: unroll::run },
    Pass { name: "simplify", run: simplify::run },
];

/// A kernel that went through all passes. Emitters take nothing else.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub(super) kernel: Kernel,
    verified: Verified,
    options: LowerOptions,
}

impl Lowered {
    /// The kernel to emit.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// How deep the verifier looked before the first pass.
    pub fn depth(&self) -> &Depth {
        self.verified.depth()
    }

    /// The kernel after each pass, in order. The passes run again for it: a build does without copies that nobody reads.
    pub fn trace(&self) -> Vec<Snapshot> {
        let mut trace = vec![];
        let mut before = Kernel::clone(&self.verified);
        let watch = |pass: &'static str, after: &Kernel| {
            let changed = *after != before;
            before = after.clone();
            trace.push(Snapshot { pass, changed, kernel: after.clone() });
        };
        // They ran before, so none of them refuses the kernel.
        let _ = passes(Kernel::clone(&self.verified), &self.options, watch);
        trace
    }
}

/// The kernel after one pass.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pass.
    pub pass: &'static str,
    /// Whether it changed anything.
    pub changed: bool,
    /// What it left.
    pub kernel: Kernel,
}

/// Runs all passes over a kernel that the verifier has passed.
pub fn lower(verified: Verified, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let kernel = Kernel::clone(&verified);
    let kernel = match std::env::var("KERNEL_GEN_DUMP") {
        Err(_) => passes(kernel, options, |_, _| {})?,
        Ok(wanted) => {
            let mut before = kernel.clone();
            passes(kernel, options, |pass, after| {
                if *after != before && (wanted == "all" || wanted == pass) {
                    eprintln!("--- after {pass}\n{after}");
                }
                before = after.clone();
            })?
        }
    };
    Ok(Lowered { kernel, verified, options: options.clone() })
}

/// Runs all passes; `watch` sees the kernel after each.
fn passes(
    kernel: Kernel,
    options: &LowerOptions,
    mut watch: impl FnMut(&'static str, &Kernel),
) -> Result<Kernel, LowerError> {
    PASSES.iter().try_fold(kernel, |kernel, pass| {
        let after = (pass.run)(kernel, options)?;
        watch(pass.name, &after);
        Ok(after)
    })
}
