#!/usr/bin/env bash
# Runs the GPU suite that lies beside this script: run.sh families | bench | search [options].
# The vendor's libraries are looked for first: the program opens cuBLAS, cuDNN and NVRTC by their plain names.
set -u
here=$(cd "$(dirname "$0")" && pwd)
links=$(mktemp -d)
trap 'rm -rf "$links"' EXIT
path=$links
for library in cudnn cublas cublasLt nvrtc; do
  file=$(find /usr /opt -name "lib$library.so.*" -not -path '*stubs*' 2>/dev/null | sort | tail -n 1)
  [ -n "$file" ] || continue
  ln -sf "$file" "$links/lib$library.so"
  path=$path:$(dirname "$file")
done
# NVRTC compiles in a tenth of nvcc's time.
KERNEL_GEN_CUDA=${KERNEL_GEN_CUDA-nvrtc} LD_LIBRARY_PATH=$path:${LD_LIBRARY_PATH-} "$here/gpu-suite" "$@"
