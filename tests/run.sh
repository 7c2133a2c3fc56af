#!/usr/bin/env bash
# All tests of all crates; what was skipped, and their count in the last line (`tests/count.awk` says what is counted).
set -uo pipefail
cd "$(dirname "$0")/.."
# Compiling in parts that the next build can keep takes half as long again, and on a new clone there is no next build. Whoever runs this
# after every change sets it to 1.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
run() {
  "$@" 2>&1 | tee -a "$log"
  ((status |= PIPESTATUS[0]))
}
workspace=(cargo test --target-dir target --workspace --no-fail-fast)
# The library's unit tests are compiled apart and as fast as can be: optimised, that takes as long as the library again, and they run
# for seconds.
units=(cargo test --package kernel-gen --lib --target-dir target/unoptimised --no-fail-fast)
# While the largest part is compiled, a compiler for the tests that compile CUDA is fetched, a compiler and an emulator for the
# test that runs kernels for Arm, and a server for those of fleets.
"${workspace[@]}" --test '*' --no-run &
CARGO_PROFILE_TEST_OPT_LEVEL=0 "${units[@]}" --no-run &
source tests/cuda.sh
source tests/aarch64.sh
source tests/nats.sh
wait
# The library's workspace first, then the suites that are consumer crates with workspaces of their own.
run "${workspace[@]}" --test kernels --test measuring --test measure_killed --test fleet --test fork --test downstream -- --show-output
# They wait for cargo most of their time, and cargo for its locks.
run "${workspace[@]}" --test consumers -- --show-output --test-threads 4
CARGO_PROFILE_TEST_OPT_LEVEL=0 run "${units[@]}" -- --show-output
run "${workspace[@]}" --exclude kernel-gen --lib -- --show-output
run "${workspace[@]}" --doc -- --show-output
run cargo test --manifest-path tests/onnx/Cargo.toml --target-dir target --no-fail-fast -- --show-output
# The program that times the peers, with its shortest list; nothing is timed here.
run cargo test --manifest-path tests/peers/Cargo.toml --target-dir target --no-default-features --features skinny --no-fail-fast -- --show-output
# The runtime with its features, which the workspace leaves off.
run cargo test --package kernel-gen-runtime --all-features --target-dir target --no-fail-fast -- --show-output
# The runtime on a GPU; without one it says so and runs on the CPU.
run cargo run --manifest-path tests/gpu-runtime/Cargo.toml --target-dir target
# The examples in release mode and in their own folder, where the test that runs them has built them already.
# Those apart that link the generator: beside the others it would have a dependency with other features, and be compiled again.
for packages in "--workspace --exclude bench --exclude networks --exclude tutorials --exclude custom-template" \
  "--package tutorials --package custom-template"; do
  run cargo test --manifest-path examples/Cargo.toml --release $packages --no-fail-fast -- --show-output
done
# Its networks run on GPUs only, so its tests need wrappers and no code: those of ResNet-18 with the feature `cuda` are among them.
KERNEL_GEN_NO_CC=1 KERNEL_GEN_CUDA=embed run cargo test --manifest-path examples/Cargo.toml --release --package networks --no-fail-fast -- --show-output
awk -f tests/count.awk "$log"
exit "$status"
