#!/usr/bin/env python3
"""Writes the ONNX project's published tests of our operators as small text files for tests/onnx.

    python3 -m venv /tmp/onnx-venv && /tmp/onnx-venv/bin/pip install numpy onnx==1.23.2
    /tmp/onnx-venv/bin/python tests/onnx/extract.py

The wheel carries them in two forms: the *node* tests are Python functions that hand out model, inputs and outputs, the
*pytorch-converted* and *pytorch-operator* tests are files. Each test whose model is one node that a kernel of ours
computes becomes `cases/<test>.toml`, with the tensors as published. `kernels.toml` declares exactly these shapes.
Everything else with such a node goes to `skipped.toml` with the reason.

Nothing here computes an expected output: they are the ones that ONNX publishes.
"""

import glob
import pathlib
import warnings

import numpy as np
import onnx
from onnx import helper, numpy_helper

warnings.simplefilter("ignore")  # Tests of other operators divide by zero on purpose while they are collected.
from onnx.backend.test import loader  # noqa: E402

HERE = pathlib.Path(__file__).parent
DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data"
POOLS = {"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"}
ROWS = {"Softmax", "LayerNormalization", "RMSNormalization"}
OPERATORS = {"Conv", "MatMul", "Gemm"} | POOLS | ROWS
FLAGS = ("trans_a", "trans_b", "count_include_pad")
# Files with more elements than this are not worth their place in a repository.
MAX_ELEMENTS = 20_000


class Skip(Exception):
    """The test cannot become a case; the text says why."""


def published():
    """Yields (name, source, graph, inputs, outputs, rtol, atol) of every test that has one of the operators."""
    for test in loader.load_model_tests(kind="node"):
        if OPERATORS & {node.op_type for node in test.model.graph.node}:
            inputs, outputs = test.data_sets[0]
            yield test.name, "backend/test/case/node", test.model.graph, inputs, outputs, test.rtol, test.atol
    for kind in ("pytorch-converted", "pytorch-operator"):
        for test in loader.load_model_tests(kind=kind):
            graph = onnx.load(f"{test.model_dir}/model.onnx").graph
            if not OPERATORS & {node.op_type for node in graph.node}:
                continue
            read = lambda what: [
                numpy_helper.to_array(onnx.load_tensor(path))
                for path in sorted(glob.glob(f"{test.model_dir}/test_data_set_0/{what}_*.pb"))
            ]
            yield test.name, f"backend/test/data/{kind}", graph, read("input"), read("output"), test.rtol, test.atol


def operands(graph, inputs):
    """The single node, its attributes and its operands in order; constants of the graph take their places."""
    nodes = list(graph.node)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    values |= dict(zip([i.name for i in graph.input if i.name not in values], inputs))
    transposed = None
    if [node.op_type for node in nodes] == ["Constant", "Gemm"]:
        values[nodes[0].output[0]] = numpy_helper.to_array(nodes[0].attribute[0].t)
        nodes = nodes[1:]
    if [node.op_type for node in nodes] == ["Transpose", "MatMul"] and nodes[1].input[1] == nodes[0].output[0]:
        values[nodes[0].output[0]] = values[nodes[0].input[0]]
        transposed, nodes = nodes[0], nodes[1:]
    if len(nodes) != 1:
        raise Skip(f"{len(nodes)} nodes, of which this operator is a part")
    attributes = {a.name: helper.get_attribute_value(a) for a in nodes[0].attribute}
    if transposed:
        attributes["transB"] = 1
    return nodes[0].op_type, attributes, [values[name] for name in nodes[0].input]


