#!/usr/bin/env python3
"""Times what a user would pick instead of generated kernels, on the layers of ../kernels.toml, into one JSON file.

    python3 examples/bench/peers/peers.py --out peers.json            # a minute or two; --quick for a smoke run
    cargo run --release --manifest-path examples/Cargo.toml -p bench -- --peers peers.json

It installs what it needs, by name: ONNX Runtime into a virtual environment outside of the repository (--venv), oneDNN from
the distribution (`apt-get install libdnnl-dev`; skipped where that is impossible or with --no-apt). The file says under
`missing` what it could not have. Run it on a machine that does nothing else: the file keeps the load before and after,
the spread of the samples, and the FMA rate of a core measured beside every sample.

A sample is as many calls on the same buffers as take 1 ms; a round takes some samples of each layer in turn; the figure
is the median over all rounds. A sample during which the system took a core away from a thread is taken again, up to eight
times; those that stay disturbed are counted, and left out as long as five others remain. Threads are pinned to cores. PyTorch is left out: its wheel is 2.7 GB with what it needs, and
on plain NCHW it reorders input, weights and output in every call, around the same oneDNN.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys

import workloads

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["numpy", "onnx", "onnxruntime==1.31.1"]


def run(command, **options):
    """The finished process; its output is kept and no exit status raises."""
    return subprocess.run(command, capture_output=True, text=True, **options)


def prepare_ort(venv):
    """The interpreter with ONNX Runtime, or the reason why there is none."""
    python = venv / "bin/python"
    if not python.exists():
        made = run([sys.executable, "-m", "venv", str(venv)])
        if made.returncode:
            return None, "no virtual environment: " + (made.stderr or made.stdout).strip()[-300:]
    if run([python, "-c", "import numpy, onnx, onnxruntime"]).returncode:
        installed = run([python, "-m", "pip", "install", "--quiet", *PACKAGES])
        if installed.returncode:
            return None, f"pip install {' '.join(PACKAGES)}: " + installed.stderr.strip()[-300:]
    return python, None


def prepare_onednn(venv, apt):
    """The compiled oneDNN peer, or the reason why there is none."""
    compiler = next((c for c in ("g++", "c++", "clang++") if shutil.which(c)), None)
    if compiler is None:
        return None, "no C++ compiler on PATH"
    binary = venv / "onednn_peer"
    build = [compiler, "-O2", "-std=c++17", str(HERE / "onednn_peer.cpp"), "-ldnnl", "-o", str(binary)]
    built = run(build)
    if built.returncode and apt and shutil.which("apt-get") and os.geteuid() == 0:
        install = ["apt-get", "install", "-y", "--no-install-recommends", "libdnnl-dev"]
        if run(install).returncode:
            run(["apt-get", "update"])
            run(install)
        built = run(build)
    if built.returncode:
        return None, "the oneDNN peer does not compile (libdnnl-dev): " + built.stderr.strip()[:300]
    return binary, None


def summary(line, workload):
    """One result of the file from the samples of one peer on one layer."""
    every = list(zip(line.pop("sample_us"), line.pop("peak_gflops"), line.pop("disturbed")))
    calm = [sample for sample in every if not sample[2]]
    samples, peaks, _ = zip(*(calm if len(calm) >= 5 else every))
    us, peak = statistics.median(samples), statistics.median(peaks)
    cut = statistics.quantiles(samples, n=10, method="inclusive") if len(samples) > 2 else [min(samples), max(samples)]
    gflops = workload.flops / us * 1e-3
    digits = lambda value: float(f"{value:.5g}")
    return line | {
        "us": digits(us),
        "us_p10": digits(cut[0]),
        "us_p90": digits(cut[-1]),
        "samples": len(every),
        "disturbed": len(every) - len(calm),
        "gflops": digits(gflops),
        "core_peak_gflops": digits(peak),
        "share_of_peak": digits(gflops / (peak * line["threads"])) if peak else None,
    }


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="peers.json", help="the file to write")
    parser.add_argument("--venv", default="/tmp/peers-venv", help="virtual environment, outside of the repository")
    parser.add_argument("--threads", default="1,2", help="thread counts, with commas")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="layers whose name contains this")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that everything works")
    parser.add_argument("--no-apt", action="store_true", help="install nothing with apt-get")
    options = parser.parse_args()

    venv = pathlib.Path(options.venv)
    layers = workloads.read(options.only)
    rounds, samples, seconds = ("1", "3", "0.0005") if options.quick else ("5", "15", "0.001")
    cores = sorted(os.sched_getaffinity(0))
    missing = [{"peer": "PyTorch", "reason": "left out: 2.7 GB, and the same oneDNN inside"}]
    python, reason = prepare_ort(venv)
    if reason:
        missing.append({"peer": "ONNX Runtime", "reason": reason})
    onednn, reason = prepare_onednn(venv, not options.no_apt)
    if reason:
        missing.append({"peer": "oneDNN", "reason": reason})

    load_before, started = os.getloadavg()[0], datetime.datetime.now(datetime.timezone.utc)
    results = []
    for threads in [int(t) for t in options.threads.split(",")]:
        if threads > len(cores):
            missing.append({"peer": f"{threads} threads", "reason": f"only {len(cores)} cores"})
            continue
        arguments = [str(threads), rounds, samples, seconds]
        # OpenMP's threads, one a core in order; they may spin between calls, as is their default in such programs.
        openmp = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "OMP_PROC_BIND": "true",
            "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores[:threads]),
        }
        jobs = []
        if onednn:
            jobs.append(("oneDNN", [str(onednn), *arguments], {"env": openmp, "input": workloads.as_lines(layers)}))
        if python:
            jobs.append(("ONNX Runtime", [str(python), str(HERE / "ort_peer.py"), *arguments, *options.only], {}))
        for peer, command, how in jobs:
            print(f"{peer}, {threads} thread(s) ...", file=sys.stderr, flush=True)
            done = run(command, **how)
            if done.returncode:
                missing.append({"peer": f"{peer}, {threads} thread(s)", "reason": done.stderr.strip()[-300:]})
            for line in done.stdout.splitlines():
                result = json.loads(line)
                results.append(summary(result, layers[result["workload"]]))

    report = {
        "schema": 1,
        "processor": processor(),
        "cores": len(cores),
        "started": started.isoformat(timespec="seconds"),
        "started_unix": int(started.timestamp()),
        "seconds": round((datetime.datetime.now(datetime.timezone.utc) - started).total_seconds()),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "pinned": True,
        "rounds": int(rounds),
        "samples_per_round": int(samples),
        "min_sample_s": float(seconds),
        "missing": missing,
        "results": results,
    }
    pathlib.Path(options.out).write_text(json.dumps(report, indent=1) + "\n")
    for result in results:
        share = result["share_of_peak"]
        print(
            f"{result['peer']:13} {result['variant']:14} {result['workload']:22} {result['threads']} "
            f"{result['us']:10.1f} us ({result['us_p10']:.1f} to {result['us_p90']:.1f}) {result['gflops']:7.1f} GFLOP/s"
            + (f" {100 * share:5.1f} % of the FMA peak" if share else "")
            + (f", {result['disturbed']} of {result['samples']} samples disturbed" if result["disturbed"] else "")
            + ("" if result["error"] < 1e-5 else f"  WRONG: error {result['error']}")
        )
    for gap in missing:
        print(f"missing: {gap['peer']}: {gap['reason']}")


if __name__ == "__main__":
    main()
