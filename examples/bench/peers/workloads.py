"""The layers to time: those kernels of ../kernels.toml that take and give plain NCHW or row-major tensors."""

import dataclasses
import pathlib
import tomllib

SPEC = pathlib.Path(__file__).parent.parent / "kernels.toml"


@dataclasses.dataclass(frozen=True)
class Conv:
    """A convolution, depthwise ones included, in the order in which onednn_peer.cpp reads it."""

    n: int
    ci: int
    h: int
    w: int
    co: int
    kh: int
    kw: int
    stride_h: int
    stride_w: int
    top: int
    left: int
    bottom: int
    right: int
    groups: int

    @property
    def oh(self):
        return (self.h + self.top + self.bottom - self.kh) // self.stride_h + 1

    @property
    def ow(self):
        return (self.w + self.left + self.right - self.kw) // self.stride_w + 1

    @property
    def flops(self):
        """Two a multiply-add, those that meet padding included, as is customary."""
        return 2 * self.n * self.co * self.oh * self.ow * (self.ci // self.groups) * self.kh * self.kw


@dataclasses.dataclass(frozen=True)
class Matmul:
    m: int
    n: int
    k: int

    @property
    def flops(self):
        return 2 * self.m * self.n * self.k


def read(only=()):
    """Workloads by name, in the order of the spec; `only` keeps those whose name contains one of its strings."""
    found = {}
    for kernel in tomllib.loads(SPEC.read_text())["kernel"]:
        if kernel.get("layout", "NCHW") != "NCHW":
            continue
        for workload in kernel["workload"]:
            name = workload["name"]
            if only and not any(part in name for part in only):
                continue
            if "matmul" in kernel["op"]:
                (m, k), (_, n) = workload["a"], workload["b"]
                found[name] = Matmul(m, n, k)
            else:
                n, ci, h, w = workload["input"]
                co, _, kh, kw = workload["weight"]
                padding = workload["padding"]
                top, left, bottom, right = padding if len(padding) == 4 else padding * 2
                stride_h, stride_w = workload["stride"]
                groups = workload.get("groups", 1)
                found[name] = Conv(n, ci, h, w, co, kh, kw, stride_h, stride_w, top, left, bottom, right, groups)
    return found


def as_lines(workloads):
    """The workloads as onednn_peer.cpp reads them."""
    return "".join(
        f"{type(w).__name__.lower()} {name} {' '.join(str(v) for v in dataclasses.astuple(w))}\n"
        for name, w in workloads.items()
    )
