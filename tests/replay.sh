#!/usr/bin/env bash
# Whether this tree emits the kernels of the last landing, by the hashes in specs/replay.txt: tests/replay.sh [--sample N].
# Where one changed, the commit that wrote the hashes is built too, and the first difference is shown. Kernels that are meant to change
# are written by `kernel-gen replay specs/replay.txt --write`, and named in the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --quiet --package kernel-gen
program=target/release/kernel-gen
if "$program" replay specs/replay.txt "$@"; then exit 0; fi
last=$(git log -n 1 --format=%H -- specs/replay.txt)
before=target/replay/$last
if [ ! -x "$before/kernel-gen" ]; then
  git worktree add --force --detach "$before/tree" "$last" >&2
  cargo build --release --quiet --package kernel-gen --manifest-path "$before/tree/Cargo.toml" --target-dir "$before/target"
  cp "$before/target/release/kernel-gen" "$before/kernel-gen"
  git worktree remove --force "$before/tree"
  rm -r "$before/target"
fi
"$program" replay specs/replay.txt "$@" --before "$before/kernel-gen"
