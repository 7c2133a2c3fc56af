#!/usr/bin/env python3
"""Writes networks that people know as ONNX files, with random weights, for compare.py to build and check.

    python3 -m venv /tmp/export && /tmp/export/bin/pip install numpy torch==2.15.0 torchvision==0.29.2 onnx==1.23.2 onnxruntime
    /tmp/export/bin/python tests/networks/export.py /tmp/models                  # all of them, 1.7 GB
    /tmp/export/bin/python tests/networks/export.py /tmp/models resnet18 unet    # only these

Each model becomes `FOLDER/<name>.onnx`, of opset 17, with the input `x`, whose first axis is the dynamic `batch`. PyTorch's
older exporter, the one that traces, writes it, as it has written most of the files that people have. The weights come from a
fixed seed and are no trained ones: only the arithmetic counts. They are chosen so that numbers neither die out nor explode
on the way and that the output depends on the input. Each file then runs in ONNX Runtime, on a batch other than the one that
was traced, and has to give what PyTorch gives.

The three `ppocr_*` models are PP-OCRv4's trained ones, as the wheel of rapidocr-onnxruntime carries them: pip downloads it and
they are copied out unchanged.

A row per model tells the size of the file, the opset, the nodes, the inputs, the standard deviation of the output, how much two
random inputs differ in it (relative to that deviation), and the largest difference between ONNX Runtime and PyTorch
(relative to the largest number of the output). The next line counts the operators. It ends with 1 if a model failed.
"""

import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile
import traceback
import warnings
import zipfile

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision
from torch import nn

OPSET = 17
SEED = 20
# ONNX Runtime and PyTorch sum in different orders.
TOLERANCE = 1e-4

# The classifiers of torchvision with the height and width of their images.
CLASSIFIERS = {
    "resnet18": 224,
    "resnet50": 224,
    "resnext50_32x4d": 224,
    "vgg16": 224,
    "inception_v3": 299,
    "densenet121": 224,
    "squeezenet1_1": 224,
    "shufflenet_v2_x1_0": 224,
    "mobilenet_v2": 224,
    "mobilenet_v3_large": 224,
    "efficientnet_b0": 224,
    "efficientnet_v2_s": 224,
    "regnet_y_800mf": 224,
    "convnext_tiny": 224,
    "vit_b_16": 224,
    "swin_t": 224,
}

OCR_WHEEL = "rapidocr-onnxruntime==1.4.4"
# The file in the wheel and a shape that its input takes: nearly all of its axes are dynamic.
OCR = {
    "ppocr_det": ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320)),
    "ppocr_rec": ("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
    "ppocr_cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
}


class UNet(nn.Module):
    """Segmentation: four levels down, four up, each with the features of the same size from the way down."""

    def __init__(self, width=16, levels=4, outputs=2):
        super().__init__()

        def twice(inputs, outputs):
            layers = []
            for i in (inputs, outputs):
                layers += [nn.Conv2d(i, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
            return nn.Sequential(*layers)

        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(twice(i, o) for i, o in zip([3, *widths], widths[:-1]))
        self.pool = nn.MaxPool2d(2)
        self.middle = twice(widths[-2], widths[-1])
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, outputs, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat([skips.pop(), grow(x)], dim=1))
        return self.head(x)


class ConvSiLU(nn.Sequential):
    """The unit that the detector consists of."""

    def __init__(self, inputs, outputs, size=1, stride=1):
        convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU(inplace=True))


class Bottleneck(nn.Module):
    def __init__(self, width, residual):
        super().__init__()
        self.first, self.second = ConvSiLU(width, width, 3), ConvSiLU(width, width, 3)
        self.residual = residual

    def forward(self, x):
        y = self.second(self.first(x))
        return x + y if self.residual else y


class C2f(nn.Module):
    """Splits the channels, takes one half through `depth` bottlenecks, and concatenates all that appeared on the way."""

    def __init__(self, inputs, outputs, depth=1, residual=False):
        super().__init__()
        half = outputs // 2
        self.enter = ConvSiLU(inputs, outputs)
        self.blocks = nn.ModuleList(Bottleneck(half, residual) for _ in range(depth))
        self.leave = ConvSiLU((2 + depth) * half, outputs)

    def forward(self, x):
        parts = list(self.enter(x).chunk(2, dim=1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, dim=1))


