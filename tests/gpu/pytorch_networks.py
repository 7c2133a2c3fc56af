"""Whole networks in PyTorch: what `examples/resnet18` stands beside.

    python3 pytorch_networks.py [--seconds N] [--networks resnet18,resnet50] [--no-compile]

ResNet-18 and ResNet-50 at batch 1, 224 x 224, in inference, with batch normalisation folded into the convolutions as
kernel-gen's network has it, channels_last, each captured in a CUDA graph that is then replayed. Eager means cuDNN's
kernels, picked by `cudnn.benchmark`; compiled means `torch.compile` (max-autotune, then reduce-overhead where that fails).
A time is the median of replays between two events, warm; `error` is the largest difference from the same network in f64
on the same input, over the largest output. Needs PyTorch with CUDA; the networks are written out here, so torchvision and
the net are not needed. Weights are random: times do not depend on them.
"""

import argparse
import os
import statistics
import time

import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 (the stride on the 3x3), with a shortcut. Normalisation is folded in."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.convs = nn.ModuleList([
                nn.Conv2d(inputs, width, 1),
                nn.Conv2d(width, width, 3, stride, 1),
                nn.Conv2d(width, outputs, 1),
            ])
        else:
            self.convs = nn.ModuleList([
                nn.Conv2d(inputs, width, 3, stride, 1),
                nn.Conv2d(width, width, 3, 1, 1),
            ])
        self.down = nn.Conv2d(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x):
        shortcut = x if self.down is None else self.down(x)
        for conv in self.convs[:-1]:
            x = F.relu(conv(x))
        return F.relu(self.convs[-1](x) + shortcut)


class ResNet(nn.Module):
    """He et al. 2015, table 1."""

    def __init__(self, depths, bottleneck):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3)
        inputs, blocks = 64, []
        for stage, depth in enumerate(depths):
            width = 64 << stage
            for i in range(depth):
                blocks.append(Block(inputs, width, 2 if stage > 0 and i == 0 else 1, bottleneck))
                inputs = 4 * width if bottleneck else width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


NETWORKS = {"resnet18": ([2, 2, 2, 2], False), "resnet50": ([3, 4, 6, 3], True)}


def make(name):
    torch.manual_seed(1)
    net = ResNet(*NETWORKS[name]).eval().requires_grad_(False)
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight)
    # The last convolution of a block starts small, as after training: activations stay within f16.
    for b in net.blocks:
        b.convs[-1].weight.mul_(0.3)
    return net


def capture(run):
    """A graph of `run()`, after what it wants to do once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    return graph.replay, out


def median_us(replay, samples=40, each=20):
    for _ in range(20):
        replay()
    times = []
    for _ in range(samples):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(each):
            replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / each)
    return statistics.median(times)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=50.0, help="no further row is begun after these")
    p.add_argument("--networks", default="resnet18,resnet50")
    p.add_argument("--no-compile", action="store_true")
    args = p.parse_args()
    began = time.monotonic()
    late = lambda: time.monotonic() - began > args.seconds
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    print(f"{'network':10} {'type':5} {'TF32':4} {'how':24} {'us':>8}  error")

    names = args.networks.split(",")
    inputs = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(2))
    references = {n: make(n).double().cuda()(inputs.double().cuda()) for n in names}

    def row(name, kind, tf32, how, net, x, compiled):
        if late():
            print(f"{name:10} {kind:5} {tf32:4} {how:24} not run: {args.seconds:.0f} s are over", flush=True)
            return
        try:
            run = lambda: net(x)
            if compiled:
                options = {"triton.cudagraphs": False}
                if compiled == "max-autotune":
                    options |= {"max_autotune": True, "coordinate_descent_tuning": False}
                net_compiled = torch.compile(net, options=options)
                run = lambda: net_compiled(x)
            with torch.inference_mode():
                replay, out = capture(run)
                us = median_us(replay)
            want = references[name]
            error = ((out.double() - want).abs().max() / want.abs().max()).item()
            print(f"{name:10} {kind:5} {tf32:4} {how:24} {us:8.1f}  {error:.1e}", flush=True)
        except Exception as e:  # What fails is a line of the table, and the next row is run.
            first = str(e).strip().splitlines()[0][:120] if str(e).strip() else type(e).__name__
            print(f"{name:10} {kind:5} {tf32:4} {how:24} failed: {first}", flush=True)

    variants = [("fp32", torch.float32, False), ("fp32", torch.float32, True), ("f16", torch.float16, False)]

    def each(how, compiled, memory_format):
        for name in names:
            for kind, dtype, tf32 in variants:
                torch.backends.cuda.matmul.allow_tf32 = tf32
                torch.backends.cudnn.allow_tf32 = tf32
                net = make(name).to(dtype).cuda().to(memory_format=memory_format)
                x = inputs.to(dtype).cuda().to(memory_format=memory_format)
                row(name, kind, "-" if dtype == torch.float16 else "on" if tf32 else "off", how, net, x, compiled)

    each("eager, channels_last", None, torch.channels_last)
    each("eager, contiguous", None, torch.contiguous_format)
    if not args.no_compile:
        os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
        each("compiled, channels_last", "default", torch.channels_last)
        each("max-autotune, ch._last", "max-autotune", torch.channels_last)


if __name__ == "__main__":
    main()
