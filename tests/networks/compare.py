#!/usr/bin/env python3
"""Builds networks of ONNX files and compares their results and times with ONNX Runtime's.

    python3 -m venv /tmp/networks && /tmp/networks/bin/pip install numpy onnx==1.23.2 onnxruntime
    /tmp/networks/bin/python tests/networks/compare.py light            # the nine networks that the onnx wheel carries
    /tmp/networks/bin/python tests/networks/compare.py model.onnx x=1,3,640,640 rate==16000   # the input `rate` is a constant

For each model it writes a crate with the model's spec, builds it in release mode, runs both on the same random inputs and
prints a row of a table: nodes of the model, launches, bytes of memory between them and of weights, build time, largest error
relative to the largest number of the result, the medians of both times, taken in turns, and of a process of its own, the time to the
first result and the most memory until then (of Python's only what ONNX Runtime adds). With `--threads 1,2` it runs each model on one
thread and on two. It ends with 1 if an error is too large.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIGHT = pathlib.Path(onnx.__file__).parent / "backend/test/data/light"

CARGO = """[workspace]
[package]
name = "compared"
version = "0.1.0"
edition = "2024"
[dependencies]
kernel-gen-runtime = {{ path = "{root}/runtime" }}
[build-dependencies]
kernel-gen-build = {{ path = "{root}/build-support", features = ["networks"] }}
[profile.release.package.kernel-gen]
opt-level = 0
"""
BUILD = """fn main() {{
    kernel_gen_build::configure().spec("kernels.toml"){tuned}.generate_or_exit();
}}
"""
MAIN = """kernel_gen_runtime::include_kernels!();
use kernel_gen_runtime::{{Cpu, Shape, Tensor}};
use kernels::net::*;
use std::io::{{BufRead, Write}};
fn main() {{
    let begun = std::time::Instant::now();
    let threads = std::env::args().nth(1).unwrap().parse().unwrap();
    let folder = std::env::args().nth(2).unwrap();
    let dev = Cpu::with_threads(threads);
    let mut network = Network::load_file(&dev, WEIGHTS_FILE.as_ref()).unwrap();
    let read = |name: &str| -> Vec<[u8; 4]> {{
        let bytes = std::fs::read(format!("{{folder}}/{{name}}.in")).unwrap();
        bytes.chunks_exact(4).map(|b| b.try_into().unwrap()).collect()
    }};
{inputs}{outputs}
    network.run(&dev, {args}).unwrap();
    let first = begun.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("{{ARENA_BYTES}} {{first}} {{}}", peak.trim().trim_end_matches(" kB"));
    std::io::stdout().flush().unwrap();
    for line in std::io::stdin().lock().lines() {{
        let runs: u32 = line.unwrap().trim().parse().unwrap();
        let begun = std::time::Instant::now();
        for _ in 0..runs {{
            network.run(&dev, {args}).unwrap();
        }}
        println!("{{}}", begun.elapsed().as_secs_f64() / f64::from(runs.max(1)));
        std::io::stdout().flush().unwrap();
    }}
{results}}}
"""


def element(array, number="f32"):
    """The type that a network takes an input as."""
    return number if array.dtype.kind == "f" else "i32"


def tokens(port, shape, random, count):
    """Integers for an input: tokens of any vocabulary, and masks of which some hold."""
    most = 2 if "mask" in port.name or port.type == "tensor(bool)" else count
    kind = {"tensor(int32)": np.int32, "tensor(bool)": np.bool_}.get(port.type, np.int64)
    return random.integers(0, most, shape).astype(kind)


def rust_name(text):
    """A name as kernel-gen makes it."""
    name = "".join(c.lower() if c.isascii() and c.isalnum() else "_" for c in text)
    return name if re.match("[a-z_]", name) else "_" + name


def unique(names, taken):
    """The names with numbers where they repeat."""
    found = []
    for wanted in names:
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted}{number}", number + 1
        taken.add(name)
        found.append(name)
    return found


def camel(name):
    joined = "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)
    return f"_{joined}" if joined[:1].isdigit() else joined


def with_weights(model, seed=0):
    """The model with initialisers in place of the constants that ConstantOfShape fills: random, so that results say something."""
    random = np.random.default_rng(seed)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    users = {}
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            users.setdefault(name, (node.op_type, i))
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        shape = [int(n) for n in shapes[node.input[0]]]
        op, place = users.get(node.output[0], ("", 0))
        # Sums keep their size: weights are scaled by the number of terms, variances are positive.
        fan = max(int(np.prod(shape[1:])), 1) if op in ("Conv", "Gemm") and place == 1 else 1
        values = random.standard_normal(shape) * (2 / fan) ** 0.5
        if op == "BatchNormalization" and place in (1, 4) or op in ("Unsqueeze", "Mul"):
            values = random.uniform(0.5, 1.5, shape)
        elif place != 1:
            values = 0.1 * random.standard_normal(shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    # A softmax of random numbers is 1 and zeros, which anybody gets right: what it takes is a result, too.
    named = {o.name for o in model.graph.output}
    for node in kept:
        if node.op_type == "Softmax" and node.output[0] in named:
            model.graph.output.append(onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None))
    return model


def session(path, threads):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# What numpy calls the types of inputs.
NUMPY = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(bool)": np.bool_, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
    "tensor(int16)": np.int16, "tensor(uint16)": np.uint16, "tensor(int32)": np.int32, "tensor(uint32)": np.uint32, "tensor(int64)": np.int64,
}

ALONE = """import sys, time
import numpy as np
import onnxruntime
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before, begun = peak(), time.perf_counter()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = int(sys.argv[2]), 1
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, dict(np.load(sys.argv[3])))
print(time.perf_counter() - begun, peak() - before)
"""


def alone(path, threads, folder, given):
    """Seconds to ONNX Runtime's first result and the most KiB of memory until then, in a process of its own, without what Python takes."""
    np.savez(folder / "given.npz", **given)
    command = [sys.executable, "-c", ALONE, str(path), str(threads), str(folder / "given.npz")]
    return map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def compare(path, shapes, constants, args, folder):
    """Builds a model, runs it beside ONNX Runtime, and gives a row of the table for each number of threads."""
    model = onnx.load(str(path))
    nodes = len(model.graph.node)
    if args.random_weights:
        model = with_weights(model)
        path = folder / "model.onnx"
        onnx.save(model, str(path))
    theirs = session(path, args.threads[0])
    names_in = [i.name for i in theirs.get_inputs() if i.name not in constants]
    names_out = [o.name for o in theirs.get_outputs()]
    random = np.random.default_rng(1)
    given = {}
    for i in theirs.get_inputs():
        if i.name in constants:
            value = np.array(constants[i.name], NUMPY[i.type])
            # One number stands for all elements.
            given[i.name] = np.broadcast_to(value, i.shape) if value.ndim == 0 and all(isinstance(n, int) for n in i.shape) else value
            continue
        shape = shapes.get(i.name) or [n if isinstance(n, int) else args.batch for n in i.shape]
        floats = "float" in i.type
        given[i.name] = random.standard_normal(shape).astype(np.float32) if floats else tokens(i, shape, random, args.tokens)
    wanted = theirs.run(None, given)
    (folder / "src").mkdir(exist_ok=True)
    (folder / "Cargo.toml").write_text(CARGO.format(root=ROOT))
    tuned = f'.tuned("{args.tuned.resolve()}")' if args.tuned else ""
    (folder / "build.rs").write_text(BUILD.format(tuned=tuned))
    inputs = ", ".join(f'"{name}" = {list(x.shape)}' for name, x in given.items() if name not in constants)
    constant = ", ".join(f'"{name}" = {json.dumps(value)}' for name, value in constants.items())
    levels = ", ".join(f'"{level}"' for level in args.levels.split(","))
    (folder / "kernels.toml").write_text(
        f'schema = 1\n[targets]\ncpu = [{levels}]\n[[network]]\nname = "net"\nmodel = "{path.resolve()}"\ninputs = {{ {inputs} }}\nconstants = {{ {constant} }}\n'
        + (f'layout = "{args.layout}"\n' if args.layout else "")
    )
    taken = {"dev", "self", "weights", "network"}
    rust = unique([rust_name(n) for n in names_in + names_out], taken)
    types = unique([camel(n) for n in rust], {"Network"})
    pairs = list(zip(rust, types, names_in + names_out))
    ins, outs = pairs[: len(names_in)], pairs[len(names_in) :]
    text = MAIN.format(
        inputs="".join(
            f'    let all: Vec<{element(given[o])}> = read("{n}").into_iter().map({element(given[o])}::from_le_bytes).collect();\n'
            f"    let i_{n} = Tensor::<{element(given[o])}, {t}>::from_slice(&all).unwrap();\n"
            for n, t, o in ins
        ),
        outputs="".join(f"    let mut o_{n} = Tensor::<_, {t}>::zeros();\n" for n, t, _ in outs),
        args=", ".join([f"&i_{n}" for n, _, _ in ins] + [f"&mut o_{n}" for n, _, _ in outs]),
        results="".join(
            f'    let bytes: Vec<u8> = o_{n}.as_slice().iter().flat_map(|v| v.to_le_bytes()).collect();\n'
            f'    std::fs::write(format!("{{folder}}/{n}.out"), bytes).unwrap();\n'
            for n, _, _ in outs
        ),
    )
    (folder / "src/main.rs").write_text(text)
    for name, _, original in ins:
        array = given[original]
        array.astype(np.int32 if element(array) == "i32" else np.float32).tofile(folder / f"{name}.in")
    begun = time.monotonic()
    command = ["cargo", "build", "--release", "--target-dir", str(args.target)]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    built = time.monotonic() - begun
    if made.returncode:
        errors = [line for line in made.stderr.splitlines() if line.startswith("error")]
        raise RuntimeError("\n".join(errors[:12]) or made.stderr[-2000:])
    generated = sorted((args.target / "release/build").glob("compared-*/out/kernels.rs"), key=lambda p: p.stat().st_mtime)[-1]
    steps = len(re.findall(r"// Step \d+:", generated.read_text()))
    weights = (generated.parent / "kernel-gen-kernels/net.weights").stat().st_size
    results = [(name, expected) for (name, _, _), expected in zip(outs, wanted)]
    for threads in args.threads:
        arena, worst, *rest = run(path, threads, args, folder, given, results)
        yield (nodes, steps, arena, weights, built, worst, threads, *rest)


