#!/usr/bin/env bash
# Installs the peers into a folder, builds, and prints the table of a list.
#
#     bash tests/peers/run.sh [list] [threads] [--crates] [options of the program]
#
# The list is resnet18 if left out, the threads are 1; `--help` for the options. With `--crates`, the crates tract, rten, candle
# and gemm take part in the place of ONNX Runtime and oneDNN, and nothing is installed. Environment:
#
#     PEERS_DIR      the folder of the peers (about 200 MB); tests/peers/target/install if unset
#     PEERS_RUN      a command to put before the program, such as one that keeps other programs quiet meanwhile
#     PEERS_LISTS    lists to build, so that a later run of one of them builds nothing; the one that is run if unset
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
list=${1:-resnet18}
threads=${2:-1}
shift $(($# < 2 ? $# : 2))
target=${CARGO_TARGET_DIR:-$here/target}
options=()
crates=false
for option in "$@"; do
  if [ "$option" = --crates ]; then crates=true; else options+=("$option"); fi
done

if $crates; then
  # For the processor at hand, as candle asks for; the others look for its instructions when they run.
  RUSTFLAGS="-C target-cpu=native" cargo build --release --manifest-path "$here/crates/Cargo.toml" --target-dir "$target/crates"
  peers=(--crates "$target/crates/release/libpeer_crates.so")
else
  install=${PEERS_DIR:-$here/target/install}
  # ONNX Runtime 1.31.1, and oneDNN 3.2.0 for OpenMP with its headers. No newer oneDNN on PyPI is built for OpenMP; those that
  # are built for SYCL pay several microseconds a call.
  packages=(onnxruntime==1.31.1 onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0)
  if [ "$(cat "$install/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    python3 -m venv "$install"
    "$install/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
    echo "${packages[*]}" >"$install/packages"
  fi
  shim=$install/lib/libonednn_peer.so
  if [ "$here/shim/onednn.cpp" -nt "$shim" ]; then
    "${CXX:-c++}" -O2 -std=c++17 -shared -fPIC -I"$install/include" "$here/shim/onednn.cpp" -o "$shim" \
      -L"$install/lib" -ldnnl -Wl,-rpath,"$install/lib"
  fi
  ort=$(echo "$install"/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*)
  case " $* " in
  *" --isa "*) # ONNX Runtime has no setting that turns AVX-512 off: a copy of it asks the program what the processor can do.
    masked=$install/libonnxruntime_masked.so
    [ -e "$masked" ] || python3 "$here/shim/mask_cpuid.py" "$ort" "$masked"
    ort=$masked
    ;;
  esac
  peers=(--ort "$ort" --onednn "$shim")
fi

# Ours are built as a user builds who knows how many threads the program has: records of as many are preferred.
export PEERS_THREADS=$threads
cargo build --quiet --release --manifest-path "$here/Cargo.toml" --target-dir "$target" \
  --no-default-features --features "${PEERS_LISTS:-$list}"
exec ${PEERS_RUN:-} "$target/release/peers" --list "$list" --threads "$threads" "${peers[@]}" ${options[@]+"${options[@]}"}
