#!/usr/bin/env bash
# The crates compile with the oldest versions that their manifests allow: what the lock file has says nothing of these.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive HEAD | tar -x -C "$work"
cd "$work"
# The option is unstable, and a stable cargo takes it if it is told so.
RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
cargo check --quiet --package kernel-gen-runtime --all-features --package kernel-gen-build --package kernel-gen