class SPPF(nn.Module):
    """Looks at wider and wider neighbourhoods by three max pools one after another."""

    def __init__(self, width):
        super().__init__()
        self.enter, self.leave = ConvSiLU(width, width // 2), ConvSiLU(2 * width, width)
        self.pool = nn.MaxPool2d(5, stride=1, padding=2)

    def forward(self, x):
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.leave(torch.cat(parts, dim=1))


class Detector(nn.Module):
    """A detector as the YOLO family has them: a backbone, a neck up and down again, and a head on three scales.

    The result has for each cell of the three grids, of 1/8, 1/16 and 1/32 of the image's size, four numbers of a box, left
    as the head gives them, and a score for each class.
    """

    def __init__(self, classes=20, width=16):
        super().__init__()
        w = [width << i for i in range(5)]
        self.stem = nn.Sequential(ConvSiLU(3, w[0], 3, 2), ConvSiLU(w[0], w[1], 3, 2), C2f(w[1], w[1], 1, True))
        self.eighth = nn.Sequential(ConvSiLU(w[1], w[2], 3, 2), C2f(w[2], w[2], 2, True))
        self.sixteenth = nn.Sequential(ConvSiLU(w[2], w[3], 3, 2), C2f(w[3], w[3], 2, True))
        self.thirtysecond = nn.Sequential(ConvSiLU(w[3], w[4], 3, 2), C2f(w[4], w[4], 1, True), SPPF(w[4]))
        self.twice = nn.Upsample(scale_factor=2, mode="nearest")
        self.up_sixteenth = C2f(w[4] + w[3], w[3])
        self.up_eighth = C2f(w[3] + w[2], w[2])
        self.to_sixteenth, self.down_sixteenth = ConvSiLU(w[2], w[2], 3, 2), C2f(w[2] + w[3], w[3])
        self.to_thirtysecond, self.down_thirtysecond = ConvSiLU(w[3], w[3], 3, 2), C2f(w[3] + w[4], w[4])

        def head(inputs, outputs):
            hidden = max(32, outputs)
            return nn.Sequential(ConvSiLU(inputs, hidden, 3), ConvSiLU(hidden, hidden, 3), nn.Conv2d(hidden, outputs, 1))

        self.boxes = nn.ModuleList(head(i, 4) for i in w[2:])
        self.scores = nn.ModuleList(head(i, classes) for i in w[2:])
        self.classes = classes

    def forward(self, x):
        eighth = self.eighth(self.stem(x))
        sixteenth = self.sixteenth(eighth)
        thirtysecond = self.thirtysecond(sixteenth)
        sixteenth = self.up_sixteenth(torch.cat([self.twice(thirtysecond), sixteenth], dim=1))
        eighth = self.up_eighth(torch.cat([self.twice(sixteenth), eighth], dim=1))
        sixteenth = self.down_sixteenth(torch.cat([self.to_sixteenth(eighth), sixteenth], dim=1))
        thirtysecond = self.down_thirtysecond(torch.cat([self.to_thirtysecond(sixteenth), thirtysecond], dim=1))
        cells = []
        for boxes, scores, features in zip(self.boxes, self.scores, (eighth, sixteenth, thirtysecond)):
            both = torch.cat([boxes(features), scores(features)], dim=1)
            cells.append(both.view(both.shape[0], 4 + self.classes, -1))
        boxes, scores = torch.cat(cells, dim=2).split([4, self.classes], dim=1)
        return torch.cat([boxes, scores.sigmoid()], dim=1)


NAMES = [*CLASSIFIERS, "unet", "yolo", *OCR]


def build(name):
    """The model and the shape of one input."""
    if name == "unet":
        return UNet(), (3, 128, 128)
    if name == "yolo":
        return Detector(), (3, 320, 320)
    # Inception's two notions of how to fill its weights do not matter: randomise fills them.
    options = {"init_weights": False} if name == "inception_v3" else {}
    side = CLASSIFIERS[name]
    return torchvision.models.get_model(name, weights=None, **options), (3, side, side)


def randomise(model, x):
    """Fills all weights such that numbers keep their size from layer to layer.

    What a fresh model starts with will not do: some heads and tokens are zero, scales of residual branches are one millionth,
    and a BatchNormalization that has seen nothing does nothing.
    """
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            weight.uniform_(0.5, 1.5)
        elif isinstance(module, nn.ConvTranspose2d):
            # With a kernel as large as its stride each output sums over the input channels alone.
            weight.normal_(std=(1 / weight.shape[0]) ** 0.5)
        elif isinstance(module, nn.Conv2d):
            weight.normal_(std=(2 / weight[0].numel()) ** 0.5)
        elif isinstance(module, nn.Linear):
            weight.normal_(std=(1 / weight.shape[1]) ** 0.5)
    for path, parameter in model.named_parameters():
        last = path.split(".")[-1]
        if last.endswith("bias"):
            parameter.normal_(std=0.1)
        elif last == "layer_scale":
            parameter.uniform_(0.2, 0.6)
        elif last in ("class_token", "pos_embedding", "relative_position_bias_table"):
            parameter.normal_(std=0.3)

    # The running statistics are those of the batch `x`, shaken a bit: then no channel is dead, and none is exactly normal. Each
    # norm is set before it runs, so that those behind it see what it makes of `x`.
    def measure(norm, inputs):
        variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
        norm.running_mean.copy_(mean + 0.1 * variance.sqrt() * torch.randn_like(mean))
        norm.running_var.copy_(variance * torch.empty_like(variance).uniform_(0.5, 1.5))

    hooks = [m.register_forward_pre_hook(measure) for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    if hooks:
        model(x)
    for hook in hooks:
        hook.remove()


def describe(path):
    """The first columns of a row, and the count of the operators."""
    model = onnx.load(path)
    onnx.checker.check_model(model)
    opset = next(o.version for o in model.opset_import if not o.domain)
    weights = {w.name for w in model.graph.initializer}
    inputs = [
        f"{i.name}:{'x'.join(d.dim_param or str(d.dim_value or '?') for d in i.type.tensor_type.shape.dim)}"
        for i in model.graph.input
        if i.name not in weights
    ]
    counts = collections.Counter(node.op_type for node in model.graph.node)
    size = path.stat().st_size / 1e6
    row = f"{path.stem:20} {size:7.1f} MB  opset {opset}  {len(model.graph.node):5} nodes  {' '.join(inputs)}"
    return row, " ".join(f"{op}:{count}" for op, count in counts.most_common())


def run(path, x):
    """The first output of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Else it tells of weights that a file has and no node uses.
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def export(name, path):
    """Writes the file of one model and gives the result of PyTorch together with the inputs."""
    torch.manual_seed(SEED)
    model, shape = build(name)
    model.eval()
    with torch.no_grad():
        randomise(model, torch.randn(4, *shape))
        x = torch.randn(2, *shape)
        with warnings.catch_warnings():
            # That this exporter is the older one, and that a trace takes shapes as they are.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                (x[:1],),
                path,
                dynamo=False,
                opset_version=OPSET,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
                do_constant_folding=True,
            )
        return x, model(x).numpy()


def unpack(name, path, wheels):
    """Copies one model out of the wheel, which pip downloads once."""
    if not list(wheels.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, OCR_WHEEL]
        subprocess.run(command, check=True)
    (wheel,) = wheels.glob("*.whl")
    file, shape = OCR[name]
    with zipfile.ZipFile(wheel) as archive:
        path.write_bytes(archive.read(f"rapidocr_onnxruntime/models/{file}"))
    return lines_of_text(2, *shape[1:])


def lines_of_text(*shape):
    """Images of dark blocks in rows on white. The detector finds no text at all in noise and gives zeros for it."""
    batch, _, height, width = shape
    coarse = torch.rand(batch, 1, height // 4, width // 4, generator=torch.Generator().manual_seed(SEED)) < 0.5
    ink = coarse.float().repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    row = (torch.arange(height) % 48 // 12 % 3 != 0).float()
    return (1 - 2 * ink * row.view(1, 1, height, 1)).expand(shape).contiguous()


def write(name, path, wheels):
    if name in OCR:
        x = unpack(name, path, wheels)
        got = run(path, x)
        error = None
    else:
        x, expected = export(name, path)
        got = run(path, x)
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
    row, counts = describe(path)
    deviation = float(got.std())
    apart = float(np.abs(got[0] - got[1]).mean() / deviation)
    row += f"  y:{'x'.join(map(str, got.shape))}  std {deviation:.3g}  apart {apart:.3g}"
    print(row if error is None else f"{row}  error {error:.1e}")
    print(f"    {counts}", flush=True)
    if not np.isfinite(got).all():
        raise ValueError("the output has numbers that are not finite")
    if not (deviation > 1e-3 and apart > 1e-3):
        raise ValueError("the output is all but constant")
    if error is not None and not error < TOLERANCE:
        raise ValueError("ONNX Runtime and PyTorch differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; all if none is given")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in NAMES]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(NAMES)}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    # Its fast path for attention is one operator, which ONNX has not.
    torch.backends.mha.set_fastpath_enabled(False)
    failed = []
    with tempfile.TemporaryDirectory() as wheels:
        for name in arguments.names or NAMES:
            try:
                write(name, arguments.folder / f"{name}.onnx", pathlib.Path(wheels))
            except Exception:
                traceback.print_exc()
                failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
