//! Emitted C as programs, for suites that compile many kernels.

use kernel_gen::emit::c::{CSource, Isa};
use kernel_gen::ir::Kernel;
use kernel_gen::toolchain::Compiler;
use kernel_gen::toolchain::harness::{HarnessError, Program};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a program is made of: the level, the C, and the kernel with the sizes of its parameters.
type Made = (Isa, String, String);

/// How many programs a thread keeps.
const MOST_KEPT: usize = 32;

thread_local! {
    static COMPILER: Compiler = Compiler::host().expect("a C compiler");
    static PROGRAMS: RefCell<BTreeMap<Made, Rc<Program>>> = const { RefCell::new(BTreeMap::new()) };
}

/// [`Program::build`] with the compiler of this machine. A thread keeps what it has compiled: configs share kernels, those
/// that pack above all; and what runs the kernels of a level, which takes longer to compile than most of them, lives as long
/// as one of its programs.
pub(crate) fn program(source: &CSource, kernel: &Kernel) -> Result<Rc<Program>, HarnessError> {
    let made = (source.isa, source.source.clone(), kernel.to_string());
    if let Some(program) = PROGRAMS.with_borrow(|programs| programs.get(&made).cloned()) {
        return Ok(program);
    }
    let program = Rc::new(COMPILER.with(|compiler| Program::build(compiler, source, kernel))?);
    PROGRAMS.with_borrow_mut(|programs| {
        // Each has open files.
        if programs.len() >= MOST_KEPT {
            programs.clear();
        }
        programs.insert(made, Rc::clone(&program))
    });
    Ok(program)
}
