#!/usr/bin/env python3
"""Times ONNX Runtime on models of one node each and prints one JSON object a workload.

usage: ort_peer.py THREADS ROUNDS SAMPLES MIN_SAMPLE_SECONDS [PART_OF_A_NAME ...]     (called by peers.py)

Weights and the right matrix of a product are initializers, so that the session packs them when it is made. Graph
optimisation is left at its default, all: a convolution may then run in ONNX Runtime's blocked layout, between two
reorderings that are part of the time, for the tensors that the caller gives and takes are plain NCHW. Inputs and outputs
are bound to buffers beforehand; what Python adds to a call is two to three microseconds.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import workloads

THREADS, ROUNDS, SAMPLES, MIN_SAMPLE = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])

RETRIES = 8  # How often a sample during which a thread lost its core is taken again before it is kept.


def peak_function():
    """kg_peak_gflops of peak.h, compiled into a library."""
    here = os.path.dirname(os.path.abspath(__file__))
    folder = tempfile.mkdtemp()
    source = f"{folder}/peak.c"
    with open(source, "w") as f:
        f.write('#include "peak.h"\ndouble peak_gflops(void) { return kg_peak_gflops(); }\n')
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{here}", source, "-o", f"{folder}/peak.so"], check=True)
    function = ctypes.CDLL(f"{folder}/peak.so").peak_gflops
    function.restype = ctypes.c_double
    return function


def model(workload, random):
    """A model of one node, its input and a function that says how wrong an output is."""
    f32 = lambda *shape: random.standard_normal(shape, dtype=np.float32)
    if isinstance(workload, workloads.Conv):
        c = workload
        x, w, out = f32(c.n, c.ci, c.h, c.w), f32(c.co, c.ci // c.groups, c.kh, c.kw), [c.n, c.co, c.oh, c.ow]
        node = helper.make_node(
            "Conv", ["x", "w"], ["y"], kernel_shape=[c.kh, c.kw], strides=[c.stride_h, c.stride_w],
            pads=[c.top, c.left, c.bottom, c.right], group=c.groups,
        )
        padded = np.pad(x, ((0, 0), (0, 0), (c.top, c.bottom), (c.left, c.right))).astype(np.float64)

        def exact(b, o, i, j):
            g = o // (c.co // c.groups) * (c.ci // c.groups)
            window = padded[b, g : g + c.ci // c.groups, i * c.stride_h :, j * c.stride_w :][:, : c.kh, : c.kw]
            return (window * w[o]).sum()
    else:
        x, w, out = f32(workload.m, workload.k), f32(workload.k, workload.n), [workload.m, workload.n]
        node = helper.make_node("MatMul", ["x", "w"], ["y"])

        def exact(i, j):
            return x[i].astype(np.float64) @ w[:, j].astype(np.float64)

    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(w, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def error(y):
        at = [tuple(int(random.integers(n)) for n in y.shape) for _ in range(200)]
        want = np.array([exact(*index) for index in at])
        return float(np.abs(want - [y[index] for index in at]).max() / np.abs(want).max())

    return proto.SerializeToString(), x, out, error


def session(proto):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    if THREADS > 1:
        # The calling thread is one of them and pinned below; the others go to the cores after it, counted from 1.
        rest = ";".join(str(core + 1) for core in CORES[1:THREADS])
        options.add_session_config_entry("session.intra_op_thread_affinities", rest)
    return ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])


def preemptions():
    """How often the system has taken a core away from a thread of this process that wanted to go on."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def timed(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


class Layer:
    """One layer: its model, and the samples of all rounds."""

    def __init__(self, name, workload, random):
        self.name, self.calls, self.samples, self.peaks, self.disturbed = name, None, [], [], []
        self.proto, self.x, self.shape, self.error = model(workload, random)

    def round(self):
        """One round of samples, in a session of its own: the threads of a second session would spin beside this one's."""
        os.sched_setaffinity(0, CORES)  # A session's threads start with the affinity of the thread that makes them.
        one = session(self.proto)
        os.sched_setaffinity(0, CORES[:1])
        binding = one.io_binding()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(self.x))
        y = ort.OrtValue.ortvalue_from_shape_and_type(self.shape, np.float32)
        binding.bind_ortvalue_output("y", y)
        call = lambda: one.run_with_iobinding(binding)
        timed(call, 3)
        if self.calls is None:
            self.wrong = self.error(y.numpy())
            self.calls, seconds = 1, timed(call, 1)
            while seconds < MIN_SAMPLE:
                self.calls = max(self.calls + 1, int(self.calls * min(8.0, 1.2 * MIN_SAMPLE / max(seconds, 1e-7))))
                seconds = timed(call, self.calls)
        for _ in range(SAMPLES):
            for attempt in range(RETRIES + 1):
                rate = peak()
                timed(call, 1)
                before = preemptions()
                us = timed(call, self.calls) / self.calls * 1e6
                disturbed = preemptions() != before
                if not disturbed or attempt == RETRIES:
                    break
            self.peaks.append(rate)
            self.samples.append(us)
            self.disturbed.append(disturbed)


CORES = sorted(os.sched_getaffinity(0))
peak, random = peak_function(), np.random.default_rng(0)
layers = [Layer(name, workload, random) for name, workload in workloads.read(sys.argv[5:]).items()]
for _ in range(ROUNDS):
    for layer in layers:
        layer.round()
for layer in layers:
    print(json.dumps({
        "peer": "ONNX Runtime", "version": ort.__version__, "workload": layer.name,
        "variant": "row-major" if layer.name.startswith("mm") else "nchw", "implementation": "CPUExecutionProvider",
        "threads": THREADS, "error": layer.wrong, "sample_us": layer.samples, "peak_gflops": layer.peaks,
        "disturbed": layer.disturbed,
    }))
