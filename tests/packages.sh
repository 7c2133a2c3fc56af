#!/usr/bin/env bash
# From packages only: packs every crate as `cargo publish` would, unpacks them, and builds and runs the README's quick start on
# what was unpacked, offline.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
crates=(kernel-gen-records kernel-gen-runtime kernel-gen kernel-gen-build)
# The command with fleets is packed as well, and is no part of a consumer.
all=("${crates[@]}" kernel-gen-fleet)
cargo package --quiet --no-verify --allow-dirty --target-dir "$work/target" "${all[@]/#/--package=}"
for crate in "${all[@]}"; do
  file=("$work"/target/package/"$crate"-[0-9]*.crate)
  tar -xzf "${file[0]}" -C "$work"
  mv "$work/$(basename "${file[0]}" .crate)" "$work/$crate"
  for needed in LICENSE-MIT LICENSE-APACHE README.md; do
    [ -f "$work/$crate/$needed" ] || { echo "$crate has no $needed"; exit 1; }
  done
  printf '%s: %s bytes packed\n' "$crate" "$(stat -c %s "${file[0]}")"
done
mkdir -p "$work/consumer/src"
cd "$work/consumer"
# The blocks of the README, each by the name in its first line.
awk -v out="$work/consumer" '
  /^```/ { inside = !inside; file = ""; next }
  inside && file == "" { name = $2; file = name == "main.rs" ? "src/main.rs" : name; if (name !~ /^(kernels.toml|build.rs|main.rs)$/) file = "-" }
  inside && file != "-" { print > (out "/" file) }
' "$root/README.md"
{
  printf '[package]\nname = "consumer"\nversion = "0.1.0"\nedition = "2024"\n\n[workspace]\n'
  printf '[dependencies]\nkernel-gen-runtime = "0.1.0"\n[build-dependencies]\nkernel-gen-build = "0.1.0"\n[patch.crates-io]\n'
  for crate in "${crates[@]}"; do printf '%s = { path = "../%s" }\n' "$crate" "$crate"; done
} > Cargo.toml
cp "$root/Cargo.lock" .
cargo run --quiet --offline --target-dir "$work/built" | tee "$work/said"
grep -q shipped "$work/said"
