#!/usr/bin/env bash
# Sanitizers: the runtime's tests, and emitted C on random workloads.
#
#     bash tests/sanitize.sh [SEED] [WORKLOADS]
#
# - AddressSanitizer over the runtime's tests (accesses outside of a block, use after free, leaks).
# - ThreadSanitizer over the same (data races). It must see the standard library's atomics, so it wants the library's source:
#   `rustup component add rust-src`.
# - valgrind over those of the tests that it can run (`tests/memcheck.sh`), as a second opinion, also on memory that nothing has written.
# - AddressSanitizer and UndefinedBehaviorSanitizer over the C of two kernels for each of WORKLOADS random workloads (200), on
#   every instruction set level of this machine.
#
# SEED is the number of days since 1970 where none is given, as in `tests/fuzz.sh`. What cannot run here says [SKIP]; the last line says
# what failed.
set -uo pipefail
cd "$(dirname "$0")/.."
seed=${1:-$(($(date +%s) / 86400))}
host=$(rustc -vV | sed -n 's/^host: //p')
failed=()
say() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

# The runtime's tests with one of rustc's sanitizers, in a target folder of its own. It is a flag of nightly compilers, which
# RUSTC_BOOTSTRAP asks a stable one for.
runtime() {
  local sanitizer=$1
  shift
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer" cargo test --package kernel-gen-runtime --all-features --lib --tests \
    --target "$host" --target-dir "target/sanitize-$sanitizer" "$@" || failed+=("the runtime with the $sanitizer sanitizer")
}

# Two tests leak what a program holds in a static.
suppressions=$(mktemp)
trap 'rm -f "$suppressions"' EXIT
echo 'leak:image::tests::bundle' >"$suppressions"

say "the runtime's tests, AddressSanitizer"
if [[ $host == *-linux-gnu ]]; then
  # A test forks, and a process that is being traced cannot be looked through for leaks: what it is reported for is a failure.
  LSAN_OPTIONS="suppressions=$suppressions:print_suppressions=0" ASAN_OPTIONS=detect_stack_use_after_return=1 runtime address
else
  echo "[SKIP] rustc has it for Linux only among the hosts that this script knows ($host)"
fi

say "the runtime's tests, ThreadSanitizer"
if [[ $host != *-linux-gnu ]]; then
  echo "[SKIP] as above"
elif [[ -d $(rustc --print sysroot)/lib/rustlib/src/rust/library ]]; then
  # A test forks and launches in the child, where the sanitizer would end a process that starts threads.
  TSAN_OPTIONS=die_after_fork=0 runtime thread -Zbuild-std
else
  echo "[SKIP] needs the standard library's source: rustup component add rust-src"
fi

say "the runtime's tests, valgrind"
bash tests/memcheck.sh || failed+=("valgrind")

workloads=${2:-200}
say "emitted C of $workloads random workloads, AddressSanitizer and UndefinedBehaviorSanitizer, seed $((seed * 100000))"
KERNEL_GEN_SEED=$((seed * 100000)) KERNEL_GEN_WORKLOADS=$workloads \
  cargo test --package kernel-gen --test kernels sanitized:: -- --nocapture || failed+=("emitted C")

printf '\nsanitizers, seed %s of the day %s, %s s: ' "$((seed * 100000))" "$seed" "$SECONDS"
if ((${#failed[@]})); then printf 'failed:'; printf ' %s;' "${failed[@]}"; echo; exit 1; fi
echo "nothing failed"
