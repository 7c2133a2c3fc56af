#!/usr/bin/env bash
# Builds what is to run on a machine with a GPU and nothing of CUDA but the driver, into a folder:
#   gpu-runtime            the whole suite
#   gpu-runtime-packaged   its generated kernels only, built as a consumer without CUDA does: from packaged code, with a
#                          PATH that holds nothing but the C compiler that rustc links with
# It wants a CUDA compiler here, for the first and for packaging (`kernel-gen doctor` says how to get one).
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh FOLDER}")
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
manifest=tests/gpu-runtime/Cargo.toml
mkdir -p "$out/bin"
cargo build --release --manifest-path "$manifest" --target-dir "$target"
cp "$target/release/gpu-runtime" "$out/gpu-runtime"
cargo run --package kernel-gen --target-dir "$target" -- package --spec tests/gpu-runtime/kernels.toml --out "$out/packaged"
for tool in cc as ld ar; do
  ln -sf "$(realpath "$(command -v "$tool")")" "$out/bin/$tool"
done
cargo=$(rustup which cargo 2>/dev/null || command -v cargo)
env -u CUDA_HOME -u CUDA_PATH -u NVCC -u LD_LIBRARY_PATH -u VIRTUAL_ENV -u CONDA_PREFIX \
  -u KERNEL_GEN_NVCC -u KERNEL_GEN_NVRTC -u KERNEL_GEN_PTXAS -u KERNEL_GEN_CUDA \
  PATH="$out/bin" RUSTC="${cargo%cargo}rustc" GPU_RUNTIME_ARTIFACTS="$out/packaged" \
  "$cargo" build --release --manifest-path "$manifest" --target-dir "$target/packaged" --no-default-features
cp "$target/packaged/release/gpu-runtime" "$out/gpu-runtime-packaged"
"$out/gpu-runtime-packaged"
