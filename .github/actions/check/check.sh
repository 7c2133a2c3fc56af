#!/usr/bin/env bash
# `kernel-gen check` of SPEC, with what changes against the records of the revision BASE, if there is one. What it says is printed, and
# goes to the job's summary. It ends as the command does.
set -euo pipefail
spec=${SPEC:-kernels.toml}
tuned=${TUNED:-$(dirname "$spec")/tuned}
options=()
[ -z "${TUNED:-}" ] || options+=(--tuned "$TUNED")
[ "${SHIPPED:-true}" != false ] || options+=(--no-shipped)
[ "${DENY_FALLBACK:-false}" != true ] || options+=(--deny-fallback)
[ "${DENY_UNUSED:-false}" != true ] || options+=(--deny-unused)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "${BASE:-}" ]; then
  if ! git rev-parse --verify --quiet "$BASE^{commit}" > "$work/revision"; then
    echo "::error::the revision $BASE is not here; check out with \`fetch-depth: 0\`"
    exit 1
  fi
  mkdir "$work/before"
  # A revision that has no records yet is compared with as one that has none.
  if git cat-file -e "$BASE:./$tuned" 2> "$work/missing"; then
    git archive "$BASE:./$tuned" | tar -x -C "$work/before"
  fi
  options+=(--against "$work/before")
fi
status=0
kernel-gen check "$spec" "${options[@]}" > "$work/said" 2>&1 || status=$?
cat "$work/said"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  # Signs at the beginning of a line are what a block of a diff is coloured by.
  { printf '### kernel-gen check %s\n\n```diff\n' "$spec"; sed 's/^  \([-+] \)/\1/' "$work/said"; printf '```\n'; } >> "$GITHUB_STEP_SUMMARY"
fi
exit "$status"
