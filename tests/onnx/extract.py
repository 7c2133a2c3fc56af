#!/usr/bin/env python3
"""Writes the ONNX project's published tests of our operators as small text files for tests/onnx.

    python3 -m venv /tmp/onnx-venv && /tmp/onnx-venv/bin/pip install numpy onnx==1.23.2
    /tmp/onnx-venv/bin/python tests/onnx/extract.py

The wheel carries them in two forms: the *node* tests are Python functions that hand out model, inputs and outputs, the
*pytorch-converted* and *pytorch-operator* tests are files. Each test whose model is one node that a kernel of ours
computes becomes `cases/<test>.toml`, with the tensors as published; a Split becomes one for each of its outputs.
`kernels.toml` declares exactly these shapes. Everything else with such a node goes to `skipped.toml` with the reason.

Nothing here computes an expected output: they are the ones that ONNX publishes.
"""

import glob
import itertools
import pathlib
import warnings

import numpy as np
import onnx
from onnx import helper, numpy_helper

warnings.simplefilter("ignore")  # Tests of other operators divide by zero on purpose while they are collected.
from onnx.backend.test import loader  # noqa: E402

HERE = pathlib.Path(__file__).parent
DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data"
# What a `[[kernel]]` says; all else of a workload stands in its own table.
FLAGS = ("ceil_mode", "trans_a", "trans_b", "causal", "rows_first", "count_include_pad", "half_pixel", "align_corners", "select_last_index")
KERNEL = ("op", "epilogue", *FLAGS)
LAYOUTS = {
    *("conv2d", "depthwise_conv2d", "max_pool2d", "avg_pool2d"),
    *("resize_nearest", "resize_bilinear", "resize_bicubic"),
}
# Outputs behind the first that no kernel of ours gives.
MORE_OUTPUTS = {
    "MaxPool": "the places of the largest elements",
    "Dropout": "the mask of what is kept",
    "BatchNormalization": "the running mean and variance of training",
}
# Files with more elements than this are not worth their place in a repository.
MAX_ELEMENTS = 20_000
SOURCES = {
    "node": "backend/test/case/node",
    "simple": "backend/test/case/model",
    "pytorch-converted": "backend/test/data/pytorch-converted",
    "pytorch-operator": "backend/test/data/pytorch-operator",
}


class Skip(Exception):
    """The test cannot become a case; the text says why."""


def published():
    """Yields (name, source, graph, inputs, outputs, rtol, atol) of every test that has one of the operators."""
    for kind, source in SOURCES.items():
        for test in loader.load_model_tests(kind=kind):
            model = onnx.load(f"{test.model_dir}/model.onnx") if test.model is None else test.model
            if not MAKERS.keys() & {node.op_type for node in model.graph.node}:
                continue
            read = lambda what: [
                numpy_helper.to_array(onnx.load_tensor(path))
                for path in sorted(glob.glob(f"{test.model_dir}/test_data_set_0/{what}_*.pb"))
            ]
            inputs, outputs = test.data_sets[0] if test.data_sets else (read("input"), read("output"))
            yield test.name, source, model.graph, inputs, outputs, test.rtol, test.atol


