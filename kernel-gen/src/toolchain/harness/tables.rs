//! What the host has to know of a kernel, as C beside it.

use crate::emit::c::{CSource, Phase};
use crate::ir::{Access, DType, Kernel};
use std::fmt::Write;

/// The structures of the tables.
pub(super) const ABI: &str = include_str!("abi.h");

/// What packs a parameter of a kernel: a kernel from the original to the packed form.
#[derive(Clone, Copy, Debug)]
pub struct PackSource<'a> {
    /// Which parameter.
    pub param: usize,
    /// Its C.
    pub source: &'a CSource,
    /// The kernel that the C was emitted from.
    pub kernel: &'a Kernel,
}

/// A buffer as the host sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Buffer {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) elements: usize,
    /// Its contents come from the input file.
    pub(super) given: bool,
    /// Its contents go to the output file.
    pub(super) wanted: bool,
    /// The kernel reads it and must leave it alone.
    pub(super) constant: bool,
}

impl Buffer {
    pub(super) fn bytes(&self) -> usize {
        self.elements * self.dtype.bytes()
    }
}

/// The buffers of a kernel: its parameters, those that are packed as they are before, and then the packed ones. Also which
/// of them the kernel takes.
pub(super) fn buffers(kernel: &Kernel, packs: &[PackSource<'_>]) -> (Vec<Buffer>, Vec<usize>) {
    let of = |kernel: &Kernel, at: usize| {
        let b = kernel.buffer(kernel.params[at]);
        Buffer {
            name: b.name.clone(),
            dtype: b.dtype,
            elements: usize::try_from(b.extent_elements()).unwrap_or(0),
            given: b.access != Access::Write,
            wanted: b.access != Access::Read,
            constant: b.access == Access::Read,
        }
    };
    let mut all: Vec<Buffer> = (0..kernel.params.len()).map(|i| of(kernel, i)).collect();
    let mut arguments: Vec<usize> = (0..all.len()).collect();
    for pack in packs {
        arguments[pack.param] = all.len();
        let packed = Buffer { given: false, ..all[pack.param].clone() };
        // What is packed is all that the kernel sees.
        all[pack.param] = Buffer { name: packed.name.clone(), constant: false, ..of(pack.kernel, 0) };
        all.push(packed);
    }
    (all, arguments)
}

/// The tables of a kernel.
pub(super) fn tables(source: &CSource, packs: &[PackSource<'_>], buffers: &[Buffer], arguments: &[usize]) -> String {
    let mut t = format!("\n{ABI}\n");
    let params = arguments.len();
    let mut programs: Vec<(&CSource, Vec<usize>)> = vec![];
    for (i, pack) in packs.iter().enumerate() {
        let prototypes = pack.source.header.lines().filter(|l| l.starts_with("void "));
        prototypes.for_each(|l| t += &format!("{l}\n"));
        programs.push((pack.source, vec![pack.param, params + i]));
    }
    programs.push((source, arguments.to_vec()));
    t += "static const struct kg_buffer kg_buffers[] = {\n";
    for b in buffers {
        let [given, wanted, constant] = [b.given, b.wanted, b.constant].map(u8::from);
        let _ = writeln!(t, "  {{\"{}\", {}, {given}, {wanted}, {constant}}},", b.name, b.bytes());
    }
    t += "};\n";
    for (i, (source, _)) in programs.iter().enumerate() {
        let _ = writeln!(t, "static const struct kg_phase kg_phases_{i}[] = {{");
        for Phase { extent, parallel, .. } in &source.phases {
            let _ = writeln!(t, "  {{{extent}, {}}},", u8::from(*parallel));
        }
        t += "};\n";
    }
    for (i, units) in programs.iter().enumerate().filter_map(|(i, (source, _))| Some((i, source.units?))) {
        // What a compiler would know of it, a caller's does not.
        let _ = writeln!(t, "static volatile int64_t kg_units_{i} = {units};");
    }
    t += "static const struct kg_program kg_programs[] = {\n";
    for (i, (source, _)) in programs.iter().enumerate() {
        let (phases, shared, worker) = (source.phases.len(), source.workspace_bytes, source.worker_bytes);
        let _ = writeln!(t, "  {{{phases}, kg_phases_{i}, {shared}, {worker}}},");
    }
    t += "};\nstatic void kg_call(int program, int phase, void **p, unsigned char *ws, int64_t worker, int64_t begin, int64_t end) {\n";
    t += "  switch (program * 1000 + phase) {\n";
    for (i, (source, arguments)) in programs.iter().enumerate() {
        let units = source.units.map(|_| format!("kg_units_{i}, "));
        let args: String = arguments.iter().map(|k| format!("p[{k}], ")).chain(units).collect();
        for (j, phase) in source.phases.iter().enumerate() {
            let _ = writeln!(t, "    case {}: {}({args}ws, worker, begin, end); break;", i * 1000 + j, phase.symbol);
        }
    }
    t += "  }\n}\n";
    let _ = writeln!(
        t,
        "extern const struct kg_kernel kg_kernel;\nconst struct kg_kernel kg_kernel = \
         {{{}, kg_buffers, {}, kg_programs, kg_call}};",
        buffers.len(),
        programs.len()
    );
    t
}
