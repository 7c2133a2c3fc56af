//! Runs emitted CUDA C++ on the CPU, where the threads of a block take turns. Only what a C++ compiler cannot know is
//! replaced, so what runs is the emitted text.

use kernel_gen::emit::cuda::{CudaSource, Param, TensorBase};
use kernel_gen::interp::Values;
use kernel_gen::ir::{Access, DType, Kernel};
use kernel_gen::toolchain::values::{decode, encode};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What inline PTX does, said in C++.
const INSTRUCTIONS: [(&str, &str); 10] = [
    (r#"asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));"#, "r = b < a || b != b ? b : a;"),
    (r#"asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));"#, "r = b > a || b != b ? b : a;"),
    (r#"asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));"#, "r = exp2f(x);"),
    (r#"asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));"#, "f = cpu_f16_to_f32(h);"),
    (r#"asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));"#, "h = cpu_f32_to_f16(f);"),
    (r#"asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));"#, "h = cpu_f32_to_bf16(f);"),
    (
        r#"asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));"#,
        "pair = (unsigned)cpu_f32_to_f16(high) << 16 | cpu_f32_to_f16(low);",
    ),
    (
        r#"asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));"#,
        "pair = (unsigned)cpu_f32_to_bf16(high) << 16 | cpu_f32_to_bf16(low);",
    ),
    (
        r#"asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));"#,
        "pair = (unsigned short)(cpu_f32_to_e4m3(high) << 8 | cpu_f32_to_e4m3(low));",
    ),
    (
        r#"asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));"#,
        "pair = (unsigned short)(cpu_f32_to_e5m2(high) << 8 | cpu_f32_to_e5m2(low));",
    ),
];

/// The source without the helper functions that are instructions: `device.h` has them.
fn without_instructions(source: &str) -> String {
    let mut out = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let mut text = format!("{line}\n");
        let helper = line.starts_with("KG_FN ") || line.starts_with("template <int n> KG_FN ");
        if helper || line.starts_with("struct __align__(64) tensor_map") {
            for line in lines.by_ref() {
                text += &format!("{line}\n");
                if line == "}" || line == "};" {
                    break;
                }
            }
            if !helper || text.contains("asm") || text.contains("shared_address") {
                out.push_str(&warpgroup_product(line));
                continue;
            }
        }
        out.push_str(&text);
    }
    out
}

/// A product of a warpgroup, whose name says all about it: `wgmma_m64n128k16_f16_nt`, `wgmma_m64n128k16_bf16_held_n`,
/// `wgmma_m64n128k8_tf32`,
/// `wgmma_m64n128k8_tf32_nn`.
fn warpgroup_product(head: &str) -> String {
    let product = head.strip_prefix("KG_FN void wgmma_m64n");
    if let Some((columns, _)) = product.and_then(|t| t.split_once("k8_tf32_nn(")) {
        return format!(
            "static void wgmma_m64n{columns}k8_tf32_nn(float *sums, unsigned long long a, unsigned long long b) {{\n  \
             wgmma_tf32_both<{columns}>(sums, a, b);\n}}\n"
        );
    }
    if let Some((columns, _)) = product.and_then(|t| t.split_once("k8_tf32(")) {
        return format!(
            "static void wgmma_m64n{columns}k8_tf32(float *sums, const unsigned *a, unsigned long long b) {{\n  \
             wgmma_tf32<{columns}>(sums, a, b);\n}}\n"
        );
    }
    if let Some((columns, rest)) = product.and_then(|t| t.split_once("k32_")) {
        let name = rest.split('(').next().unwrap_or_default();
        let ty = |kind: &str| if kind == "s8" { "signed char" } else { "unsigned char" };
        let (types, first) = name
            .strip_suffix("_first")
            .map_or((name, ""), |types| (types, "for (int i = 0; i < COLUMNS / 2; ++i) sums[i] = 0;\n  "));
        let (a, b) = types.split_once('_').expect("types of both operands");
        let first = first.replace("COLUMNS", columns);
        if a.starts_with('e') {
            return format!(
                "static void wgmma_m64n{columns}k32_{name}(float *sums, unsigned long long a, unsigned long long b) {{\n  \
                 {first}wgmma_f8<{columns}>(sums, a, b, cpu_{a}_to_f32, cpu_{b}_to_f32);\n}}\n"
            );
        }
        return format!(
            "static void wgmma_m64n{columns}k32_{name}(int *sums, unsigned long long a, unsigned long long b) {{\n  \
             {first}wgmma_bytes<{columns}, {}, {}>(sums, a, b);\n}}\n",
            ty(a),
            ty(b),
        );
    }
    let Some((columns, rest)) = product.and_then(|t| t.split_once("k16_")) else {
        return String::new();
    };
    if let Some((dtype, order)) = rest.split_once("_held_") {
        let (order, right) = (&order[..1], order.starts_with('t'));
        return format!(
            "static void wgmma_m64n{columns}k16_{dtype}_held_{order}(float *sums, const unsigned *a, unsigned long long b) {{\n  \
             wgmma_held<{columns}>(sums, a, b, {right}, cpu_{dtype}_to_f32);\n}}\n"
        );
    }
    let Some((dtype, [a, b, ..])) = rest.split_once('_').map(|(dtype, rest)| (dtype, rest.as_bytes())) else {
        return String::new();
    };
    let name = format!("wgmma_m64n{columns}k16_{dtype}_{}{}", char::from(*a), char::from(*b));
    let (left, right) = (*a == b't', *b == b't');
    format!(
        "static void {name}(float *sums, unsigned long long a, unsigned long long b) {{\n  \
         wgmma<{columns}>(sums, a, b, {left}, {right}, cpu_{dtype}_to_f32);\n}}\n"
    )
}

/// What lanes receive from each other, as a statement.
fn shuffle(line: &str) -> Option<String> {
    let text = line.trim_start().strip_prefix("asm volatile(\"shfl.sync.bfly.b32 %0, %1, ")?;
    let (mask, operands) = text.split_once(", 31, -1;\" : \"=f\"(")?;
    let (to, from) = operands.strip_suffix("));")?.split_once(") : \"f\"(")?;
    Some(format!("{to} = shuffle_xor({mask}, {from});"))
}

/// A statement that is one instruction: nothing where all is done at once and in order, but for barriers.
fn instruction(line: &str) -> Option<String> {
    if let Some(shuffle) = shuffle(line) {
        return Some(shuffle);
    }
    let text = line.trim_start().strip_prefix("asm volatile(\"")?.strip_suffix(";\" ::: \"memory\");")?;
    match text.strip_prefix("bar.sync ") {
        Some(operands) => Some(format!("bar_sync({operands});")),
        None if text.starts_with("barrier.cluster") => None,
        // A product is done for the whole warpgroup or for none of it.
        None if text.starts_with("wgmma.wait_group") => Some("warpgroup_wait();".into()),
        None => Some(String::new()),
    }
}

/// A list in braces.
fn list<T: ToString>(values: &[T]) -> String {
    format!("{{{}}}", values.iter().map(T::to_string).collect::<Vec<_>>().join(", "))
}

/// The emitted source as a C++ program that reads all parameters from standard input and writes them back.
fn program(kernel: &Kernel, cuda: &CudaSource) -> String {
    let mut source = cuda.source.clone();
    for (ptx, cpp) in INSTRUCTIONS {
        source = source.replace(ptx, cpp);
    }
    let source = without_instructions(&source).replace("extern \"C\" ", "");
    let source: Vec<String> = source
        .lines()
        .filter(|l| !l.trim_start().starts_with("extern __shared__"))
        .map(|l| instruction(l).unwrap_or_else(|| l.to_string()))
        .collect();
    let source = source.join("\n");
    assert!(!source.contains("asm"), "an instruction without a C++ form:\n{source}");
    let mut out = format!("{}\n{source}\n\n", include_str!("device.h"));
    let _ = writeln!(out, "static unsigned char *params[{}], *workspace;", kernel.params.len().max(1));
    for l in &cuda.launches {
        // A call converts nothing by itself, so each argument gets the type of its parameter from the function.
        let args: Vec<String> = l
            .params
            .iter()
            .map(|p| match p {
                Param::Buffer { index, .. } => format!("any{{params[{index}]}}"),
                Param::Workspace { offset, .. } => format!("any{{workspace + {offset}}}"),
                Param::Units(n) => format!("{n}"),
                Param::TensorMap(map) => {
                    let base = match map.base {
                        TensorBase::Buffer(index) => format!("params[{index}]"),
                        TensorBase::Workspace(offset) => format!("workspace + {offset}"),
                    };
                    let (rank, element) = (map.dims.len(), map.dtype.bytes());
                    let lists = [list(&map.dims), list(&map.strides), list(&map.box_dims), list(&map.steps)].join(", ");
                    format!("tensor_map{{{base}, {rank}, {element}, {lists}, {}}}", map.swizzle)
                }
            })
            .collect();
        let _ = writeln!(out, "static void run_{0}() {{\n  {0}({1});\n}}", l.symbol, args.join(", "));
    }
    out.insert_str(
        out.find("static unsigned char *params").unwrap_or(0),
        "struct any {\n  void *p;\n  template <class T> operator T *() const { return (T *)p; }\n};\n",
    );
    out.push_str("int main() {\n");
    for (i, p) in kernel.params.iter().enumerate() {
        let bytes = kernel.buffer(*p).extent_bytes();
        let _ = writeln!(
            out,
            "  params[{i}] = buffer({bytes});\n  if (fread(params[{i}], 1, {bytes}, stdin) != {bytes}) return 1;"
        );
    }
    let _ = writeln!(out, "  workspace = buffer({});", cuda.workspace_bytes);
    for l in &cuda.launches {
        let shape = |s: [u32; 3]| format!("{{{}, {}, {}}}", s[0], s[1], s[2]);
        let _ = writeln!(out, "  launch({{{}, {}, run_{}}});", shape(l.grid), shape(l.block), l.symbol);
    }
    for (i, p) in kernel.params.iter().enumerate() {
        let bytes = kernel.buffer(*p).extent_bytes();
        let _ = writeln!(out, "  if (fwrite(params[{i}], 1, {bytes}, stdout) != {bytes}) return 1;");
    }
    out.push_str("}\n");
    out
}

/// A source as a program. Its files vanish with it.
pub(crate) struct Program {
    folder: PathBuf,
    /// Name, type, bytes and access of each parameter.
    params: Vec<(String, DType, usize, Access)>,
    source: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Compiles the source of a dense kernel.
pub(crate) fn build(kernel: &Kernel, cuda: &CudaSource) -> Result<Program, String> {
    let params = kernel.params.iter().map(|p| kernel.buffer(*p));
    let params = params.map(|b| (b.name.clone(), b.dtype, b.extent_bytes() as usize, b.access)).collect();
    let made = Program { folder: scratch(), params, source: cuda.source.clone() };
    let source = made.folder.join("kernel.cpp");
    fs::write(&source, program(kernel, cuda)).map_err(|e| e.to_string())?;
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let built = Command::new(&compiler)
        .args(["-std=c++14", "-O1", "-w", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-o"])
        .args([&made.folder.join("kernel"), &source])
        .output()
        .map_err(|e| format!("{compiler}: {e}"))?;
    if !built.status.success() {
        return Err(format!("{}\n{}", String::from_utf8_lossy(&built.stderr), cuda.source));
    }
    Ok(made)
}

impl Program {
    /// Runs it on the values of the kernel's inputs; gives those of its outputs, or what went wrong.
    pub(crate) fn run(&self, inputs: &Values) -> Result<Values, String> {
        let mut bytes = vec![];
        for (name, dtype, size, _) in &self.params {
            match inputs.get(name) {
                Some(values) => bytes.extend(encode(*dtype, values)),
                None => bytes.resize(bytes.len() + size, 0x7b),
            }
        }
        let mut child = Command::new(self.folder.join("kernel"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut stdin = child.stdin.take().ok_or("no standard input")?;
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let done = child.wait_with_output().map_err(|e| e.to_string())?;
        let _ = writer.join();
        if !done.status.success() {
            return Err(format!("{}\n{}", done.status, self.source));
        }
        let mut rest = &done.stdout[..];
        let mut out = Values::new();
        for (name, dtype, size, access) in &self.params {
            let (own, others) = rest.split_at_checked(*size).ok_or("too little output")?;
            rest = others;
            if *access != Access::Read {
                out.insert(name.clone(), decode(*dtype, own));
            }
        }
        Ok(out)
    }
}

/// A folder of this call's own.
fn scratch() -> PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("cuda-on-cpu-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("cargo's folder for tests is writable");
    folder
}
