#!/bin/bash
# Slurm's Epilog: the same check after a job; slurm.conf: Epilog=/etc/slurm/tcpx-mpi/epilog.sh
# The node is drained with the reason, and the job has ended as it has.

"$(dirname "$(readlink -f "$0")")/prolog.sh"
exit 0
