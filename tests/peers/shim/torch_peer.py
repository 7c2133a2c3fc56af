#!/usr/bin/env python3
"""PyTorch as a peer: a child of the program, which sends it layers and asks it for times.

usage: torch_peer.py THREADS CORE...

Standard input has one request a line, JSON, with the tensors that it names behind it as little-endian `f32`; standard output
has one line of JSON for each, with the result's values behind it where they are asked for.

    {"new": LAYER}              input, weight, bias, residual follow, each of its length; answer: {"layer": I, "ran": NAME}
    {"time": I, "runs": N}      answer: {"seconds": S}, of N runs
    {"result": I}               answer: {"values": N}, and N values

`src/torch.rs` writes them. Times are taken here, so that the pipe is not in them; the calls are those of a Python program.
"""
import ctypes
import json
import os
import resource
import sys
import time

threads, cores = int(sys.argv[1]), [int(c) for c in sys.argv[2:]]
if threads == 1:
    os.sched_setaffinity(0, cores[:1])  # With more, OpenMP places them, as its variables say.

import torch  # noqa: E402  (reads the affinity as it is loaded)
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(threads)
torch.set_grad_enabled(False)
requests, answers = sys.stdin.buffer, sys.stdout.buffer


def tensor(shape):
    """The next tensor of the request, in the plain layout; none where the shape is."""
    if shape is None:
        return None
    count = 1
    for extent in shape:
        count *= extent
    # Aligned to a cache line, as PyTorch's own.
    values = torch.empty(count)
    data = requests.read(4 * count)
    ctypes.memmove(values.data_ptr(), data, len(data))
    return values.reshape(shape)


def activate(y, activation):
    if activation == "relu":
        return y.relu_()
    if activation == "relu6":
        return y.clamp_(0, 6)
    return y


def eager(layer, x, w, bias, residual):
    """One call for each operator, the later ones in place: what a model in PyTorch does without being compiled."""

    def run():
        y = F.conv2d(x, w, bias, layer["stride"], layer["padding"], layer["dilation"], layer["groups"])
        if residual is not None:
            y.add_(residual)
        return activate(y, layer["activation"])

    return run


def fused(layer, x, w, bias, residual):
    """oneDNN with the weight packed beforehand and the epilogue in it: what a frozen, compiled model calls."""
    geometry = (layer["padding"], layer["stride"], layer["dilation"], layer["groups"])
    packed = torch.ops.mkldnn._reorder_convolution_weight(w, *geometry, list(x.shape))
    name, scalars = {"none": ("none", []), "relu": ("relu", []), "relu6": ("hardtanh", [0.0, 6.0])}[layer["activation"]]
    op = torch.ops.mkldnn._convolution_pointwise
    if residual is None:
        return lambda: op(x, packed, bias, *geometry, name, scalars, "")
    unary = None if name == "none" else name
    return lambda: op.binary(x, residual, packed, bias, *geometry, "add", 1.0, unary, scalars, "")


def product(layer, a, b, bias, residual):
    """`torch.mm` into a buffer that is there, or `addmm`, and the rest in place."""
    a = a.mT if layer["trans_a"] else a
    b = b.mT if layer["trans_b"] else b
    y = torch.empty(*a.shape[:-1], b.shape[-1])

    def run():
        if a.dim() == 3:
            torch.bmm(a, b, out=y)
        elif bias is None:
            torch.mm(a, b, out=y)
        else:
            torch.addmm(bias, a, b, out=y)
        if a.dim() == 3 and bias is not None:
            y.add_(bias)
        if residual is not None:
            y.add_(residual)
        return activate(y, layer["activation"])

    return run


def variants(layer, x, w, bias, residual):
    """Calls that compute the layer, by name, of which the fastest takes part."""
    if layer["op"] == "product":
        return {"mm": product(layer, x, w, bias, residual)}
    arguments = [x, w, bias, residual]
    if layer["layout"] == "channels_last":
        last = torch.channels_last
        arguments = [t.contiguous(memory_format=last) if t is not None and t.dim() == 4 else t for t in arguments]
    return {"eager": eager(layer, *arguments), "packed": fused(layer, *arguments)}


def seconds_of(run, runs):
    start = time.perf_counter()
    for _ in range(runs):
        run()
    return time.perf_counter() - start


def fastest(calls):
    best = None
    for name, run in calls.items():
        run()
        seconds = min(seconds_of(run, 1) for _ in range(6)) if len(calls) > 1 else 0.0
        if best is None or seconds < best[0]:
            best = (seconds, name, run)
    return best[1], best[2]


def settle():
    """Waits until no other thread of this process is on a core, for a tenth of a second at most: the next contestant is timed
    when the answer has been read."""
    own, end = str(os.getpid()), time.perf_counter() + 0.1
    quiet = 0
    while threads > 1 and quiet < 2 and time.perf_counter() < end:
        running = False
        for task in os.listdir("/proc/self/task"):
            if task != own:
                with open(f"/proc/self/task/{task}/stat") as stat:
                    running |= stat.read().rsplit(") ", 1)[1].startswith("R")
        quiet = 0 if running else quiet + 1
        time.sleep(0.0001)


def answer(values, data=b""):
    answers.write(json.dumps(values).encode() + b"\n" + data)
    answers.flush()


def main():
    layers = []
    answer({"version": torch.__version__})
    for line in requests:
        request = json.loads(line)
        try:
            if "new" in request:
                layer = request["new"]
                # All of the request is read before anything may fail, or the next one would begin in the middle of it.
                tensors = [tensor(layer[name]) for name in ("input", "weight", "bias", "residual")]
                name, run = fastest(variants(layer, *tensors))
                layers.append(run)
                answer({"layer": len(layers) - 1, "ran": name})
            elif "time" in request:
                run = layers[request["time"]]
                for _ in range(4):  # Until no thread has lost its core meanwhile.
                    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
                    seconds = seconds_of(run, request["runs"])
                    if resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw == before:
                        break
                settle()
                answer({"seconds": seconds})
            else:
                y = layers[request["result"]]().contiguous()
                settle()
                answer({"values": y.numel()}, ctypes.string_at(y.data_ptr(), 4 * y.numel()))
        except Exception as error:  # The program says which layer PyTorch does not take part in, and why.
            answer({"error": " ".join(str(error).split())[:300]})


main()
