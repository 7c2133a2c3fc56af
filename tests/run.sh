#!/usr/bin/env bash
# All tests of all crates, and their count in the last line.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test --workspace --no-fail-fast -- --nocapture 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
count() { grep -E '^test result:' "$log" | grep -Eo "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }
skipped=$(grep -c '^\[SKIP\]' "$log")
printf '\n%s passed, %s failed, %s skipped\n' "$(count passed)" "$(count failed)" "$skipped"
exit "$status"
