#!/usr/bin/env bash
# Builds the GPU suite and puts it into a folder that can be carried to a machine with a GPU:
#   bash tests/gpu/pack.sh FOLDER      here
#   bash FOLDER/run.sh families        there (or: bench, search)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?usage: pack.sh FOLDER}
cargo build --release --manifest-path "$root/Cargo.toml" -p kernel-gen-gpu-suite
mkdir -p "$out"
cp "${CARGO_TARGET_DIR:-$root/target}/release/gpu-suite" "$root/tests/gpu/run.sh" "$out"
echo "packed into $out"
