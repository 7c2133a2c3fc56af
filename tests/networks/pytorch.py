#!/usr/bin/env python3
"""Networks of torchvision in PyTorch on a GPU: what the program of gpu.py stands beside.

    python3 tests/networks/pytorch.py resnet50 vit_b_16 [--batches 1] [--dtypes f32,f16] [--seconds 400]

Each network runs in inference, eager and by `torch.compile`, in both orders of the dimensions (channels_last, contiguous), each
captured in a CUDA graph that is then replayed: the median of replays between two events, warm. Without TF32, as f32 says. Weights are random: times do not depend on them.
"""

import argparse
import pathlib
import sys
import time

import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
from pytorch_networks import capture, median_us  # noqa: E402

SIZES = {"inception_v3": 299}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--batches", default="1")
    parser.add_argument("--dtypes", default="f32,f16")
    parser.add_argument("--seconds", type=float, default=400.0, help="no further row is begun after these")
    args = parser.parse_args()
    began = time.monotonic()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    orders = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
    cases = [(n, int(batch), dtype) for n in args.networks for batch in args.batches.split(",") for dtype in args.dtypes.split(",")]
    # What is the fastest in most cases comes first, in case time runs out.
    for compiled, order in [(True, "channels_last"), (False, "channels_last"), (True, "contiguous"), (False, "contiguous")]:
        for name, batch, dtype in cases:
            how = f"{name} {batch} {dtype} {'compiled' if compiled else 'eager'} {order}"
            if time.monotonic() - began > args.seconds:
                print(f"{how} not run: {args.seconds:.0f} s are over", flush=True)
                continue
            try:
                extra = {"init_weights": False} if name == "inception_v3" else {}
                net = getattr(torchvision.models, name)(weights=None, **extra).eval().requires_grad_(False)
                net = net.to(types[dtype]).cuda().to(memory_format=orders[order])
                size = SIZES.get(name, 224)
                x = torch.randn(batch, 3, size, size, dtype=types[dtype], device="cuda").to(memory_format=orders[order])
                # Freezing folds batch normalisation into the convolutions.
                run = torch.compile(net, options={"triton.cudagraphs": False, "freezing": True}) if compiled else net
                with torch.inference_mode():
                    replay, _ = capture(lambda: run(x))
                    us = median_us(replay)
                print(f"{how} {us:.1f} us", flush=True)
            except Exception as error:  # noqa: BLE001: what fails is a row, and the next one is run.
                print(f"{how} failed: {str(error).strip().splitlines()[:1]}", flush=True)
            torch._dynamo.reset()


if __name__ == "__main__":
    main()
