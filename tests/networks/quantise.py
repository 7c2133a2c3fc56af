#!/usr/bin/env python3
"""Writes quantised forms of networks as ONNX files: by ONNX Runtime's tools, and as PyTorch exports training with rounded numbers.

    python3 -m venv /tmp/export && /tmp/export/bin/pip install numpy torch==2.15.0 torchvision==0.29.2 onnx==1.23.2 onnxruntime
    /tmp/export/bin/python tests/networks/quantise.py /tmp/quantised model.onnx ...     # each in six ways, batch 1
    /tmp/export/bin/python tests/networks/quantise.py /tmp/quantised trained resnet18   # a network of torchvision, in six others
    for f in /tmp/quantised/*.onnx; do kernel-gen extract $f > /dev/null; done          # which compile
    /tmp/networks/bin/python tests/networks/compare.py /tmp/quantised/resnet18_*.onnx   # results and times beside ONNX Runtime's

Scales are those of random inputs. A number that lies half way between two integers becomes either, and networks with random weights
make much of that: results that differ by some percent say nothing, and those of ONNX's reference decide. ONNX Runtime's own integers
are wrong on processors without VNNI, where sums of pairs saturate.
"""

import logging
import pathlib
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
U8, I8 = QuantType.QUInt8, QuantType.QInt8
SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}
# Pairs in front of weights that stay numbers, and in front of all factors of products.
WEIGHTS = {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 1}, "DedicatedQDQPair": True, "AddQDQPairToWeight": True}
# The name of a way: the form, the types of activations and weights, whether each channel has a scale, what else is said.
WAYS = {
    "qdq": (QuantFormat.QDQ, U8, I8, True, {}),
    "qdq_i8": (QuantFormat.QDQ, I8, I8, False, SYMMETRIC),
    "qdq_weights": (QuantFormat.QDQ, U8, I8, True, WEIGHTS),
    "operators_u8": (QuantFormat.QOperator, U8, U8, False, {}),
    "operators": (QuantFormat.QOperator, U8, I8, True, {}),
}
# How training rounds activations: the least and the most integer.
TRAINED = {"u8": (0, 255), "u7": (0, 127), "i8": (-128, 127)}


class Inputs(CalibrationDataReader):
    """Random inputs of a model."""

    def __init__(self, path, count=3):
        random = np.random.default_rng(1)

        def one(port):
            shape, kind = [n if isinstance(n, int) else 1 for n in port.shape], TYPES[port.type]
            if kind == np.float32:
                return random.standard_normal(shape).astype(kind)
            return np.ones(shape, kind) if kind == np.bool_ else random.integers(1, 90, shape).astype(kind)

        ports = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs()
        self.given = iter([{port.name: one(port) for port in ports} for _ in range(count)])

    def get_next(self):
        return next(self.given, None)


def of_one_image(path):
    """Puts 1 in the place of extents that a file leaves open."""
    model = onnx.load(str(path))
    for port in model.graph.input:
        for dim in port.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.dim_value = 1
    onnx.save(model, str(path))


def by_tools(folder, path):
    """A model in the ways of ONNX Runtime's tools."""
    plain = folder / f"{path.stem}.plain"
    quant_pre_process(str(path), str(plain), skip_symbolic_shape=True)
    for way, (form, activations, weights, each, options) in WAYS.items():
        made = folder / f"{path.stem}_{way}.onnx"
        quantize_static(str(plain), str(made), Inputs(plain), quant_format=form, activation_type=activations, weight_type=weights,
                        per_channel=each, extra_options=options)
        yield made
    made = folder / f"{path.stem}_dynamic.onnx"
    quantize_dynamic(str(plain), str(made), weight_type=I8, per_channel=True)
    yield made
    plain.unlink()


def trained(folder, name):
    """A network of torchvision whose layers round their inputs and weights, as training leaves it."""
    import torch
    import torchvision
    from torch import nn
    from torch.nn import functional
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    class Rounded(nn.Module):
        """A layer with rounded inputs and weights; the first run finds the scale of its inputs."""

        def __init__(self, layer, least, most, each):
            super().__init__()
            self.layer, self.least, self.most, self.each, self.seen = layer, least, most, each, False
            weight = layer.weight.detach().abs()
            scale = weight.flatten(1).amax(1) if each else weight.max()
            self.register_buffer("of_weight", scale / 127 + 1e-9)
            self.register_buffer("zero_of_weight", torch.zeros_like(self.of_weight, dtype=torch.int32))
            self.register_buffer("scale", torch.tensor(1.0))
            self.register_buffer("zero", torch.tensor(0, dtype=torch.int32))

        def forward(self, x):
            if not self.seen:
                low, high = min(x.min().item(), 0), max(x.max().item(), 1e-3)
                symmetric = self.least < 0
                self.scale.fill_(max(-low, high) / self.most if symmetric else (high - low) / (self.most - self.least))
                self.zero.fill_(0 if symmetric else round(-low / self.scale.item()))
                self.seen = True
            x = torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, self.least, self.most)
            weight, scale, zero = self.layer.weight, self.of_weight, self.zero_of_weight
            if self.each:
                weight = torch.fake_quantize_per_channel_affine(weight, scale, zero, 0, -128, 127)
            else:
                weight = torch.fake_quantize_per_tensor_affine(weight, scale, zero, -128, 127)
            of = self.layer
            if isinstance(of, nn.Linear):
                return functional.linear(x, weight, of.bias)
            return functional.conv2d(x, weight, of.bias, of.stride, of.padding, of.dilation, of.groups)

    def prepare(module, *way):
        children = list(module.named_children())
        for (at, conv), (behind, norm) in zip(children, children[1:]):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, at, fuse_conv_bn_eval(conv, norm))
                setattr(module, behind, nn.Identity())
        for at, child in list(module.named_children()):
            if isinstance(child, (nn.Conv2d, nn.Linear)):
                setattr(module, at, Rounded(child, *way))
            else:
                prepare(child, *way)

    for kind, (least, most) in TRAINED.items():
        for each in (True, False):
            torch.manual_seed(0)
            network, x = getattr(torchvision.models, name)().eval(), torch.randn(1, 3, 224, 224)
            prepare(network, least, most, each)
            made = folder / f"{name}_trained_{kind}{'_each' if each else ''}.onnx"
            with torch.no_grad():
                network(x)
                torch.onnx.export(network, x, str(made), opset_version=17, dynamo=False, input_names=["x"], output_names=["y"])
            yield made


def main():
    folder, *words = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if words[0] == "trained":
        made = (path for name in words[1:] for path in trained(folder, name))
    else:
        made = (path for word in words for path in by_tools(folder, pathlib.Path(word)))
    for path in made:
        of_one_image(path)
        print(path, flush=True)


if __name__ == "__main__":
    main()