def run(path, threads, args, folder, given, results):
    """Runs the program that was built beside ONNX Runtime: bytes between launches, error, times, first results and memory of both."""
    theirs = session(path, threads)
    program = args.target / "release/compared"
    ours = subprocess.Popen([program, str(threads), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    arena, first, peak = map(float, ours.stdout.readline().split())
    their_first, their_peak = alone(path, threads, folder, given)

    def run_ours(runs):
        ours.stdin.write(f"{runs}\n")
        ours.stdin.flush()
        return float(ours.stdout.readline())

    def run_theirs(runs):
        begun = time.perf_counter()
        for _ in range(runs):
            theirs.run(None, given)
        return (time.perf_counter() - begun) / runs

    once = run_ours(1)
    run_theirs(1)
    times = ([once], [run_theirs(1)])
    if args.seconds:
        runs = max(1, int(args.seconds / 20 / max(once, 1e-5)))
        times = [], []
        for _ in range(9):
            for all, of in zip(times, (run_ours, run_theirs)):
                # Threads of the other one look for work for a while before they sleep, and take a processor meanwhile.
                time.sleep(0.2 if threads > 1 else 0)
                of(1)
                all.append(of(runs))
    ours.stdin.close()
    ours.wait()
    worst = 0.0
    for name, expected in results:
        bytes = (folder / f"{name}.out").read_bytes()
        # Indices have 64 bits, other integers 32; truth values are numbers.
        kind = np.float32 if expected.dtype.kind not in "iu" else np.int64 if len(bytes) == 8 * expected.size else np.int32
        found, expected = np.frombuffer(bytes, kind).reshape(expected.shape), expected.astype(np.float64)
        error = np.abs(found.astype(np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30)
        worst = max(worst, float(error) if np.isfinite(error) else float("inf"))
    mine, peer = map(statistics.median, times)
    return (int(arena), worst, mine, peer, (first, their_first), (peak, their_peak))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="light, or files with shapes and constants: model.onnx x=1,3,224,224 rate==16000")
    parser.add_argument("--threads", default="1", help="how many; with commas, one after the other")
    parser.add_argument("--batch", type=int, default=1, help="what dynamic extents are, where no shape is given")
    parser.add_argument("--tokens", type=int, default=8, help="how many integers there are, where an input is one")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each of the two is timed; 0 for not at all")
    parser.add_argument("--levels", default="x86-64-v3", help="the CPU levels that are built, beside the lowest")
    parser.add_argument("--layout", help="the order of the dimensions between launches: NCHW or NHWC")
    parser.add_argument("--tuned", type=pathlib.Path, help="a folder of records")
    parser.add_argument("--random-weights", action="store_true", help="fill constants that ConstantOfShape makes with random numbers")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target/networks")
    args = parser.parse_args()
    args.target = args.target.resolve()
    args.threads = [int(n) for n in args.threads.split(",")]
    work = []
    for word in args.models:
        if word == "light":
            args.random_weights = True
            work += [(path, {}, {}) for path in sorted(LIGHT.glob("*.onnx"))]
        elif "==" in word:
            name, value = word.split("==")
            work[-1][2][name] = json.loads(value)
        elif "=" in word:
            name, shape = word.split("=")
            work[-1][1][name] = [int(n) for n in shape.split(",")]
        else:
            work.append((pathlib.Path(word), {}, {}))
    print("| model | nodes | launches | arena KiB | weights KiB | build s | error | threads | time ms | ONNX Runtime ms | ratio "
          "| first result ms, theirs | peak MiB, theirs |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    failed, ratios = 0, {threads: [] for threads in args.threads}
    for path, shapes, constants in work:
        with tempfile.TemporaryDirectory() as folder:
            try:
                for row in compare(path, shapes, constants, args, pathlib.Path(folder)):
                    nodes, steps, arena, weights, built, worst, threads, mine, peer, first, peak = row
                    failed += worst > 1e-4
                    ratios[threads].append(peer / mine)
                    print(
                        f"| {path.stem} | {nodes} | {steps} | {arena // 1024} | {weights // 1024} | {built:.0f} | {worst:.1e} "
                        f"| {threads} | {mine * 1e3:.2f} | {peer * 1e3:.2f} | {peer / mine:.2f} "
                        f"| {first[0] * 1e3:.0f}, {first[1] * 1e3:.0f} | {peak[0] / 1024:.0f}, {peak[1] / 1024:.0f} |",
                        flush=True,
                    )
            except Exception as error:  # noqa: BLE001: one model that fails is a row, and the others go on.
                print(f"| {path.stem} | failed: {error} |", flush=True)
                failed += 1
    for threads, all in ratios.items():
        if len(all) > 1:
            print(f"geometric mean of the ratios, {threads} threads: {statistics.geometric_mean(all):.2f}, lowest {min(all):.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