def window(attributes, x, kernel):
    """Strides, dilations and padding of a node whose window has this size."""
    rank = x.ndim - 2
    get = lambda name, default: list(attributes.get(name, default))
    stride, dilation, pads = get("strides", [1] * rank), get("dilations", [1] * rank), get("pads", [0] * 2 * rank)
    how = attributes.get("auto_pad", b"NOTSET").decode()
    if how.startswith("SAME"):
        total = [
            max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
            for size, s, k, d in zip(x.shape[2:], stride, kernel, dilation)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if how == "SAME_UPPER" else large + small
    elif how not in ("NOTSET", "VALID"):
        raise Skip(f"auto_pad {how}")
    return stride, dilation, pads


def conv(attributes, x, w, bias=None):
    """A Conv node as a workload of ours, and the operands in the shapes that it wants."""
    rank = x.ndim - 2
    if rank == 3:
        raise Skip("three-dimensional convolution")
    kernel = list(w.shape[2:])
    stride, dilation, pads = window(attributes, x, kernel)
    note = None
    if rank == 1:
        note = "a one-dimensional convolution, run as one of height 1"
        x, w = x[:, :, None, :], w[:, :, None, :]
        stride, dilation, pads = [1] + stride, [1] + dilation, [0, pads[0], 0, pads[1]]
    groups = attributes.get("group", 1)
    depthwise = groups == x.shape[1] > 1
    workload = {
        "op": "depthwise_conv2d" if depthwise else "conv2d",
        "input": list(x.shape),
        "weight": list(w.shape),
        "stride": stride,
        "padding": pads,
        "dilation": dilation,
        "groups": groups,
    }
    tensors = {"x": x, "w": w}
    if bias is not None:
        tensors["bias"] = bias
    return workload, tensors, "y", note


def pool(op, attributes, x):
    """A pooling node as a workload of ours, and its operand."""
    rank = x.ndim - 2
    if rank == 3:
        raise Skip("three-dimensional pooling")
    kernel = list(x.shape[2:] if op.startswith("Global") else attributes["kernel_shape"])
    stride, dilation, pads = window(attributes, x, kernel)
    note = None
    if attributes.get("ceil_mode"):
        if attributes.get("count_include_pad"):
            raise Skip("an average over padding and over what ceil_mode adds")
        note = "ceil_mode as padding behind the input"
        for i, (size, s, k, d) in enumerate(zip(x.shape[2:], stride, kernel, dilation)):
            span = (k - 1) * d + 1
            outputs = -(-(size + pads[i] + pads[i + rank] - span) // s) + 1
            # A window that begins behind the input and the padding before it is none.
            if (outputs - 1) * s >= size + pads[i]:
                outputs -= 1
            pads[i + rank] = max((outputs - 1) * s + span - size - pads[i], 0)
    if rank == 1:
        note = "one-dimensional pooling, run as that of a map of height 1"
        x, kernel = x[:, :, None, :], [1] + kernel
        stride, dilation, pads = [1] + stride, [1] + dilation, [0, pads[0], 0, pads[1]]
    workload = {
        "op": "max_pool2d" if "Max" in op else "avg_pool2d",
        "input": list(x.shape),
        "window": kernel,
        "stride": stride,
        "padding": pads,
        "dilation": dilation,
    }
    if attributes.get("count_include_pad"):
        workload["count_include_pad"] = True
    return workload, {"x": x}, "y", note


def row_wise(op, attributes, x, scale=None, shift=None):
    """A softmax or a norm of rows as a workload of ours, and its operands."""
    axis = attributes.get("axis", -1) % x.ndim
    if op == "Softmax" and axis != x.ndim - 1:
        raise Skip("softmax along an axis that is not the last one")
    columns = int(np.prod(x.shape[axis:]))
    note = None if x.ndim == 2 and axis == 1 else f"the dimensions from {axis} on are a row, those before are rows"
    x = x.reshape(-1, columns)
    workload = {"op": {"Softmax": "softmax", "RMSNormalization": "rms_norm"}.get(op, "layer_norm"), "input": list(x.shape)}
    tensors = {"x": x}
    if op != "Softmax":
        epsilon = attributes.get("epsilon", 1e-5)
        digits = round(-np.log10(epsilon))
        if abs(10.0**-digits - epsilon) > 1e-6 * epsilon:
            raise Skip(f"an epsilon of {epsilon}, which is no power of ten")
        workload["epsilon_digits"] = digits
        tensors["scale"] = scale.reshape(-1)
        tensors["shift"] = np.zeros_like(tensors["scale"]) if shift is None else shift.reshape(-1)
    return workload, tensors, "y", note


def matmul(attributes, a, b, c=None):
    """A MatMul or Gemm node as a workload of ours, and the operands in the shapes that it wants."""
    if c is not None and not c.any() and c.size == 1:
        c = None  # How PyTorch's exporter writes a product without a summand.
    if attributes.get("alpha", 1.0) != 1.0 or (attributes.get("beta", 1.0) != 1.0 and c is not None):
        raise Skip("scaled by alpha or beta, which is no step of an epilogue")
    note = None
    if b.ndim == 1:
        note = "the right operand is a vector, run as a matrix of one column"
        b = b[:, None]
    if a.ndim == 1:
        if b.ndim > 2:
            raise Skip("one left operand for a batch of right operands (broadcast)")
        note = "the left operand is a vector, run as a matrix of one row" if note is None else "a product of two vectors"
        a = a[None, :]
    if a.ndim > 2 and b.ndim == 2:
        note = "one right operand for the batch, run as one product with the batch in the rows"
        a = a.reshape(-1, a.shape[-1])
    if a.ndim > 2:
        if a.shape[:-2] != b.shape[:-2]:
            raise Skip("operands broadcast against each other over the batch")
        if a.ndim > 3:
            note = f"the {a.ndim - 2} batch dimensions run as one"
        a, b = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    workload = {"op": "matmul" if a.ndim == 2 else "batch_matmul", "a": list(a.shape), "b": list(b.shape)}
    if attributes.get("transA"):
        workload["trans_a"] = True
    if attributes.get("transB"):
        workload["trans_b"] = True
    tensors = {"a": a, "b": b}
    if c is not None:
        columns = b.shape[-2] if attributes.get("transB") else b.shape[-1]
        rows = a.shape[-1] if attributes.get("transA") else a.shape[-2]
        if c.size == 1 or c.shape in ((columns,), (1, columns)):
            if c.size == 1 and columns != 1:
                note = "the scalar summand is run as a bias of equal elements"
            tensors["bias"] = np.broadcast_to(c.reshape(-1), (columns,))
        elif c.shape == (rows, columns):
            tensors["residual"] = c
        else:
            raise Skip(f"a summand of shape {c.shape}")
    return workload, tensors, "c", note


def number(value):
    """The shortest decimal that reads back as the same f32, in a form that TOML takes."""
    text = str(np.float32(value))
    assert np.float32(float(text)) == np.float32(value), text
    return text if any(c in text for c in ".en") else text + ".0"


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return str(value)


def lines_of(array):
    """The elements, one row of the innermost dimension a line."""
    rows = array.reshape(-1, array.shape[-1] if array.ndim and array.shape[-1] > 1 else max(array.size, 1))
    return "".join("  " + ", ".join(number(v) for v in row) + ",\n" for row in rows)


def case_text(name, function, kernel, source, tensors, note, rtol, atol):
    text = f"# {name} of the ONNX project (onnx {onnx.__version__}, {source}), Apache-2.0; see ../README.md.\n"
    text += f'name = "{name}"\nfunction = "{function}"\nkernel = "{kernel}"\nrtol = {rtol}\natol = {atol}\n'
    if note:
        text += f'note = "{note}"\n'
    for tensor, array in tensors.items():
        text += f'\n[[tensor]]\nname = "{tensor}"\nshape = {toml(list(array.shape))}\ndata = [\n{lines_of(array)}]\n'
    return text


def assign(functions, name, workload, epilogue, shapes):
    """The function and the kernel of a workload, declared now unless an equal one is there.

    A function is told by operator, transposition and epilogue. The `_dyn` form of a function picks the workload by the
    shapes, so two of one function that differ in stride or padding only go to different functions.
    """
    transposed = "".join("t" if workload.get(key) else "n" for key in ("trans_a", "trans_b"))
    padded = ["padded"] if workload.get("count_include_pad") else []
    stem = "_".join(["onnx", workload["op"], *epilogue, *padded] + ([transposed] if "t" in transposed else []))
    for number in range(1, 10):
        function = stem if number == 1 else f"{stem}_{number}"
        members = functions.setdefault(function, {})
        for kernel, (other, _, other_shapes) in members.items():
            if other == workload:
                return function, kernel
            if other_shapes == shapes:
                break
        else:
            kernel = name.removeprefix("test_").lower()
            members[kernel] = (workload, epilogue, shapes)
            return function, kernel
    raise AssertionError(f"{name}: ten workloads of the same shapes")


def spec_text(functions):
    """The spec that declares the functions and their workloads."""
    text = "# Written by extract.py: the shapes of the ONNX tests in cases/.\nschema = 1\n"
    for function, members in sorted(functions.items()):
        workload, epilogue, _ = next(iter(members.values()))
        text += f'\n[[kernel]]\nname = "{function}"\nop = "{workload["op"]}"\n'
        text += 'layout = "NCHW"\n' if "2d" in workload["op"] else ""
        text += 'dtype = "f32"\nmath = "strict"\n'
        text += "".join(f"{key} = true\n" for key in FLAGS if workload.get(key))
        text += f"epilogue = {toml(epilogue)}\n" if epilogue else ""
        for kernel, (workload, _, _) in members.items():
            text += f'\n[[kernel.workload]]\nname = "{kernel}"\n'
            text += "".join(f"{k} = {toml(v)}\n" for k, v in workload.items() if k not in ("op", *FLAGS))
    return text


def calls_text(functions):
    """What calls the functions by their names."""
    text = "// Written by extract.py: the functions of kernels.toml by their names.\n"
    text += "match (case.function.as_str(), views.as_slice()) {\n"
    for function, members in sorted(functions.items()):
        names = [f"v{i}" for i in range(len(next(iter(members.values()))[2]) - 1)]
        text += f'    ("{function}", &[{", ".join(names)}]) => kernels::{function}_dyn(dev, {", ".join(names)}, y),\n'
    text += '    (function, views) => panic!("{}: no function {function} of {} inputs", case.name, views.len()),\n}\n'
    return text


def main():
    for old in (HERE / "cases").glob("*.toml"):
        old.unlink()
    count, functions, skipped = 0, {}, []
    for name, source, graph, inputs, outputs, rtol, atol in sorted(published(), key=lambda t: t[0]):
        try:
            op, attributes, values = operands(graph, inputs)
            if any(v.dtype != np.float32 for v in values):
                raise Skip("operands of type " + ", ".join(sorted({str(v.dtype) for v in values})))
            if op in POOLS and len(graph.output) > 1:
                raise Skip("the places of the largest elements as well")
            make = {"Conv": conv}.get(op, matmul)
            if op in POOLS | ROWS:
                make = lambda attributes, *values: (pool if op in POOLS else row_wise)(op, attributes, *values)
            workload, tensors, output, note = make(attributes, *values)
            elements = sum(t.size for t in tensors.values()) + outputs[0].size
            if elements > MAX_ELEMENTS:
                raise Skip(f"{elements} elements are too many for a repository")
        except Skip as reason:
            # Functions such as attention expand to dozens of nodes; they are tests of those functions.
            if len(graph.node) < 5:
                skipped.append((name, source, str(reason)))
            continue
        if op in ROWS:
            expected = outputs[0].reshape(tensors["x"].shape)
        elif output == "y":
            expected = outputs[0] if outputs[0].ndim == 4 else outputs[0][:, :, None, :]
        else:
            a, b = tensors["a"], tensors["b"]
            rows = a.shape[-1] if workload.get("trans_a") else a.shape[-2]
            columns = b.shape[-2] if workload.get("trans_b") else b.shape[-1]
            expected = outputs[0].reshape(*a.shape[:-2], rows, columns)
        tensors[output] = expected
        steps = {"bias": "bias", "residual": "residual_add", "scale": "scale"}
        epilogue = [steps[t] for t in tensors if t in steps]
        shapes = [list(t.shape) for t in tensors.values()]
        function, kernel = assign(functions, name, workload, epilogue, shapes)
        text = case_text(name, function, kernel, source, tensors, note, rtol, atol)
        (HERE / "cases" / f"{name}.toml").write_text(text)
        count += 1
    (HERE / "kernels.toml").write_text(spec_text(functions))
    (HERE / "tests" / "calls.rs.in").write_text(calls_text(functions))
    text = "# Written by extract.py: published tests with a node of our operators that are not run, and why.\n"
    for name, source, reason in skipped:
        text += f'\n[[test]]\nname = "{name}"\nsource = "{source}"\nreason = "{reason}"\n'
    (HERE / "skipped.toml").write_text(text)
    print(f"{count} cases of {sum(len(m) for m in functions.values())} kernels written, {len(skipped)} tests skipped")


if __name__ == "__main__":
    main()