def operands(graph, inputs):
    """The single node, its attributes and its operands in order; constants of the graph take their places.

    An optional operand that is left out is None.
    """
    values = {"": None} | {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    values |= dict(zip([i.name for i in graph.input if i.name not in values], inputs))
    constants = [node for node in graph.node if node.op_type == "Constant" and node.attribute[0].name == "value"]
    values |= {node.output[0]: numpy_helper.to_array(node.attribute[0].t) for node in constants}
    nodes = [node for node in graph.node if node not in constants]
    transposed = None
    if [node.op_type for node in nodes] == ["Transpose", "MatMul"] and nodes[1].input[1] == nodes[0].output[0]:
        values[nodes[0].output[0]] = values[nodes[0].input[0]]
        transposed, nodes = nodes[0], nodes[1:]
    if len(nodes) != 1:
        raise Skip(f"{len(nodes)} nodes, of which this operator is a part")
    attributes = {a.name: helper.get_attribute_value(a) for a in nodes[0].attribute}
    if transposed:
        attributes["transB"] = 1
    return nodes[0].op_type, attributes, [values[name] for name in nodes[0].input]


def parts(name, op, attributes, values, outputs):
    """The node as (name, operator, attributes, operands, output); a Split as one Slice for each of its outputs."""
    if len(outputs) > 1 and op in MORE_OUTPUTS:
        raise Skip(MORE_OUTPUTS[op] + " as well")
    if op != "Split":
        return [(name, op, attributes, values, outputs[0])]
    axis = attributes.get("axis", 0)
    ends = list(itertools.accumulate(output.shape[axis] for output in outputs))
    between = lambda first, end: [values[0], np.array([first]), np.array([end]), np.array([axis])]
    return [
        (f"{name}_{i}", "Slice", {}, between(first, end), output)
        for i, (first, end, output) in enumerate(zip([0, *ends], ends, outputs))
    ]


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


def conv(op, attributes, expected, x, w, bias=None):
    """A Conv node."""
    rank = x.ndim - 2
    stride, dilation, pads = window(attributes, x, list(w.shape[2:]))
    note = None
    if rank == 1:
        note = "a one-dimensional convolution, run as one of height 1"
        x, w, expected = x[:, :, None, :], w[:, :, None, :], expected[:, :, None, :]
        stride, dilation, pads = [1] + stride, [1] + dilation, [0, pads[0], 0, pads[1]]
    groups = attributes.get("group", 1)
    depthwise = groups == x.shape[1] > 1
    workload = {
        "op": "conv3d" if rank == 3 else "depthwise_conv2d" if depthwise else "conv2d",
        "input": list(x.shape),
        "weight": list(w.shape),
        "stride": stride,
        "padding": pads,
        "dilation": dilation,
        "groups": groups,
    }
    return with_bias(workload, x, w, bias, expected), note


def with_bias(workload, x, w, bias, expected):
    """The workload and the tensors of a convolution that may have a bias."""
    tensors = {"x": x, "w": w}
    if bias is not None:
        workload["epilogue"] = ["bias"]
        tensors["bias"] = bias
    return workload, tensors | {"y": expected}


def conv_transpose(op, attributes, expected, x, w, bias=None):
    """A ConvTranspose node, its padding as explicit numbers."""
    rank, note = x.ndim - 2, None
    get = lambda name, default: list(attributes.get(name, default))
    stride, dilation, more = get("strides", [1] * rank), get("dilations", [1] * rank), get("output_padding", [0] * rank)
    pads = get("pads", [0] * 2 * rank)
    natural = [
        (size - 1) * s + (k - 1) * d + 1 + m
        for size, k, s, d, m in zip(x.shape[2:], w.shape[2:], stride, dilation, more)
    ]
    how = attributes.get("auto_pad", b"NOTSET").decode()
    if "output_shape" in attributes or how.startswith("SAME"):
        note = "the padding that gives the output's shape, as numbers"
        shape = get("output_shape", [size * s for size, s in zip(x.shape[2:], stride)])
        total = [n - size for n, size in zip(natural, shape)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if how == "SAME_UPPER" else large + small
    size = [n - before - after for n, before, after in zip(natural, pads[:rank], pads[rank:])]
    # A padding below zero behind the output is pixels that it has more.
    more = [m + max(-after, 0) for m, after in zip(more, pads[rank:])]
    pads = pads[:rank] + [max(after, 0) for after in pads[rank:]]
    if min(pads) < 0 or size != list(expected.shape[2:]):
        raise Skip(f"padding of {pads}, which makes {size} pixels of the {list(expected.shape[2:])}")
    # With one dimension these are no lists.
    each = lambda numbers: numbers[0] if rank == 1 else numbers
    workload = {
        "op": f"conv_transpose{rank}d",
        "input": list(x.shape),
        "weight": list(w.shape),
        "stride": each(stride),
        "padding": pads,
        "dilation": each(dilation),
        "output_padding": each(more),
        "groups": attributes.get("group", 1),
    }
    return with_bias(workload, x, w, bias, expected), note


def pool(op, attributes, expected, x):
    """A pooling node."""
    rank = x.ndim - 2
    kernel = list(x.shape[2:] if op.startswith("Global") else attributes["kernel_shape"])
    stride, dilation, pads = window(attributes, x, kernel)
    note = None
    if rank == 1:
        note = "one-dimensional pooling, run as that of a map of height 1"
        x, expected, kernel = x[:, :, None, :], expected[:, :, None, :], [1] + kernel
        stride, dilation, pads = [1] + stride, [1] + dilation, [0, pads[0], 0, pads[1]]
    workload = {
        "op": ("max" if "Max" in op else "avg") + ("_pool3d" if rank == 3 else "_pool2d"),
        "input": list(x.shape),
        "window": kernel,
        "stride": stride,
        "padding": pads,
        "dilation": dilation,
    }
    for flag in ("count_include_pad", "ceil_mode"):
        if attributes.get(flag):
            workload[flag] = True
    return (workload, {"x": x, "y": expected}), note


def digits(attributes):
    """A norm's epsilon as a power of ten."""
    epsilon = attributes.get("epsilon", 1e-5)
    digits = round(-np.log10(epsilon))
    if abs(10.0**-digits - epsilon) > 1e-6 * epsilon:
        raise Skip(f"an epsilon of {epsilon}, which is no power of ten")
    return digits


def row_wise(op, attributes, expected, x, scale=None, shift=None):
    """A softmax or a norm of rows."""
    axis = attributes.get("axis", -1) % x.ndim
    softmax = op in ("Softmax", "LogSoftmax")
    if softmax and axis != x.ndim - 1:
        shape = (int(np.prod(x.shape[:axis])), x.shape[axis], -1)
        x, expected = x.reshape(shape), expected.reshape(shape)
        note = f"the dimensions before {axis} run as one, and so do those behind"
        return of_elements("channel_softmax" if op == "Softmax" else "channel_log_softmax", expected, x, note=note)
    columns = int(np.prod(x.shape[axis:]))
    note = None if x.ndim == 2 and axis == 1 else f"the dimensions from {axis} on are a row, those before are rows"
    x, expected = x.reshape(-1, columns), expected.reshape(-1, columns)
    if softmax:
        workload = {"op": "softmax" if op == "Softmax" else "log_softmax", "input": list(x.shape)}
        return (workload, {"x": x, "y": expected}), note
    workload = {
        "op": "rms_norm" if op == "RMSNormalization" else "layer_norm",
        "input": list(x.shape),
        "epsilon_digits": digits(attributes),
        "epilogue": ["scale"],
    }
    scale = scale.reshape(-1)
    shift = np.zeros_like(scale) if shift is None else shift.reshape(-1)
    return (workload, {"x": x, "scale": scale, "shift": shift, "y": expected}), note


def group_norm(op, attributes, expected, x, scale, shift):
    """A GroupNormalization node, or an InstanceNormalization node: one of groups of one channel."""
    channels = x.shape[1]
    groups = attributes.get("num_groups", channels)
    note = None if x.ndim == 3 else f"the {x.ndim - 2} dimensions of pixels run as one"
    if scale.size != channels:
        note = "the scale of a group as that of each of its channels"
        scale, shift = (np.repeat(values, channels // groups) for values in (scale, shift))
    shape = (x.shape[0], channels, -1)
    x, expected = x.reshape(shape), expected.reshape(shape)
    workload = {
        "op": "group_norm",
        "input": list(x.shape),
        "groups": groups,
        "epsilon_digits": digits(attributes),
        "epilogue": ["scale"],
    }
    return (workload, {"x": x, "scale": scale, "shift": shift, "y": expected}), note


def lrn(op, attributes, expected, x):
    """An LRN node."""
    shape = (x.shape[0], x.shape[1], -1)
    x, expected = x.reshape(shape), expected.reshape(shape)
    usual = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    numbers = {key: float(attributes.get(key, default)) for key, default in usual.items()}
    note = "the dimensions of pixels run as one"
    return of_elements("lrn", expected, x, note=note, size=attributes["size"], **numbers)


def matmul(op, attributes, expected, a, b, c=None):
    """A MatMul or Gemm node."""
    if c is not None and not c.any() and c.size == 1:
        c = None  # How PyTorch's exporter writes a product without a summand.
    if attributes.get("alpha", 1.0) != 1.0 or (attributes.get("beta", 1.0) != 1.0 and c is not None):
        raise Skip("scaled by alpha or beta, which is no step of an epilogue")
    note = None
    if b.ndim == 1:
        note = "the right operand is a vector, run as a matrix of one column"
        b = b[:, None]
    if a.ndim == 1:
        note = "the left operand is a vector, run as a matrix of one row" if note is None else "a product of two vectors"
        a = a[None, :]
    if a.ndim > 2 and b.ndim == 2:
        note = "one right operand for the batch, run as one product with the batch in the rows"
        a = a.reshape(-1, a.shape[-1])
    if a.shape[:-2] != b.shape[:-2]:
        workload = {"op": "broadcast_matmul", "a": list(a.shape), "b": list(b.shape)}
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return (workload, {"a": a, "b": b, "c": expected.reshape(shape)}), note
    if a.ndim > 2:
        if a.ndim > 3:
            note = f"the {a.ndim - 2} batch dimensions run as one"
        a, b = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    workload = {"op": "matmul" if a.ndim == 2 else "batch_matmul", "a": list(a.shape), "b": list(b.shape)}
    workload |= {flag: True for flag, key in (("trans_a", "transA"), ("trans_b", "transB")) if attributes.get(key)}
    rows = a.shape[-1] if attributes.get("transA") else a.shape[-2]
    columns = b.shape[-2] if attributes.get("transB") else b.shape[-1]
    tensors = {"a": a, "b": b}
    if c is not None:
        if c.size == 1 or c.shape in ((columns,), (1, columns)):
            if c.size == 1 and columns != 1:
                note = "the scalar summand is run as a bias of equal elements"
            workload["epilogue"] = ["bias"]
            tensors["bias"] = np.broadcast_to(c.reshape(-1), (columns,))
        elif c.shape == (rows, columns):
            workload["epilogue"] = ["residual_add"]
            tensors["residual"] = c
        else:
            raise Skip(f"a summand of shape {c.shape}")
    return (workload, tensors | {"c": expected.reshape(*a.shape[:-2], rows, columns)}), note


def attention(op, attributes, expected, q, k, v, mask=None, *more):
    """An Attention node; of three dimensions it has all heads of a row side by side."""
    note = None
    if any(value is not None for value in more):
        raise Skip("keys and values of earlier calls, or lengths that are operands")
    if attributes.get("softcap", 0.0) != 0.0:
        raise Skip("scores that a hyperbolic tangent limits")
    if attributes.get("qk_matmul_output_mode", 0) != 0:
        raise Skip("scores as a second output")
    rows_first = q.ndim == 3
    if rows_first:
        heads, kv_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        q, k, v, expected = (
            x.reshape(*x.shape[:2], of, -1) for x, of in [(q, heads), (k, kv_heads), (v, kv_heads), (expected, heads)]
        )
    batch, heads, rows, keys = q.shape[0], q.shape[2 if rows_first else 1], *(x.shape[1 if rows_first else 2] for x in (q, k))
    scale = attributes.get("scale", 1.0 / np.sqrt(q.shape[-1]))
    if not np.isclose(scale, 1.0 / np.sqrt(q.shape[-1]), rtol=1e-6):
        q, note = q * np.float32(scale * np.sqrt(q.shape[-1])), "another scale than one over the root of d is a factor of the queries"
    if {x.dtype for x in (q, k, v)} != {np.dtype(np.float32)}:
        raise Skip(f"operands of {q.dtype}, whose expected output was rounded in between")
    left, right = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if left >= 0 or right >= 0:
        apart = np.arange(keys)[None, :] - np.arange(rows)[:, None]
        seen = ((left < 0) | (apart >= -left)) & ((right < 0) | (apart <= right))
        window = np.where(seen, np.float32(0), np.float32(-np.inf))
        mask = window if mask is None else np.where(mask, window, np.float32(-np.inf)) if mask.dtype == bool else mask + window
        note = "a window of keys is a mask of zeros and minus infinity"
    workload = {"op": "attention", "q": list(q.shape), "k": list(k.shape), "v": list(v.shape)}
    workload |= {"causal": True} if attributes.get("is_causal", 0) else {}
    workload |= {"rows_first": True} if rows_first else {}
    tensors = {"q": q, "k": k, "v": v}
    if mask is not None:
        if mask.dtype == bool:
            mask, note = np.where(mask, np.float32(0), np.float32(-np.inf)), "a mask of booleans is one of zeros and minus infinity"
        scores = (batch, heads, rows, keys)
        if mask.shape[-1] != scores[-1]:
            raise Skip("a mask of fewer keys than there are")
        mask = mask.astype(np.float32)
        if mask.shape[-2:] != scores[-2:] or mask.ndim != 2:
            mask = np.ascontiguousarray(np.broadcast_to(mask, scores))
        workload["mask"] = list(mask.shape)
        tensors["mask"] = mask
    return (workload, tensors | {"y": expected}), note


def of_elements(name, expected, x, epilogue=(), note=None, **keys):
    """A workload with one operand `x`, whose shape and other keys say all."""
    x, expected = np.atleast_1d(x), np.atleast_1d(expected)
    workload = {"op": name, "input": list(x.shape), **keys}
    if epilogue:
        workload["epilogue"] = list(epilogue)
    return (workload, {"x": x, "y": expected}), note


def unary(op, attributes, expected, x):
    """A function of each element that is an operator of ours."""
    if not (attributes.get("detect_positive", 1) and attributes.get("detect_negative", 1)):
        raise Skip("infinities of one sign only")
    return of_elements(UNARY[op], expected, x)


def only(step, **wanted):
    """What reads a step of an epilogue that has no such attributes: each is its default and the value it must have."""

    def read(attributes):
        for key, (default, want) in wanted.items():
            value = attributes.get(key, default)
            if abs(value - want) > 1e-6:
                raise Skip(f"an {key} of {number(value)}, where the step `{step}` has one of {number(want)}")
        return step

    return read


def hard_sigmoid(attributes):
    """The step with the usual numbers is one of its own."""
    alpha, beta = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    usual = abs(alpha - 1 / 6) < 1e-6 and beta == 0.5
    return "hard_sigmoid" if usual else f"hard_sigmoid({number(alpha)}, {number(beta)})"


def numbers(step, **defaults):
    """What reads a step of an epilogue that holds the attributes as numbers."""
    return lambda attributes: f"{step}({', '.join(number(attributes.get(k, v)) for k, v in defaults.items())})"


def activation(op, attributes, expected, x):
    """A function of each element that is a step of an epilogue, here that of a copy."""
    return of_elements("identity", expected, x, [ACTIVATIONS[op](attributes)])


def clip(op, attributes, expected, x, low=None, high=None):
    """A Clip node."""
    most, note = np.finfo(np.float32).max, None
    low, high = (attributes.get(key) if b is None else b.item() for key, b in (("min", low), ("max", high)))
    if low is None or high is None:
        note = "a bound that is left out is the largest finite number"
    low, high = -most if low is None else low, most if high is None else high
    if low > high:
        raise Skip(f"a lower bound of {number(low)} above the upper one of {number(high)}")
    return of_elements("identity", expected, x, [f"clip({number(low)}, {number(high)})"], note)


def copy(op, attributes, expected, x, *_):
    """What changes the shape, or at inference nothing at all."""
    note = f"{op} computes nothing: run as a copy of the elements in their order"
    return of_elements("identity", expected.reshape(-1), x.reshape(-1), note=note)


def dropout(op, attributes, expected, x, ratio=None, training=None):
    """A Dropout node."""
    if training is not None and training:
        raise Skip("dropout in training")
    return copy(op, attributes, expected, x)


def binary(op, attributes, expected, *values):
    """A function of two operands that broadcast."""
    note = None
    if op == "Pow" and values[0].dtype == np.float32 and values[1].dtype.kind in "iu":
        note = "the exponent in the type of the other operand"
        values = values[0], values[1].astype(np.float32)
    if len(values) > 2:
        raise Skip(f"{len(values)} operands")
    if len(values) == 1:
        return of_elements("identity", expected, *values, note=f"{op} of one operand is a copy")
    if op not in BINARY:
        raise Skip(f"{op} of two operands, which is no operator")
    a, b = (np.atleast_1d(value) for value in values)
    if op == "PRelu" and b.ndim == 1 < b.size != a.shape[-1]:
        note = "one slope for each channel, as operator sets before 7 have it"
        b = b.reshape(-1, *[1] * (a.ndim - 2))
    kind = "fmod" if op == "Mod" and attributes.get("fmod") else BINARY[op]
    workload = {"op": kind, "a": list(a.shape), "b": list(b.shape)}
    return (workload, {"a": a, "b": b, "y": np.atleast_1d(expected)}), note


def where(op, attributes, expected, *values):
    """A Where node."""
    condition, a, b = (np.atleast_1d(value) for value in values)
    workload = {"op": "where", "condition": list(condition.shape), "a": list(a.shape), "b": list(b.shape)}
    return (workload, {"condition": condition, "a": a, "b": b, "y": np.atleast_1d(expected)}), None


def gather(op, attributes, expected, x, indices):
    """A Gather node."""
    indices = np.atleast_1d(indices)
    workload = {"op": "gather", "input": list(x.shape), "indices": list(indices.shape)}
    workload["axis"] = attributes.get("axis", 0) % x.ndim
    tensors = {"x": x, "indices": indices.astype(np.float32), "y": np.atleast_1d(expected)}
    return (workload, tensors), "the indices as i32"


def transpose(op, attributes, expected, x):
    """A Transpose node."""
    order = attributes.get("perm", range(x.ndim)[::-1])
    return of_elements("permute", expected, x, order=list(order))


def slices(op, attributes, expected, x, starts, ends, axes=None, steps=None):
    """A Slice node."""
    axes = range(len(starts)) if axes is None else axes.tolist()
    steps = [1] * len(starts) if steps is None else steps.tolist()
    start, size, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, first, end, distance in zip(axes, starts.tolist(), ends.tolist(), steps):
        # Indices below zero count from the end, and those out of bounds are moved to it.
        start[axis], last, step[axis] = slice(first, end, distance).indices(x.shape[axis])
        size[axis] = len(range(start[axis], last, distance))
    if 0 in size:
        raise Skip("a slice without elements")
    return of_elements("slice", expected, x, start=start, size=size, step=step)


def batch_norm(op, attributes, expected, x, scale, shift, mean, variance):
    """A BatchNormalization node at inference: the step `scale` of a copy, with one factor and one summand a channel."""
    if attributes.get("training_mode"):
        raise Skip("a batch normalisation in training")
    factor = scale / np.sqrt(variance + np.float32(attributes.get("epsilon", 1e-5)))
    note = "mean and variance folded into a factor and a summand a channel"
    (workload, tensors), note = of_elements("identity", expected, x, ["scale"], note)
    y = tensors.pop("y")
    return (workload, tensors | {"scale": factor, "shift": shift - mean * factor, "y": y}), note


def tile(op, attributes, expected, x, repeats):
    """A Tile node."""
    return of_elements("tile", expected, x, repeats=repeats.tolist())


def expand(op, attributes, expected, x, shape):
    """An Expand node: dimensions of extent 1 are repeated, also those that the output has more."""
    note = "dimensions of extent 1 before those of the input" if x.ndim < expected.ndim else None
    x = x.reshape([1] * (expected.ndim - x.ndim) + list(x.shape))
    repeats = [new // old for new, old in zip(expected.shape, x.shape)]
    return of_elements("tile", expected, x, note=note, repeats=repeats)


def pad(op, attributes, expected, x, pads=None, value=None, axes=None):
    """A Pad node."""
    mode = attributes.get("mode", b"constant").decode()
    pads = list(attributes["pads"] if pads is None else pads.tolist())
    if mode not in PADS:
        raise Skip(f"padding of the mode {mode}")
    outside = attributes.get("value", 0.0) if value is None else value.item()
    if min(pads) < 0:
        raise Skip("a negative padding")
    axes = range(x.ndim) if axes is None else axes.tolist()
    before, after = [0] * x.ndim, [0] * x.ndim
    for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :]):
        before[axis], after[axis] = first, last
    if mode == "constant" and outside != 0.0:
        return of_elements("pad_constant", expected, x, before=before, after=after, value=float(outside))
    return of_elements(PADS[mode], expected, x, before=before, after=after)


def blocks(op, attributes, expected, x):
    """A DepthToSpace or SpaceToDepth node."""
    name = BLOCKS[op, attributes.get("mode", b"DCR").decode()]
    return of_elements(name, expected, x, block=attributes["blocksize"])


def concat(op, attributes, expected, *values):
    """A Concat node."""
    axis = attributes["axis"] % values[0].ndim
    others = [value.shape[axis] for value in values[1:]]
    workload = {"op": "concat", "input": list(values[0].shape), "axis": axis, "others": others}
    return (workload, {f"x{i}": value for i, value in enumerate(values)} | {"y": expected}), None


def coordinates(mode, size, outputs, scale):
    """Where ONNX places the pixels of the output among those of the input, along one dimension."""
    i = np.arange(outputs)
    if mode == "align_corners":
        return i * (size - 1) / (scale * size - 1) if scale * size != 1 else np.zeros(outputs)
    if mode == "asymmetric":
        return i / scale
    if mode == "pytorch_half_pixel" and outputs == 1:
        return np.zeros(1)
    if mode not in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"):
        raise Skip(f"the coordinate transformation {mode}")
    moved = size / 2 * (1 - outputs / (scale * size)) if mode == "half_pixel_symmetric" else 0
    return moved + (i + 0.5) / scale - 0.5


def resize(op, attributes, expected, x, roi=None, scales=None, sizes=None):
    """A Resize node: the pixels that it reads are compared with those that each of our ways to resize does."""
    mode = attributes.get("mode", b"nearest").decode()
    if mode not in ("nearest", "linear", "cubic"):
        raise Skip(f"a resize of the mode {mode}")
    if attributes.get("exclude_outside"):
        raise Skip("a cubic resize whose weights exclude what is outside")
    if attributes.get("antialias"):
        raise Skip("a resize with antialias")
    if x.ndim != 4 or x.shape[:2] != expected.shape[:2]:
        raise Skip("a resize of more than height and width of four dimensions")
    axes = list(attributes.get("axes", range(4)))
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch").decode()
    if scales is None:
        scales = [size / x.shape[axis] for size, axis in zip(sizes.tolist(), axes)]
        scales = {"stretch": scales, "not_larger": [min(scales)] * 4, "not_smaller": [max(scales)] * 4}[policy]
    way = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    nearest = attributes.get("nearest_mode", b"round_prefer_floor").decode()
    flag = "half_pixel" if mode == "nearest" else "align_corners"
    fits = {False, True}
    for axis in (2, 3):
        size, outputs = x.shape[axis], expected.shape[axis]
        inside = lambda places: np.clip(places, 0, size - 1)
        theirs = coordinates(way, size, outputs, float(scales[axes.index(axis)]))
        i = np.arange(outputs)
        if mode == "nearest":
            theirs = ROUND[nearest](theirs)
            ours = {False: i * size // outputs, True: (2 * i + 1) * size // (2 * outputs)}
        else:
            half_pixel = (i + 0.5) * size / outputs - 0.5
            # A cubic pixel beside the edge depends on how far beside.
            inside = (lambda places: places) if mode == "cubic" else inside
            ours = {False: half_pixel, True: i * (size - 1) / max(outputs - 1, 1)}
        fits &= {value for value, places in ours.items() if np.allclose(inside(theirs), inside(places), 0, 1e-6)}
    if not fits:
        rounded = f" rounded by {nearest}" if mode == "nearest" else ""
        raise Skip(f"a {mode} resize whose coordinates ({way}{rounded}) are none of ours at these sizes and scales")
    keys = {"size": list(expected.shape[2:])} | ({} if False in fits else {flag: True})
    if mode == "cubic":
        keys["cubic_coeff_a"] = float(attributes.get("cubic_coeff_a", -0.75))
    name = {"nearest": "resize_nearest", "linear": "resize_bilinear", "cubic": "resize_bicubic"}[mode]
    return of_elements(name, expected, x, **keys)


def upsample(op, attributes, expected, x, scales):
    """An Upsample node: the Resize that replaced it, with the coordinates that it had."""
    attributes = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"} | attributes
    return resize(op, attributes, expected, x, scales=scales)


def reduce(op, attributes, expected, x, axes=None):
    """A reduction, the dimensions of extent 1 that it keeps left out."""
    axes = list(attributes.get("axes", []) if axes is None else axes.tolist())
    if not axes and attributes.get("noop_with_empty_axes"):
        raise Skip("no axes, along which nothing is reduced")
    axes = [axis % x.ndim for axis in axes] or list(range(x.ndim))
    kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
    note = "dimensions of extent 1 left out of the output" if attributes.get("keepdims", 1) else None
    return of_elements(REDUCTIONS[op], expected.reshape(kept or [1]), x, note=note, axes=axes)


def extreme(op, attributes, expected, x):
    """An ArgMax or ArgMin node; the harness compares the indices as numbers."""
    axis = attributes.get("axis", 0) % x.ndim
    note = "dimensions of extent 1 left out of the output" if attributes.get("keepdims", 1) else None
    kept = [size for i, size in enumerate(x.shape) if i != axis]
    flags = {"select_last_index": True} if attributes.get("select_last_index") else {}
    y = expected.reshape(kept or [1]).astype(np.float32)
    return of_elements("arg_max" if op == "ArgMax" else "arg_min", y, x, note=note, axis=axis, **flags)


UNARY = {
    "Identity": "identity",
    "Abs": "abs",
    "Neg": "negate",
    "Sign": "sign",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Reciprocal": "reciprocal",
    "Sqrt": "sqrt",
    "Exp": "exp",
    "Log": "log",
    "Sin": "sin",
    "Cos": "cos",
    "Erf": "erf",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Mish": "mish",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Not": "logical_not",
    "IsNaN": "is_nan",
    "IsInf": "is_inf",
}
ACTIVATIONS = {
    "Relu": only("relu"),
    "Sigmoid": only("sigmoid"),
    "Tanh": only("tanh"),
    "HardSwish": only("hard_swish"),
    "HardSigmoid": hard_sigmoid,
    "Swish": only("silu", alpha=(1.0, 1.0)),
    "Celu": numbers("celu", alpha=1.0),
    "Elu": numbers("elu", alpha=1.0),
    "LeakyRelu": numbers("leaky_relu", alpha=0.01),
    "Gelu": lambda attributes: "gelu_tanh" if attributes.get("approximate") == b"tanh" else "gelu",
    "Selu": numbers("selu", alpha=1.6732632, gamma=1.050701),
    "ThresholdedRelu": numbers("thresholded_relu", alpha=1.0),
    "Shrink": numbers("shrink", lambd=0.5, bias=0.0),
}
BINARY = {
    "Add": "add",
    "Sum": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Min": "minimum",
    "Max": "maximum",
    "PRelu": "prelu",
    "Pow": "pow",
    "Mod": "mod",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
}
PADS = {"constant": "pad", "edge": "pad_edge", "reflect": "pad_reflect"}
BLOCKS = {
    ("DepthToSpace", "DCR"): "depth_to_space",
    ("DepthToSpace", "CRD"): "pixel_shuffle",
    ("SpaceToDepth", "DCR"): "space_to_depth",
    ("SpaceToDepth", "CRD"): "pixel_unshuffle",
}
ROUND = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
REDUCTIONS = {
    "ReduceSum": "reduce_sum",
    "ReduceMean": "reduce_mean",
    "ReduceProd": "reduce_prod",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
    "ReduceL1": "reduce_l1",
    "ReduceL2": "reduce_l2",
    "ReduceSumSquare": "reduce_sum_square",
    "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp",
}
# What makes a node a workload of ours: of the operator, attributes, published output and operands it makes
# ((workload, tensors), note), the tensors in the shapes that the kernel wants and in the order of its call.
MAKERS = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    **dict.fromkeys(["MatMul", "Gemm"], matmul),
    **dict.fromkeys(["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"], pool),
    **dict.fromkeys(["Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"], row_wise),
    "Attention": attention,
    **dict.fromkeys(["GroupNormalization", "InstanceNormalization"], group_norm),
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(ACTIVATIONS, activation),
    "Clip": clip,
    **dict.fromkeys(["Flatten", "Reshape", "Squeeze", "Unsqueeze"], copy),
    "Dropout": dropout,
    **dict.fromkeys([*BINARY, "Mean"], binary),
    "Where": where,
    "Transpose": transpose,
    **dict.fromkeys(["Slice", "Split"], slices),
    "BatchNormalization": batch_norm,
    "Tile": tile,
    "Expand": expand,
    "Pad": pad,
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], blocks),
    "Concat": concat,
    "Gather": gather,
    "Resize": resize,
    "Upsample": upsample,
    **dict.fromkeys(REDUCTIONS, reduce),
    **dict.fromkeys(["ArgMax", "ArgMin"], extreme),
    "LRN": lrn,
}


def made(op, attributes, values, expected):
    """The workload, tensors and note of a node, if all of it can be run."""
    if any(isinstance(value, list) for value in (*values, expected)):
        raise Skip("operands that are no tensors")
    # A mask of attention hides keys, which makes minus infinity of it.
    is_truth = lambda value: op != "Attention" and value is not None and value.dtype == bool
    truths = any(is_truth(value) for value in (*values, expected))
    expected, *values = (v.astype(np.float32) if is_truth(v) else v for v in (expected, *values))
    (workload, tensors), note = MAKERS[op](op, attributes, expected, *values)
    if truths:
        note = "truth values as 1 and 0" + ("" if note is None else "; " + note)
    others = {str(t.dtype) for t in tensors.values()} - {"float32"}
    if others:
        raise Skip("operands of type " + ", ".join(sorted(others)))
    if np.isnan(expected).any():
        raise Skip("NaN in the published output, which tests take for an element that was left out")
    if any(t.size == 0 for t in tensors.values()):
        raise Skip("a tensor without elements")
    elements = sum(t.size for t in tensors.values())
    if elements > MAX_ELEMENTS:
        raise Skip(f"{elements} elements are too many for a repository")
    return workload, tensors, note


def number(value):
    """The shortest decimal that reads back as the same f32, in a form that TOML takes."""
    text = str(np.float32(value))
    assert np.isnan(value) or np.float32(float(text)) == np.float32(value), text
    return text if any(c in text for c in ".en") else text + ".0"


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return number(value) if isinstance(value, float) else str(value)


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


def free(name, taken):
    """The name, or the name with a number where another has it but for its case."""
    names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2)))
    found = next(name for name in names if name.lower() not in taken)
    taken.add(found.lower())
    return found


