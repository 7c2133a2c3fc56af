#!/usr/bin/env python3
"""Writes the published tests of ONNX's operators on integers of eight bits as cases for kernel-gen/tests/kernels/quantised_networks.rs.

    pip install numpy onnx==1.23.2
    python3 tests/onnx/quantised.py > kernel-gen/tests/kernels/quantised_networks.json
"""

import json
import warnings

import numpy as np
from onnx import AttributeProto
from onnx.backend.test.case.node import collect_testcases

warnings.simplefilter("ignore")
OPERATORS = ["ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "DequantizeLinear",
             "DynamicQuantizeLinear"]
TYPES = ["float32", "uint8", "int8", "int32"]

cases, left_out = [], []


def tensor(name, array):
    array = np.asarray(array)
    return {"name": name, "type": array.dtype.name, "shape": list(array.shape), "data": [float(v) for v in array.flatten()]}


for case in sorted(collect_testcases(None), key=lambda case: case.name):
    nodes = case.model.graph.node
    if len(nodes) != 1 or nodes[0].op_type not in OPERATORS or case.name.endswith("_expanded"):
        continue
    node = nodes[0]
    (inputs, outputs) = case.data_sets[0]
    wrong = [t for t in (np.asarray(a).dtype.name for a in list(inputs) + list(outputs)) if t not in TYPES]
    if wrong:
        left_out.append({"name": case.name, "reason": f"it has elements of type {wrong[0]}"})
        continue
    numbers = (AttributeProto.INT, AttributeProto.INTS)
    attributes = {a.name: [a.i] if a.type == AttributeProto.INT else list(a.ints)
                  for a in node.attribute if a.type in numbers}
    names = [name for name in node.input if name]
    cases.append({
        "name": case.name, "op": node.op_type, "opset": case.model.opset_import[0].version, "attributes": attributes,
        "inputs": list(node.input), "input": [tensor(n, a) for n, a in zip(names, inputs)],
        "output": [tensor(n, a) for n, a in zip(node.output, outputs)],
    })
lines = [json.dumps({"case": c}) for c in cases] + [json.dumps({"left_out": c}) for c in left_out]
print("\n".join(lines))
