#!/usr/bin/env python3
"""Attention of specs/attention.toml with rows first or packed, by PyTorch: what `kernel-gen bench specs/attention.toml` stands beside.

    python3 tests/gpu/pytorch_attention.py

Each of scaled_dot_product_attention's back ends reads the same tensors where they lie (queries, keys and values are views of one tensor,
or of three), captured in a CUDA graph that is then replayed: the median of replays between two events, warm. Without TF32, as f32 says.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from pytorch_networks import capture, median_us

BACK_ENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
CALLS = 20
# Workload, images, rows, heads, elements, whether they are one tensor, whether causal, whether heads have biases.
CASES = [
    ("vit_packed", 1, 197, 12, 64, True, False, False),
    ("vit_packed_8", 8, 197, 12, 64, True, False, False),
    ("bert", 1, 128, 12, 64, False, False, False),
    ("bert_384", 1, 384, 12, 64, False, False, False),
    ("bert_8", 8, 128, 12, 64, False, False, False),
    ("gpt2", 1, 1024, 12, 64, True, True, False),
    ("swin_packed", 64, 49, 3, 32, True, False, True),
    ("swin_packed_last", 1, 49, 24, 32, True, False, True),
]


def calls_us(attend):
    """Microseconds of a call."""

    def all_calls():
        for _ in range(CALLS):
            attend()

    replay, _ = capture(all_calls)
    return median_us(replay, each=2) / CALLS


def main():
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for name, images, rows, heads, width, packed, causal, biased in CASES:
        for dtype in (torch.float16, torch.float32):
            shape = (images, rows, 3, heads, width) if packed else (3, images, rows, heads, width)
            whole = torch.randn(shape, device="cuda", dtype=dtype)
            q, k, v = (x.transpose(1, 2) for x in whole.unbind(2 if packed else 0))
            bias = torch.randn(1, heads, rows, rows, device="cuda", dtype=dtype) if biased else None
            times = {}
            for back_end in BACK_ENDS:
                try:
                    with sdpa_kernel(back_end), torch.no_grad():
                        call = lambda: scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)
                        times[back_end.name] = calls_us(call)
                except RuntimeError:
                    continue  # It does not take this type or a bias.
            row = [f"{back_end} {us:.2f}" for back_end, us in sorted(times.items(), key=lambda pair: pair[1])]
            print(name, str(dtype).removeprefix("torch."), *row, flush=True)


if __name__ == "__main__":
    main()
