#!/usr/bin/env bash
# All tests of all crates; what was skipped, and their count in the last line (`tests/count.awk` says what is counted).
set -uo pipefail
cd "$(dirname "$0")/.."
# A compiler for the tests that compile CUDA.
source tests/cuda.sh
# A compiler and an emulator for the test that runs kernels for Arm.
source tests/aarch64.sh
# Compiling in parts that the next build can keep takes half as long again, and on a new clone there is no next build. Whoever runs this
# after every change sets it to 1.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
# The library's workspace first, then the suites that are consumer crates with workspaces of their own.
for manifest in Cargo.toml tests/onnx/Cargo.toml; do
  cargo test --manifest-path "$manifest" --target-dir target --workspace --no-fail-fast -- --show-output 2>&1 | tee -a "$log"
  ((status |= PIPESTATUS[0]))
done
# The program that times the peers, with its shortest list; nothing is timed here.
cargo test --manifest-path tests/peers/Cargo.toml --target-dir target --no-default-features --features skinny --no-fail-fast -- --show-output 2>&1 | tee -a "$log"
((status |= PIPESTATUS[0]))
# The runtime with its features, which the workspace leaves off.
cargo test --package kernel-gen-runtime --all-features --target-dir target --no-fail-fast -- --show-output 2>&1 | tee -a "$log"
((status |= PIPESTATUS[0]))
# The runtime on a GPU; without one it says so and runs on the CPU.
cargo run --manifest-path tests/gpu-runtime/Cargo.toml --target-dir target 2>&1 | tee -a "$log"
((status |= PIPESTATUS[0]))
# The examples in release mode and in their own folder, where the test that runs them has built them already.
# The tutorials apart: beside the others their generator would have a dependency with other features, and be compiled again.
for packages in "--workspace --exclude bench --exclude networks --exclude tutorials" "--package tutorials"; do
  cargo test --manifest-path examples/Cargo.toml --release $packages --no-fail-fast -- --show-output 2>&1 | tee -a "$log"
  ((status |= PIPESTATUS[0]))
done
# Its networks run on GPUs only, so its tests need wrappers and no code: those of ResNet-18 with the feature `cuda` are among them.
KERNEL_GEN_NO_CC=1 KERNEL_GEN_CUDA=embed cargo test --manifest-path examples/Cargo.toml --release --package networks --no-fail-fast -- --show-output 2>&1 | tee -a "$log"
((status |= PIPESTATUS[0]))
awk -f tests/count.awk "$log"
exit "$status"
