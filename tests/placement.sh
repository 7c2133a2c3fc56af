#!/usr/bin/env bash
# Checks the files of kernel-gen/fleet/placement, without any cluster:
#
# - kubernetes.yaml: every document against Kubernetes' own schema, in strict mode; the names that one document uses and
#   another one defines; the shell command of a worker; the server's configuration;
# - slurm.sh: by Slurm itself, a controller and a node on the loopback, which has GPUs by number only. A program that
#   waits for SIGTERM stands for the worker.
#
# Each check also gets a wrong copy, which it has to refuse. The tools come from PyPI and Debian. They are unpacked into
# target/, once, and are not installed. If one cannot be had, a line with [SKIP] says so.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
placement=$root/kernel-gen/fleet/placement
mkdir -p "$root/target"
work=$(mktemp -d "$root/target/placement.XXXXXX")
daemons=()
end() {
  local status=$?
  if ((${#daemons[@]})); then
    scancel --user="$(id -un)" >/dev/null 2>&1 || true
    sleep 0.5
    kill "${daemons[@]}" 2>/dev/null || true
    wait "${daemons[@]}" 2>/dev/null || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap end EXIT

ok() { printf 'ok: %s\n' "$*"; }
skip() { printf '[SKIP] %s\n' "$*"; }
fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}
last_line() { grep . "$1" | tail -n 1; }

# refused FILE EXPRESSION WHAT COMMAND...: sed changes a copy of FILE, and COMMAND has to fail with it and to say WHAT.
refused() {
  local file=$1 expression=$2 what=$3 copy
  shift 3
  mkdir -p "$work/wrong"
  copy="$work/wrong/$(basename "$file")"
  sed -E "$expression" "$file" >"$copy"
  chmod +x "$copy"
  if cmp -s "$file" "$copy"; then fail "nothing in $(basename "$file") for: $expression"; fi
  if "$@" "$copy" >"$work/said" 2>&1; then fail "not refused: $expression"; fi
  grep -qF -- "$what" "$work/said" || fail "refused for another reason: $expression: $(last_line "$work/said")"
}

# until_true SECONDS COMMAND...: repeats COMMAND until it succeeds.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

kubernetes_schemas() {
  local folder="$root/target/kubernetes-validate-1.37.0" draft="$work/schemas" log="$work/schemas.log" python=python3
  if [[ ! -d $folder ]]; then
    python3 -m pip --version >"$log" 2>&1 || {
      # Debian's Python has no pip of its own, but can make an environment that has.
      python3 -m venv "$work/venv" >>"$log" 2>&1 && python="$work/venv/bin/python3"
    }
    "$python" -m pip install --quiet --disable-pip-version-check --no-warn-script-location --target "$draft" \
      kubernetes-validate==1.37.0 >>"$log" 2>&1 || return 1
    # Of 26 sets of schemas two are used.
    find "$draft/kubernetes_validate/kubernetes-json-schema" -mindepth 1 -maxdepth 1 \
      ! -name 'v1.31.0-local-strict' ! -name 'v1.37.0-local-strict' ! -name 'v1.31.0-local' ! -name 'v1.37.0-local' \
      -exec rm -r {} +
    # Of two runs at the same time the second finds the folder there.
    mv -T "$draft" "$folder" 2>/dev/null || true
  fi
  export PYTHONPATH="$folder"
}

# The oldest version whose podFailurePolicy is stable, and the newest that the schemas know.
schema() { python3 -m kubernetes_validate --strict --quiet -k 1.31 -k 1.37 "$1"; }

# What a schema does not know: whether what a document names is there.
names() { python3 "$work/names.py" "$1"; }

cat >"$work/names.py" <<'PYTHON'
import sys
import yaml

documents = list(yaml.safe_load_all(open(sys.argv[1])))
kind = lambda wanted: {d["metadata"]["name"]: d for d in documents if d["kind"] == wanted}
configs, secrets, claims = kind("ConfigMap"), kind("Secret"), kind("PersistentVolumeClaim")
services, jobs, sets = kind("Service"), kind("Job"), kind("StatefulSet")
errors = []


def need(is_there, what):
    if not is_there:
        errors.append(what)


def keys(document):
    return {**document.get("data", {}), **document.get("stringData", {})}


def source(owner, named, all_of, items, what):
    need(named in all_of, f"{owner}: there is no {what} {named}")
    for item in items or []:
        need(named in all_of and item["key"] in keys(all_of[named]), f"{owner}: {named} has no key {item['key']}")


need(len({(d["kind"], d["metadata"]["name"]) for d in documents}) == len(documents), "a name is there twice")
for owner, document in {**jobs, **sets}.items():
    template = document["spec"]["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    volumes = {v["metadata"]["name"] for v in document["spec"].get("volumeClaimTemplates", [])}
    volumes |= {v["name"] for v in pod["volumes"]}
    for volume in pod["volumes"]:
        for part in volume.get("projected", {}).get("sources", [volume]):
            if "configMap" in part:
                source(owner, part["configMap"]["name"], configs, part["configMap"].get("items"), "ConfigMap")
            if "secret" in part:
                secret = part["secret"]
                source(owner, secret.get("secretName", secret.get("name")), secrets, secret.get("items"), "Secret")
            if "persistentVolumeClaim" in part:
                source(owner, part["persistentVolumeClaim"]["claimName"], claims, [], "claim")
    containers = pod["containers"]
    for container in containers:
        need({m["name"] for m in container["volumeMounts"]} == volumes, f"{owner}: mounts and volumes differ")
        variables = {}
        for given in container.get("envFrom", []):
            source(owner, given["configMapRef"]["name"], configs, [], "ConfigMap")
            variables.update(keys(configs.get(given["configMapRef"]["name"], {})))
        for variable in ("FLEET_SERVER", "FLEET_STREAM", "FLEET_TARGET"):
            used = any("$" + variable in argument for argument in container.get("args", []))
            need(not used or variable in variables, f"{owner}: nothing sets {variable}")
    selector = document["spec"].get("selector", {}).get("matchLabels", labels)
    need(selector == labels, f"{owner}: the selector selects other pods")
    for rule in document["spec"].get("podFailurePolicy", {}).get("rules", []):
        need(pod["restartPolicy"] == "Never", f"{owner}: podFailurePolicy asks for restartPolicy Never")
        named = rule.get("onExitCodes", {}).get("containerName", containers[0]["name"])
        need(named in {c["name"] for c in containers}, f"{owner}: there is no container {named}")
for name, service in services.items():
    pods = [d["spec"]["template"] for d in {**jobs, **sets}.values()]
    behind = [p for p in pods if service["spec"]["selector"].items() <= p["metadata"]["labels"].items()]
    need(len(behind) == 1, f"service {name}: {len(behind)} kinds of pod behind it")
    ports = {p["name"] for pod in behind for c in pod["spec"]["containers"] for p in c.get("ports", [])}
    need(all(p["targetPort"] in ports for p in service["spec"]["ports"]), f"service {name}: no such port")
host, port = configs["kernel-gen-fleet"]["data"]["FLEET_SERVER"].removeprefix("nats://").split(":")
served = {(name, p["port"]) for name, service in services.items() for p in service["spec"]["ports"]}
need((host, int(port)) in served, f"no service {host}:{port}")
workers = jobs["kernel-gen-workers"]["spec"]
resources = workers["template"]["spec"]["containers"][0]["resources"]
need(all(resources[k].get("nvidia.com/gpu") == 1 for k in ("requests", "limits")), "a worker has one GPU")
need(workers["completions"] == workers["parallelism"], "each index has a worker")
need(workers["template"]["spec"]["terminationGracePeriodSeconds"] > 20, "a worker may take 20 s to end")
for error in errors:
    print(error)
sys.exit(bool(errors))
PYTHON

# A text of a document: text NAME KIND PATH..., from kubernetes.yaml.
text() {
  python3 - "$placement/kubernetes.yaml" "$@" <<'PYTHON'
import sys
import yaml

file, name, kind, *path = sys.argv[1:]
found = [d for d in yaml.safe_load_all(open(file)) if (d["metadata"]["name"], d["kind"]) == (name, kind)][0]
for part in path:
    found = found[int(part) if part.isdigit() else part]
print(found)
PYTHON
}

# Stands for the worker: notes its arguments, and that SIGTERM came.
stand_in() {
  mkdir -p "$work/bin"
  cat >"$work/bin/kernel-gen-fleet" <<'WORKER'
#!/bin/bash
printf '%s\n' "$@" >"$NOTES.arguments"
trap 'touch "$NOTES.ended"; exit 0' TERM
echo "$$" >"$NOTES.started"
[[ -z ${ENDS_WITH:-} ]] || exit "$ENDS_WITH"
for ((i = 0; i < 300; i++)); do sleep 0.1; done
WORKER
  chmod +x "$work/bin/kernel-gen-fleet"
}

# The shell command of a worker's container: SIGTERM reaches the worker, and the status says what happened.
worker_command() {
  local command=$1 status=0 pid
  export NOTES="$work/pod" FLEET_SERVER=nats://server:4222 FLEET_STREAM=kernel-gen FLEET_TARGET=sm_90a
  rm -f "$NOTES".*
  PATH="$work/bin:$PATH" /bin/bash -c "$(cat "$command")" &
  pid=$!
  until_true 10 test -s "$NOTES.started" || { echo "the worker does not start"; return 1; }
  kill -TERM "$pid"
  wait "$pid" || status=$?
  if [[ ! -e $NOTES.ended ]]; then
    kill "$(cat "$NOTES.started")"
    echo "SIGTERM does not reach the worker"
    return 1
  fi
  [[ $status == 143 ]] || { echo "status $status after SIGTERM, not 143"; return 1; }
  status=0
  ENDS_WITH=2 PATH="$work/bin:$PATH" /bin/bash -c "$(cat "$command")" || status=$?
  [[ $status == 2 ]] || { echo "status $status of a worker that ends with 2"; return 1; }
}

server_configuration() {
  local folder="$work/nats"
  mkdir -p "$folder"
  # The account's part is the user's; without one the rest of the configuration is checked.
  : >"$folder/auth.conf"
  cp "$1" "$folder/nats.conf"
  "${KERNEL_GEN_TEST_NATS:-nats-server}" -t --config "$folder/nats.conf"
}

stand_in
if kubernetes_schemas; then
  yaml=$placement/kubernetes.yaml
  schema "$yaml" || fail "kubernetes.yaml"
  refused "$yaml" 's/terminationGracePeriodSeconds/terminationGracePeriodSecond/' terminationGracePeriodSecond schema
  refused "$yaml" 's/parallelism: 8/parallelism: eight/' eight schema
  refused "$yaml" 's/onPodConditions/onPodCondition/' onPodCondition schema
  ok "kubernetes.yaml: $(grep -c '^kind:' "$yaml") documents, strict mode, schemas of Kubernetes 1.31 and 1.37;" \
    "3 wrong copies are refused"
  names "$yaml" || fail "kubernetes.yaml: names"
  refused "$yaml" 's/configMap: \{name: kernel-gen-spec\}/configMap: {name: kernel-gen-specs}/' kernel-gen-specs names
  refused "$yaml" 's/claimName: kernel-gen-session/claimName: session/' 'no claim session' names
  refused "$yaml" 's/containerName: worker/containerName: workers/' 'no container workers' names
  refused "$yaml" 's/kernel-gen-nats:4222/kernel-gen-nats:4223/' 'no service kernel-gen-nats:4223' names
  refused "$yaml" 's/nvidia.com\/gpu: 1/nvidia.com\/gpu: 2/' 'one GPU' names
  ok "kubernetes.yaml: names, ports and GPUs; 5 wrong copies are refused"
  text kernel-gen-workers Job spec template spec containers 0 args 0 >"$work/worker.sh"
  worker_command "$work/worker.sh" 2>"$work/said" || fail "the worker's command in kubernetes.yaml"
  refused "$work/worker.sh" 's/^ *trap .*//' 'does not reach the worker' worker_command
  refused "$work/worker.sh" 's/exit 143/exit 0/' 'status 0 after SIGTERM' worker_command
  ok "kubernetes.yaml: SIGTERM reaches the worker, statuses are 143 and its own; 2 wrong copies are refused"
  source tests/nats.sh
  if [[ -n ${KERNEL_GEN_TEST_NATS:-} ]] || command -v nats-server >/dev/null; then
    text kernel-gen-nats ConfigMap data nats.conf >"$work/nats.conf"
    server_configuration "$work/nats.conf" >"$work/said" 2>&1 || fail "nats.conf: $(last_line "$work/said")"
    refused "$work/nats.conf" 's/max_file_store/max_files_store/' max_files_store server_configuration
    ok "kubernetes.yaml: the server takes nats.conf; 1 wrong copy is refused"
  fi
else
  skip "no Kubernetes schemas: they cannot be installed: $(last_line "$work/schemas.log")"
fi

bash -n "$placement/slurm.sh" || fail "slurm.sh"
refused "$placement/slurm.sh" 's/^fi$//' syntax bash -n
said=$(env -u FLEET_SERVER bash "$placement/slurm.sh" 2>&1) && fail "slurm.sh without FLEET_SERVER"
[[ $said == *"set it to the URL"* ]] || fail "slurm.sh without FLEET_SERVER says: $said"
said=$(FLEET_SERVER=nats://me:secret@head:4222 bash "$placement/slurm.sh" 2>&1) && fail "slurm.sh with a password"
[[ $said == *"FLEET_CREDS"* && $said != *secret* ]] || fail "slurm.sh with a password says: $said"
ok "slurm.sh: bash reads it; it asks for a server, and refuses a password in the URL"

# Slurm's programs and plugins, unpacked.
slurm_packages() {
  local packages=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15)
  local folder="$root/target/slurm-debian" log="$work/slurm.log" draft="$work/slurm" name
  if [[ ! -d $folder ]]; then
    { command -v apt-get && command -v dpkg; } >"$log" || { echo "this is no Debian" >"$log"; return 1; }
    mkdir -p "$draft/packages"
    (cd "$draft/packages" && apt-get download "${packages[@]}") >"$log" 2>&1 || return 1
    for name in "$draft"/packages/*.deb; do
      dpkg -x "$name" "$draft"
    done
    rm -rf "$draft/packages" "$draft/usr/share"
    mv -T "$draft" "$folder" 2>/dev/null || true
  fi
  slurm="$folder/usr"
  plugins=$(dirname "$(find "$folder/usr/lib" -name gres_gpu.so | head -n 1)")
  [[ -d $plugins && -x $slurm/bin/sbatch ]] || { echo "its packages have other files" >"$log"; return 1; }
  export LD_LIBRARY_PATH="$plugins:$(dirname "$plugins")" PATH="$slurm/bin:$PATH"
}

node_is_idle() { [[ $(sinfo --noheader --format=%T) == idle ]]; }
job_is_over() { [[ -z $(squeue --noheader --jobs="$1") ]]; }

# A cluster of one node with four GPUs, which exist as a number only. scontrol sets that number: this version of Slurm
# does not take it from the node's line.
slurm_cluster() {
  local host ports
  host=$(uname -n)
  host=${host%%.*}
  read -r -a ports < <(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))')
  mkdir -p "$work/cluster/state" "$work/cluster/spool"
  export SLURM_CONF="$work/cluster/slurm.conf"
  printf 'Name=gpu Count=4\n' >"$work/cluster/gres.conf"
  # The plugin is named so that none is searched for. With the settings below no control group is made.
  printf 'CgroupPlugin=cgroup/v1\n' >"$work/cluster/cgroup.conf"
  cat >"$SLURM_CONF" <<CONF
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/none
CredType=cred/none
PluginDir=$plugins
StateSaveLocation=$work/cluster/state
SlurmdSpoolDir=$work/cluster/spool
SlurmctldPidFile=$work/cluster/slurmctld.pid
SlurmdPidFile=$work/cluster/slurmd.pid
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
GresTypes=gpu
NodeName=node NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=32 RealMemory=65536
PartitionName=all Nodes=node Default=YES MaxTime=INFINITE State=UP
CONF
  local control=("$slurm"/sbin/slurmctld*) node=("$slurm"/sbin/slurmd*) step=("$slurm"/sbin/slurmstepd*)
  "${control[0]}" -D -f "$SLURM_CONF" >"$work/cluster/slurmctld.log" 2>&1 &
  daemons+=($!)
  "${node[0]}" -D -N node -d "${step[0]}" -f "$SLURM_CONF" >"$work/slurm.log" 2>&1 &
  daemons+=($!)
  until_true 15 node_is_idle || return 1
  scontrol update NodeName=node Gres=gpu:4 >>"$work/slurm.log" 2>&1
}
# Slurm runs the script. The batch shell alone gets SIGTERM, as with `--signal=B:TERM@60`, and the worker has to get it.
slurm_run() {
  local job
  rm -f "$work"/task.*
  job=$(NOTES="$work/task" sbatch --parsable --array=0 --output="$work/task.log" "$1")
  if ! until_true 15 test -s "$work/task.started"; then echo "the worker does not start"; return 1; fi
  scancel --batch --signal=TERM "${job}_0"
  if ! until_true 3 test -e "$work/task.ended"; then
    scancel "$job"
    kill "$(cat "$work/task.started")"
    echo "SIGTERM does not reach the worker"
    return 1
  fi
  until_true 10 job_is_over "$job"
}

slurm_takes() { sbatch --test-only "$1"; }

if ! slurm_packages; then
  skip "no Slurm: its packages cannot be had: $(last_line "$work/slurm.log")"
elif ! slurm_cluster; then
  skip "no Slurm: it does not start here: $(last_line "$work/slurm.log")"
else
  export PATH="$work/bin:$PATH" FLEET_SERVER=nats://head:4222 FLEET_CREDS=/home/me/fleet.creds
  script=$placement/slurm.sh
  slurm_takes "$script" >"$work/said" 2>&1 || fail "sbatch --test-only: $(last_line "$work/said")"
  grep -q 'using 8 processors' "$work/said" || fail "sbatch --test-only says: $(last_line "$work/said")"
  refused "$script" 's/--gres=gpu:1/--gres=gpu:9/' 'node configuration is not available' slurm_takes
  refused "$script" 's/B:TERM@60/B:TRM@60/' 'Invalid --signal' slurm_takes
  refused "$script" 's/--requeue/--requeued/' 'unrecognized option' slurm_takes
  ok "slurm.sh: sbatch --test-only, $(sbatch --version); 3 wrong copies are refused"
  slurm_run "$script" || fail "slurm.sh: $(last_line "$work/task.log")"
  wanted="worker --fleet nats://head:4222 --target sm_90a --stream kernel-gen --build-jobs 8"
  arguments=$(paste -sd ' ' "$work/task.arguments")
  [[ $arguments == "$wanted --creds /home/me/fleet.creds" ]] || fail "slurm.sh: the worker's arguments: $arguments"
  refused "$script" 's/^exec //' 'does not reach the worker' slurm_run
  ok "slurm.sh: Slurm runs it, and SIGTERM to the batch shell reaches the worker; 1 wrong copy is refused"
fi
