#!/usr/bin/env bash
# Builds the book of `docs` with mdBook, which it installs if it is not there, and fails if that warns of anything. Links between pages are
# held by the test command (`consumers`, `book::`).
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(command -v mdbook || echo target/tools/bin/mdbook)
if [ ! -x "$tool" ]; then
  cargo install --quiet mdbook --version '^0.4' --no-default-features --root target/tools --target-dir target/tools/build
fi
"$tool" build docs 2>&1 | tee target/book.log
! grep -qE 'WARN|ERROR' target/book.log
