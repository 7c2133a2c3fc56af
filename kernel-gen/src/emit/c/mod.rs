//! C from lowered kernels.
//!
//! A kernel becomes one function a *phase* (see [`Phase`]):
//!
//! ```c
//! void <symbol>_p<i>(<const T *restrict param>, ..., unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);
//! ```
//! Parameters come in the kernel's order, read-only ones are `const`, 16-bit floats are `uint16_t`; behind them stands the number of
//! units, `int64_t`, if the kernel has a size. `ws` is a workspace of
//! `workspace_bytes + workers * worker_bytes` bytes that starts at a multiple of 64; `worker` numbers the workers that
//! run at the same time; `begin..end` are the iterations of the phase to run. The caller runs the phases in order and
//! waits for all workers between them.
//!
//! Vectors are those of GCC and Clang, one register at a time: a statement of 32 lanes is two of 16 where registers hold
//! 16, and 7 lanes are one register with a partial load and store that touch 7 elements only. Register buffers become
//! named variables. The sources want a GNU dialect (`-std=gnu11`) and `-ffp-contract=fast`: in ISO mode GCC would not
//! form fused multiply-adds.

mod body;
mod choose;
mod chunk;
mod copies;
mod endings;
mod fetch;
mod isa;
mod matrix;
mod names;
mod phases;
mod pointers;
mod prelude;
mod registers;
mod rows;
mod shared;
mod stmt;
mod strides;
mod tile;
mod tiles;
mod transpose;
mod types;
mod vector;

pub use crate::emit::EmitError;
pub use isa::Isa;

use crate::analysis::range::Ranges;
use crate::emit::clike::names::Names;
use crate::emit::clike::prelude::Prelude;
use crate::emit::escape;
use crate::ir::{Access, Buffer, DType, First, Kernel};
use crate::lower::Lowered;
use body::{Body, C};
use matrix::Matrix;
use phases::Layout;
use shared::Rows;
use std::collections::BTreeSet;
use std::fmt::Write;
use types::c_type;
pub(crate) use types::declared_words;

/// What to emit.
#[derive(Clone, Debug, PartialEq)]
pub struct COptions {
    /// The instruction set level.
    pub isa: Isa,
    /// Stem of the functions' names.
    pub symbol: String,
    /// Text of the comment at the top: workload, config, origin, how to regenerate.
    pub comment: String,
}

/// A function that runs part of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Name of the function.
    pub symbol: String,
    /// Iterations, which the caller hands out as ranges.
    pub extent: i64,
    /// How many of them there are to run, if that depends on the number of units.
    pub first: Option<First>,
    /// Whether different workers may run different iterations at the same time; if not, one worker runs all.
    pub parallel: bool,
}

/// The C of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CSource {
    /// The instruction set level.
    pub isa: Isa,
    /// Stem of the functions' names.
    pub symbol: String,
    /// Text of the `.c` file.
    pub source: String,
    /// Parts of that text that define functions which other sources may define as well.
    pub helpers: Vec<String>,
    /// Text of the `.h` file: the same prototypes.
    pub header: String,
    /// The functions, in the order in which they run.
    pub phases: Vec<Phase>,
    /// Present if the functions take a number of units: which, 0 until it is known ([`CSource::of_units`]).
    pub units: Option<i64>,
    /// Bytes of workspace that all workers share; a multiple of 64.
    pub workspace_bytes: i64,
    /// Bytes of workspace that each worker needs after those; a multiple of 64.
    pub worker_bytes: i64,
}

impl CSource {
    /// The source with the number of units fixed to `units`.
    #[must_use]
    pub fn of_units(mut self, units: i64) -> CSource {
        self.units = Some(units);
        for phase in &mut self.phases {
            phase.extent = phase.first.take().map_or(phase.extent, |first| first.iterations(units).min(phase.extent));
        }
        self
    }
}

/// The C of a kernel whose functions have no names yet.
#[derive(Clone, Debug)]
pub struct Unnamed {
    isa: Isa,
    /// The declaration of words of bytes, if there are some.
    words: String,
    prelude: String,
    helpers: Vec<String>,
    /// The parameter list that all functions have.
    parameters: String,
    bodies: Vec<FunctionBody>,
    takes_units: bool,
    workspace_bytes: i64,
    worker_bytes: i64,
}

/// The function of one phase.
#[derive(Clone, Debug)]
struct FunctionBody {
    text: String,
    extent: i64,
    first: Option<First>,
    parallel: bool,
}

/// Emits a lowered kernel.
pub fn emit(lowered: &Lowered, options: &COptions) -> Result<CSource, EmitError> {
    translate(lowered, options.isa).map(|unnamed| unnamed.named(&options.symbol, &options.comment))
}

