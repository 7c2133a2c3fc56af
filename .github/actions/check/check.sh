#!/usr/bin/env bash
# `kernel-gen check` of SPEC, with what changes against the records of the revision BASE, if there is one. Prints what it says and
# writes it to the job's summary. Exits with the command's status.
set -euo pipefail
spec=${SPEC:-kernels.toml}
tuned=${TUNED:-$(dirname "$spec")/tuned}
options=()
[ -z "${TUNED:-}" ] || options+=(--tuned "$TUNED")
[ -z "${ARCH:-}" ] || options+=(--arch "$ARCH")
[ "${SHIPPED:-true}" != false ] || options+=(--no-shipped)
[ "${DENY_FALLBACK:-false}" != true ] || options+=(--deny-fallback)
[ "${DENY_UNUSED:-false}" != true ] || options+=(--deny-unused)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "${BASE:-}" ]; then
  # The records' folder may lie anywhere in the repository, which need not be the one that this is run in.
  folder=$(dirname "$tuned")
  root=$(git -C "$folder" rev-parse --show-toplevel)
  path=$(git -C "$folder" rev-parse --show-prefix)$(basename "$tuned")
  # What the branch has gained since is no change of this one.
  if ! base=$(git -C "$root" merge-base "$BASE" HEAD); then
    echo "::error::the revision $BASE, or where it parted from this one, is not here; check out with \`fetch-depth: 0\`"
    exit 1
  fi
  mkdir "$work/before"
  # A revision that has no records yet is compared with as one that has none.
  if tree=$(git -C "$root" rev-parse --verify --quiet "$base:$path"); then
    GIT_INDEX_FILE="$work/index" git -C "$root" read-tree "$tree"
    GIT_INDEX_FILE="$work/index" git -C "$root" checkout-index --all --prefix="$work/before/"
  fi
  options+=(--against "$work/before")
fi
status=0
# Before bash 4.4 an array without elements is unbound.
kernel-gen check "$spec" ${options[@]+"${options[@]}"} > "$work/said" 2>&1 || status=$?
cat "$work/said"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  # A block of a diff colours lines that start with a sign.
  { printf '### kernel-gen check %s\n\n```diff\n' "$spec"; sed 's/^  \([-+] \)/\1/' "$work/said"; printf '```\n'; } >> "$GITHUB_STEP_SUMMARY"
fi
exit "$status"
