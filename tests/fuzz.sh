#!/usr/bin/env bash
# Random workloads, another draw every day: what CI takes a fixed sample of, larger and with a new seed.
#
#     bash tests/fuzz.sh [SEED] [WORKLOADS]
#
# SEED is the number of days since 1970 where none is given, so that a run every night sees what no earlier one did, and can be
# repeated. Each suite prints what failed with its seed; the last line says which suites did. WORKLOADS is 60.
set -uo pipefail
cd "$(dirname "$0")/.."
source tests/cuda.sh
seed=${1:-$(($(date +%s) / 86400))}
export KERNEL_GEN_WORKLOADS=${2:-60}
# Suites count up from their first seed: days stand further apart than that.
export KERNEL_GEN_SEED=$((seed * 100000))
failed=()
for suite in verify operators never_refused cpu_templates cuda_templates verify_templates networks; do
  printf '\n== %s, seed %s, %s workloads\n' "$suite" "$KERNEL_GEN_SEED" "$KERNEL_GEN_WORKLOADS"
  # A program of its own, or a module of the one that most suites are in.
  test=(kernels "$suite::")
  [[ -e kernel-gen/tests/$suite.rs ]] && test=("$suite")
  cargo test --release --package kernel-gen --test "${test[@]}" -- --nocapture || failed+=("$suite")
done
printf '\nseed %s (%s of the day %s): ' "$KERNEL_GEN_SEED" "$KERNEL_GEN_WORKLOADS workloads" "$seed"
if ((${#failed[@]})); then printf 'failed: %s\n' "${failed[*]}"; exit 1; fi
echo "nothing failed"
