#!/bin/bash
# Workers of a fleet as a Slurm job array: one task a worker, one worker a GPU.
#
#   export FLEET_SERVER=nats://head:4222 FLEET_CREDS=$HOME/fleet.creds
#   sbatch --array=0-15 slurm.sh
#
# | variable     | meaning                                                     | if unset         |
# |--------------|-------------------------------------------------------------|------------------|
# | FLEET_SERVER | URL of the NATS server, without a name and a password       | the job fails    |
# | FLEET_CREDS  | file with the credentials, readable on every node           | none are used    |
# | FLEET_CA     | certificate of your own authority                           | the system's     |
# | FLEET_TARGET | target of the GPUs                                          | sm_90a           |
# | FLEET_STREAM | name of the fleet                                           | kernel-gen       |
#
# sbatch passes its environment on to the job. Every user of a node can see command lines, so the password stays in the
# file: `chmod 600 fleet.creds`. Options on the line of sbatch override those below.
#
#SBATCH --job-name=kernel-gen-worker
#SBATCH --array=0-15
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --time=04:00:00
# SIGTERM 60 s before the time limit. A worker needs at most 20 s to finish what it measures and to give the rest back.
# `B:` sends the signal to the batch shell and to no other process. `exec` below makes the worker that process.
#SBATCH --signal=B:TERM@60
# A task that is preempted, or whose node fails, is queued again. A task that reached its time limit is not. A preempted
# task is not either on a cluster with GraceTime and SlurmctldParameters=preempt_send_user_signal: it counts as
# completed, because its worker ends within the grace time.
#SBATCH --requeue
#SBATCH --output=kernel-gen-worker-%A_%a.log
#SBATCH --open-mode=append

set -euo pipefail

: "${FLEET_SERVER:?set it to the URL of the NATS server, such as nats://head:4222}"
if [[ $FLEET_SERVER == *@* ]]; then
  echo "FLEET_SERVER holds a name or a password, which other users can read: put them into a file, FLEET_CREDS" >&2
  exit 2
fi
arguments=(--fleet "$FLEET_SERVER" --target "${FLEET_TARGET:-sm_90a}" --stream "${FLEET_STREAM:-kernel-gen}")
# Without this, a worker on a cluster that does not bind tasks to processors compiles on all processors of the node.
arguments+=(--build-jobs "${SLURM_CPUS_PER_TASK:-8}")
if [[ -n ${FLEET_CREDS:-} ]]; then
  arguments+=(--creds "$FLEET_CREDS")
fi
if [[ -n ${FLEET_CA:-} ]]; then
  arguments+=(--ca "$FLEET_CA")
fi
# Slurm shows each task its own GPU only, which is number 0, the default of --device.
exec kernel-gen-fleet worker "${arguments[@]}"
