#!/bin/bash
# Slurm's Prolog: a node that is not ready is drained with the reason, before a job is on it.
#
#   cp jobs/node/check.sh jobs/slurm/*.sh /etc/slurm/tcpx-mpi/       on every node, with a node.conf (check.sh)
#   Prolog=/etc/slurm/tcpx-mpi/prolog.sh                             in slurm.conf; with
#   SchedulerParameters=nohold_on_prolog_fail                        the job goes to another node by itself

set -u

here=$(dirname "$(readlink -f "$0")")
said=$("$here/check.sh")
# What cannot be told (2) keeps no job away.
[[ $? == 1 ]] || exit 0
echo "$said" >&2
resume="scontrol update NodeName=$SLURMD_NODENAME State=RESUME"
scontrol update "NodeName=$SLURMD_NODENAME" State=DRAIN "Reason=$said; when mended: $resume"
exit 1