def identifier(step):
    """A step of an epilogue as a part of a name: `clip(-1.0, 6.0)` is `clip_m1p0_6p0`."""
    return step.translate(str.maketrans({"(": "_", ",": "_", "-": "m", ".": "p", ")": None, " ": None, "+": None}))


def assign(functions, kernels, name, workload, shapes):
    """The function and the kernel of a workload, declared now unless an equal one is there.

    A function is told by what its `[[kernel]]` says and by the number of its operands. The `_dyn` form of a function
    picks the workload by the shapes, so two of one function that differ in stride or padding only go to different ones.
    """
    steps = [identifier(step) for step in workload.get("epilogue", [])]
    stem = "_".join(["onnx", workload["op"], *steps, *(flag for flag in FLAGS if workload.get(flag))])
    for number in itertools.count(1):
        function = stem if number == 1 else f"{stem}_{number}"
        members = functions.setdefault(function, {})
        for kernel, (other, other_shapes) in members.items():
            if other == workload:
                return function, kernel
            if other_shapes == shapes or len(other_shapes) != len(shapes):
                break
        else:
            kernel = free(name.removeprefix("test_").lower(), kernels)
            members[kernel] = (workload, shapes)
            return function, kernel


def spec_text(functions):
    """The spec that declares the functions and their workloads."""
    text = "# Written by extract.py: the shapes of the ONNX tests in cases/.\nschema = 1\n"
    # One level beside the baseline: what levels differ in is tested with the templates.
    text += '\n[targets]\ncpu = ["x86-64-v3"]\n'
    for function, members in sorted(functions.items()):
        workload, _ = next(iter(members.values()))
        text += f'\n[[kernel]]\nname = "{function}"\nop = "{workload["op"]}"\n'
        text += 'layout = "NCHW"\n' if workload["op"] in LAYOUTS else ""
        text += 'dtype = "f32"\nmath = "strict"\n'
        text += "".join(f"{key} = {toml(workload[key])}\n" for key in (*FLAGS, "epilogue") if key in workload)
        for kernel, (workload, _) in members.items():
            text += f'\n[[kernel.workload]]\nname = "{kernel}"\n'
            text += "".join(f"{k} = {toml(v)}\n" for k, v in workload.items() if k not in KERNEL)
    return text


