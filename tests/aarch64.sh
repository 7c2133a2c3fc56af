# Gives the tests a compiler and an emulator of 64-bit Arm on a machine that has none: Debian's packages, unpacked below
# target/, once. To be sourced; sets KERNEL_GEN_TEST_AARCH64_CC and KERNEL_GEN_TEST_AARCH64_RUN. Nothing is installed
# anywhere else; a machine that is no Debian, or has no network, only skips what needs them, and says so.

aarch64_tools() {
  local packages=(binutils-aarch64-linux-gnu cpp-12-aarch64-linux-gnu gcc-12-aarch64-linux-gnu libgcc-12-dev-arm64-cross
    libgcc-s1-arm64-cross libc6-arm64-cross libc6-dev-arm64-cross linux-libc-dev-arm64-cross libcapstone4 qemu-user)
  local folder="$PWD/target/aarch64-gcc-12" log="$PWD/target/aarch64-tools.log" name
  if [[ -n ${KERNEL_GEN_TEST_AARCH64_CC:-} ]] || { command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64; } >/dev/null; then
    return 0
  fi
  if [[ ! -x $folder/cc ]]; then
    local draft="$folder.$$"
    mkdir -p "$draft/packages"
    if ! (cd "$draft/packages" && apt-get download "${packages[@]}") >"$log" 2>&1; then
      printf '[SKIP] no aarch64 compiler: its packages cannot be downloaded: %s\n' "$(grep . "$log" | tail -n 1)"
      rm -rf "$draft"
      return 0
    fi
    for name in "$draft"/packages/*.deb; do
      dpkg -x "$name" "$draft"
    done
    # Of the emulators one is wanted; link-time optimisation is not.
    find "$draft/usr/bin" -name 'qemu-*' ! -name qemu-aarch64 -delete
    rm -rf "$draft/packages" "$draft"/usr/lib/gcc-cross/*/*/lto1 "$draft"/usr/share
    # The compiler looks for its libraries where Debian installs them, so it is told where they are; and so is the emulator.
    cat >"$draft/cc" <<'CC'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")
export PATH="$root/usr/bin:$PATH"
export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu"
exec "$root/usr/bin/aarch64-linux-gnu-gcc-12" -B"$root/usr/aarch64-linux-gnu/lib" \
  -isystem "$root/usr/aarch64-linux-gnu/include" -L"$root/usr/aarch64-linux-gnu/lib" "$@"
CC
    cat >"$draft/run" <<'RUN'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu"
exec "$root/usr/bin/qemu-aarch64" "$@"
RUN
    chmod +x "$draft/cc" "$draft/run"
    # Of two runs at the same time the second finds the folder there.
    mv -T "$draft" "$folder" 2>/dev/null || rm -rf "$draft"
  fi
  export KERNEL_GEN_TEST_AARCH64_CC="$folder/cc"
  export KERNEL_GEN_TEST_AARCH64_RUN="$folder/run"
}
aarch64_tools
