#!/usr/bin/env bash
# The runtime's safe API on a CPU under valgrind: tables of stub kernels, views, tensors, arenas, threads, executors. An access
# outside of a heap block, a read of memory that nothing has written and a wrong free end it with status 99.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "[SKIP] needs valgrind"; exit 0; }
tests=$(cargo test --package kernel-gen-runtime --lib --target-dir target --no-run --message-format=json |
  grep -o '"executable":"[^"]*"' | cut -d'"' -f4 | tail -1)
# Not the tests that take the machine's time: an emulated processor runs one thread at a time.
valgrind --quiet --error-exitcode=99 --fair-sched=yes --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
  "$tests" --test-threads=1 dispatch:: arena:: tensor:: view:: cpu:: blocked:: \
  pool::tests::fewer pool::tests::a_launch_inside pool::tests::a_panic pool::tests::a_pool