def calls_text(functions):
    """What calls the functions by their names."""
    text = "// Written by extract.py: the functions of kernels.toml by their names.\n"
    text += "match (case.function.as_str(), views.as_slice()) {\n"
    for function, members in sorted(functions.items()):
        names = [f"v{i}" for i in range(len(next(iter(members.values()))[1]) - 1)]
        call = lambda y: f"kernels::{function}_dyn(dev, {', '.join(names)}, {y})"
        if "_gather" in function:
            call = lambda y: f"integers(v1, |v1| kernels::{function}_dyn(dev, v0, v1, {y}))"
        call = f"indices(y, |y| {call('y')})" if "_arg_" in function else call("y")
        text += f'    ("{function}", &[{", ".join(names)}]) => {call},\n'
    text += '    (function, views) => panic!("{}: no function {function} of {} inputs", case.name, views.len()),\n}\n'
    return text


def main():
    for old in (HERE / "cases").glob("*.toml"):
        old.unlink()
    # Names that differ in case only are the same to some file systems, and names of kernels have no case.
    functions, kernels, files, skipped = {}, set(), set(), []
    for name, source, graph, inputs, outputs, rtol, atol in sorted(published(), key=lambda t: t[0]):
        try:
            op, attributes, values = operands(graph, inputs)
            cases = [(part, made(*rest)) for part, *rest in parts(name, op, attributes, values, outputs)]
        except Skip as reason:
            # Functions such as attention expand to dozens of nodes; they are tests of those functions.
            if len(graph.node) < 5:
                skipped.append((name, source, str(reason)))
            continue
        for part, (workload, tensors, note) in cases:
            shapes = [list(t.shape) for t in tensors.values()]
            function, kernel = assign(functions, kernels, part, workload, shapes)
            text = case_text(part, function, kernel, source, tensors, note, rtol, atol)
            (HERE / "cases" / f"{free(part, files)}.toml").write_text(text)
    (HERE / "kernels.toml").write_text(spec_text(functions))
    (HERE / "tests" / "calls.rs.in").write_text(calls_text(functions))
    text = "# Written by extract.py: published tests with a node of our operators that are not run, and why.\n"
    for name, source, reason in skipped:
        text += f'\n[[test]]\nname = "{name}"\nsource = "{source}"\nreason = "{reason}"\n'
    (HERE / "skipped.toml").write_text(text)
    print(f"{len(files)} cases of {len(kernels)} kernels written, {len(skipped)} tests skipped")


if __name__ == "__main__":
    main()
