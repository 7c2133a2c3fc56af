# Gives the tests a CUDA compiler on a machine that has none: NVIDIA's wheels, unpacked below target/, once. To be
# sourced; sets KERNEL_GEN_NVRTC, KERNEL_GEN_PTXAS and KERNEL_GEN_TEST_NVCC. Nothing is installed anywhere else, and a
# machine with no network only skips what needs a compiler, and says so.

cuda_wheels() {
  # Every wheel by its version and without dependencies: with them pip takes newer parts, whose PTX these refuse.
  local nvrtc=(nvidia-cuda-nvrtc==13.0.88)
  local nvcc=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85)
  local folder="$PWD/target/cuda-13.0.88"
  local cu13="$folder/nvidia/cu13"
  if [[ -n ${KERNEL_GEN_NVRTC:-} ]]; then
    return 0
  fi
  if [[ ! -e $cu13/lib/libnvrtc.so.13 ]]; then
    local draft="$folder.$$" log="$PWD/target/cuda-wheels.log" python=python3
    mkdir -p "$draft"
    if ! "$python" -m pip --version >"$log" 2>&1; then
      # Debian's Python has no pip of its own, but can make an environment that has.
      "$python" -m venv "$draft/venv" >>"$log" 2>&1 && python="$draft/venv/bin/python3"
    fi
    local install=("$python" -m pip install --quiet --disable-pip-version-check --no-deps --target)
    if ! "${install[@]}" "$draft/all" "${nvrtc[@]}" "${nvcc[@]}" >>"$log" 2>&1; then
      # A Python that belongs to the system may refuse (PEP 668) what an environment does not.
      "$python" -m venv "$draft/venv" >>"$log" 2>&1 && install[0]="$draft/venv/bin/python3"
      rm -rf "$draft/all"
      if ! "${install[@]}" "$draft/all" "${nvrtc[@]}" "${nvcc[@]}" >>"$log" 2>&1; then
        printf '[SKIP] no NVRTC: its wheel cannot be installed: %s\n' "$(grep . "$log" | tail -n 1)"
        rm -rf "$draft"
        return 0
      fi
    fi
    # Copies for another C library, and what only linking needs: half of it all.
    rm -f "$draft"/all/nvidia/cu13/lib/*.alt.so* "$draft"/all/nvidia/cu13/lib/libnvvm.so.* \
      "$draft"/all/nvidia/cu13/bin/nvlink
    # Of two runs at the same time the second finds the folder there.
    mv -T "$draft/all" "$folder" 2>/dev/null || true
    rm -rf "$draft"
  fi
  export KERNEL_GEN_NVRTC="$cu13/lib"
  export KERNEL_GEN_PTXAS="${KERNEL_GEN_PTXAS:-$cu13/bin/ptxas}"
  export KERNEL_GEN_TEST_NVCC="${KERNEL_GEN_TEST_NVCC:-$cu13/bin/nvcc}"
}
cuda_wheels
