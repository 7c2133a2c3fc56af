#!/usr/bin/env python3
"""Writes the ONNX project's published tests of nodes as models that networks are made of.

    python3 -m venv /tmp/onnx-venv && /tmp/onnx-venv/bin/pip install numpy onnx==1.23.2
    /tmp/onnx-venv/bin/python tests/onnx/nodes.py                      # those of one node, which are checked in
    /tmp/onnx-venv/bin/python tests/onnx/nodes.py FILE --expanded      # also functions as the nodes that they are made of

Each test whose operators kernel-gen compiles becomes a line of `nodes.jsonl`: the model as published, in hexadecimal digits, its
inputs and its outputs. Tests of `cases/` are left out: these run through kernels. `cargo test -p kernel-gen --test kernels onnx_nodes`
reads them, from another file if `KERNEL_GEN_NODES` names one; `nodes_refused.txt` says which of them are not compiled, and why.

Nothing here computes an expected output: they are the ones that ONNX publishes.
"""

import argparse
import json
import pathlib
import re
import warnings

import numpy as np
import onnx

warnings.simplefilter("ignore")  # Tests of other operators divide by zero on purpose while they are collected.
from onnx.backend.test import loader  # noqa: E402

HERE = pathlib.Path(__file__).parent
# Such a test has `length_resized` as the fraction that a scale gives; ONNX Runtime has the extent of the output, and so does kernel-gen.
FRACTIONS = ("test_resize_downsample_scales_cubic_align_corners", "test_resize_downsample_scales_linear_align_corners")
# Larger files are not worth their place in a repository.
MAX_ELEMENTS = 4000
# Types that the tests of casts have beyond those of networks, of which nothing is learnt, and f16, to which these tests do not round.
OTHERS = re.compile("FLOAT16|fp16|float16|FLOAT8|FLOAT4|UINT2|INT2|UINT4|INT4|FLOAT6|E8M0|DOUBLE|STRING|complex|2bit")


def operators():
    """The operators that networks are made of, from the documentation."""
    text = (HERE.parents[1] / "docs/networks.md").read_text()
    listed = text.split("## Operators", 1)[1].split("Not yet", 1)[0]
    return set(re.findall(r"`(\w+)`", listed))


def plain(array):
    """A tensor as JSON takes it; None for what is no tensor of numbers."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        return None
    # The shortest digits that give an f32 back.
    digits = lambda v: float(str(v)) if np.isfinite(v) else str(v)
    flat = array.reshape(-1)
    data = [digits(v) for v in flat] if array.dtype.kind == "f" else [int(v) for v in flat]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=HERE / "nodes.jsonl")
    parser.add_argument("--expanded", action="store_true", help="also tests of several nodes")
    args = parser.parse_args()
    known = operators()
    cases = {path.stem for path in (HERE / "cases").glob("*.toml")}
    run = cases | {re.sub(r"_\d+$", "", name) for name in cases}
    lines = []
    for test in loader.load_model_tests(kind="node"):
        nodes = test.model.graph.node
        if not {node.op_type for node in nodes} <= known or OTHERS.search(test.name) or test.name in FRACTIONS:
            continue
        if not args.expanded and (len(nodes) > 1 or test.name in run):
            continue
        inputs, outputs = test.data_sets[0]
        tensors = [plain(array) for array in (*inputs, *outputs)]
        if None in tensors or sum(len(t["data"]) for t in tensors) > MAX_ELEMENTS:
            continue
        names = [info.name for info in test.model.graph.input]
        results = [info.name for info in test.model.graph.output]
        case = {
            "name": test.name,
            "rtol": test.rtol,
            "atol": test.atol,
            "inputs": [{"name": name} | tensor for name, tensor in zip(names, tensors)],
            "outputs": [{"name": name} | tensor for name, tensor in zip(results, tensors[len(inputs) :])],
            "model": test.model.SerializeToString().hex(),
        }
        lines.append(json.dumps(case) + "\n")
    args.file.write_text("".join(sorted(lines)))
    print(f"{len(lines)} tests written")


if __name__ == "__main__":
    main()
