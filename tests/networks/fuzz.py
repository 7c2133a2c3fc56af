#!/usr/bin/env python3
"""Compares random networks with ONNX Runtime: what their steps give in f64 after all passes, and what their generated code gives.

    KERNEL_GEN_NETWORKS=/tmp/random KERNEL_GEN_WORKLOADS=2000 cargo test -p kernel-gen --test kernels passes_and_memory    # writes them
    /tmp/networks/bin/python tests/networks/fuzz.py /tmp/random                    # the steps of all of them
    /tmp/networks/bin/python tests/networks/fuzz.py /tmp/random --compiled 0-49    # the code of those seeds, as one crate

`KERNEL_GEN_SEED` is the first seed; a seed says all of a network, so it makes it again. Networks of odd seeds have their channels
last. It prints a line for each difference and a count, and ends with 1 if there is a difference.
"""

import argparse
import pathlib
import subprocess
import sys

import numpy as np
import onnx

from compare import CARGO, ROOT, camel, rust_name, session, unique

# Sums of random networks have few terms; what cancels is held against the largest number of the result.
LIMIT = 2e-4
MAIN = """kernel_gen_runtime::include_kernels!();
use kernel_gen_runtime::{{Cpu, Tensor}};
fn read(name: &str) -> Vec<f32> {{
    let bytes = std::fs::read(name).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}}
fn write(name: &str, all: &[f32]) {{
    std::fs::write(name, all.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
}}
fn main() {{
    let folder = std::env::args().nth(1).unwrap();
    let dev = Cpu::with_threads(2);
{calls}}}
"""


def wrong(name, found, expected):
    """Whether a result is off; says so."""
    if found.size != expected.size:
        print(f"{name}: {found.size} elements of {expected.size}")
        return True
    size = max(np.abs(expected).max(), 1e-3)
    off = np.abs(found.astype(np.float64) - expected.reshape(-1)).max() / size
    if not off < LIMIT:
        print(f"{name}: off by {off:.1e} of {size:.3g}")
    return not off < LIMIT


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--compiled", help="the first and the last seed whose code is made, 0-49")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target/networks")
    args = parser.parse_args()
    folder, target = args.folder.resolve(), args.target.resolve()
    seeds = sorted(int(p.stem) for p in folder.glob("*.onnx"))
    if args.compiled:
        first, last = map(int, args.compiled.split("-"))
        seeds = [seed for seed in seeds if first <= seed <= last]
    expected, calls, spec = {}, [], ['schema = 1\n[targets]\ncpu = ["x86-64-v3"]\n']
    for seed in seeds:
        theirs = session(folder / f"{seed}.onnx", 2)
        inputs, outputs = theirs.get_inputs(), theirs.get_outputs()
        given = {i.name: np.fromfile(folder / f"{seed}.{n}.in", np.float32).reshape(i.shape) for n, i in enumerate(inputs)}
        expected[seed] = theirs.run(None, given)
        names = unique([rust_name(p.name) for p in [*inputs, *outputs]], {"dev", "self", "weights", "network"})
        types = unique([camel(name) for name in names], {"Network"})
        layout = "NHWC" if seed % 2 else "NCHW"
        spec.append(f'[[network]]\nname = "n{seed}"\nmodel = "{folder}/{seed}.onnx"\nlayout = "{layout}"\n')
        calls.append(f"    {{\n        use kernels::n{seed}::*;\n")
        for n, (name, kind) in enumerate(zip(names, types)):
            made = f'from_slice(&read(&format!("{{folder}}/{seed}.{n}.in"))).unwrap()' if n < len(inputs) else "zeros()"
            calls.append(f"        let {'' if n < len(inputs) else 'mut '}{name} = Tensor::<f32, {kind}>::{made};\n")
        run = ", ".join([f"&{name}" for name in names[: len(inputs)]] + [f"&mut {name}" for name in names[len(inputs) :]])
        calls.append(f"        Network::load(&dev, WEIGHTS).unwrap().run(&dev, {run}).unwrap();\n")
        for n, name in enumerate(names[len(inputs) :]):
            calls.append(f'        write(&format!("{{folder}}/{seed}.{n}.code"), {name}.as_slice());\n')
        calls.append("    }\n")
    if args.compiled:
        crate = target / "random-crate"
        (crate / "src").mkdir(parents=True, exist_ok=True)
        (crate / "Cargo.toml").write_text(CARGO.format(root=ROOT))
        (crate / "build.rs").write_text('fn main() {\n    kernel_gen_build::configure().spec("kernels.toml").generate_or_exit();\n}\n')
        (crate / "kernels.toml").write_text("\n".join(spec))
        (crate / "src/main.rs").write_text(MAIN.format(calls="".join(calls)))
        subprocess.run(["cargo", "build", "--release", "--target-dir", str(target)], cwd=crate, check=True)
        subprocess.run([target / "release/compared", str(folder)], check=True)
    kind = "code" if args.compiled else "out"
    differences = 0
    for seed in seeds:
        nodes = len(onnx.load(str(folder / f"{seed}.onnx")).graph.node)
        found = [np.fromfile(folder / f"{seed}.{n}.{kind}", np.float32) for n in range(len(expected[seed]))]
        differences += any([wrong(f"seed {seed} ({nodes} nodes), result {n}", f, e) for n, (f, e) in enumerate(zip(found, expected[seed]))])
    print(f"{len(seeds)} networks, {differences} of which differ from ONNX Runtime")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