/// Emits all of a lowered kernel but the names of its functions.
pub fn translate(lowered: &Lowered, isa: Isa) -> Result<Unnamed, EmitError> {
    let mut kernel = lowered.kernel().clone();
    let lane = kernel.fresh_var("lane");
    let kernel = &kernel;
    let layout = phases::layout(kernel)?;
    let mut names = Names::of(kernel, &names::RESERVED);
    let mut prelude = Prelude::new(isa.vectors());
    let mut bodies = vec![];
    for phase in &layout.phases {
        let matrix = if isa.has_tiles() { Matrix::of(kernel, &phase.body) } else { Matrix::default() };
        let mut registers = registers::files(kernel, isa.vectors(), &phase.body, &mut names)?;
        registers.retain(|b, _| !matrix.has(*b));
        let own = C {
            isa: isa.vectors(),
            level: isa,
            places: layout.places.clone(),
            workspace_bytes: layout.workspace_bytes,
            worker_bytes: layout.worker_bytes,
            registers,
            matrix,
            pointers: vec![],
            rows: Rows::default(),
            held: BTreeSet::new(),
            lanes_read: None,
            given: None,
            lane,
        };
        let mut body = Body {
            kernel,
            names: &mut names,
            prelude: &mut prelude,
            ranges: Ranges::of_kernel(kernel),
            wide: BTreeSet::new(),
            out: String::new(),
            depth: 1,
            own,
        };
        body.phase(phase)?;
        let parallel = phase.parallel.is_some();
        bodies.push(FunctionBody { text: body.out, extent: phase.extent, first: phase.first, parallel });
    }
    let Layout { workspace_bytes, worker_bytes, .. } = layout;
    let helpers = prelude::functions(&prelude);
    let parameters = parameters(kernel, &names);
    let has_words = |buffer: &Buffer| buffer.dtype.is_word();
    let words = if kernel.buffers.iter().any(has_words) { declared_words(c_type(DType::U8x4)) } else { String::new() };
    let prelude = prelude::text(&prelude, &words);
    let takes_units = kernel.size.is_some();
    Ok(Unnamed { isa, words, prelude, helpers, parameters, bodies, takes_units, workspace_bytes, worker_bytes })
}

impl Unnamed {
    /// The source and its header. The names of the functions start with `symbol`, and `comment` is at the top.
    pub fn named(&self, symbol: &str, comment: &str) -> CSource {
        let Unnamed { isa, words, prelude, helpers, parameters, bodies, takes_units, workspace_bytes, worker_bytes } =
            self;
        let (mut functions, mut prototypes, mut phases) = (vec![], String::new(), vec![]);
        for (i, FunctionBody { text, extent, first, parallel }) in bodies.iter().enumerate() {
            let name = format!("{symbol}_p{i}");
            let prototype = format!("void {name}({parameters})");
            functions.push(format!("{prototype} {{\n{text}}}\n"));
            let _ = writeln!(prototypes, "{prototype};");
            phases.push(Phase { symbol: name, extent: *extent, first: *first, parallel: *parallel });
        }
        let mut comment = escape::comments(comment);
        let _ = writeln!(comment, "// {}; workspace {workspace_bytes} bytes and {worker_bytes} a worker", isa.name());
        let header_name = format!("{}_H", symbol.to_uppercase());
        let source = format!("{comment}{prelude}{prototypes}\n{}", functions.join("\n"));
        let header = format!(
            "{comment}#ifndef {header_name}\n#define {header_name}\n#include <stdint.h>\n{words}\n{prototypes}\n#endif\n"
        );
        CSource {
            isa: *isa,
            symbol: symbol.to_string(),
            source,
            helpers: helpers.clone(),
            header,
            phases,
            units: takes_units.then_some(0),
            workspace_bytes: *workspace_bytes,
            worker_bytes: *worker_bytes,
        }
    }
}

/// The parameters of each function of a kernel.
fn parameters(kernel: &Kernel, names: &Names) -> String {
    let mut params: Vec<String> = kernel
        .params
        .iter()
        .map(|p| {
            let b = kernel.buffer(*p);
            let constant = if b.access == Access::Read { "const " } else { "" };
            format!("{constant}{} *restrict {}", c_type(b.dtype), names.buffer(*p))
        })
        .collect();
    params.extend(kernel.size.iter().map(|size| format!("int64_t {}", names.var(size.var))));
    params.extend(["unsigned char *restrict ws", "int64_t worker", "int64_t begin", "int64_t end"].map(String::from));
    params.join(", ")
}
