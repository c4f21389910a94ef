#!/bin/bash
# Is this node ready for a job of tcpx-mpi? One line says it. Exit code: 0 it is, 1 it is not, 2 that cannot be told.
#
#   jobs/node/check.sh                         what node.conf beside it says, if there is one
#   jobs/node/check.sh --profile none          any option of `tcpx-mpi preflight` more
#
# node.conf is bash: VENV=/opt/tcpx-mpi, PLUGIN=tcpx, LIMIT_S=50, exports of NCCL_*.

set -u

here=$(dirname "$(readlink -f "$0")")
PATH=${PATH:-}:/usr/local/bin:/usr/bin:/bin
# shellcheck source=/dev/null
[[ ! -f $here/node.conf ]] || source "$here/node.conf"
export PATH="${VENV:-/opt/tcpx-mpi}/bin:$PATH" HOME="${HOME:-/}"

said=$(timeout "${LIMIT_S:-50}" tcpx-mpi preflight --plugin "${PLUGIN:-tcpx}" "$@" 2>&1)
case $? in
  0)
    echo "tcpx-mpi: ready"
    exit 0
    ;;
  3 | 4)
    # FAILED, the node, then what was looked at, what was found and what to do.
    line=$(sed -n 's/^FAILED *[^ ]* *//p' <<<"$said" | head -n 1 | tr -s ' ')
    echo "tcpx-mpi: ${line:-$(tail -n 1 <<<"$said")}"
    exit 1
    ;;
  124) echo "tcpx-mpi: no answer within ${LIMIT_S:-50} s" ;;
  *) echo "tcpx-mpi: not told: $(tail -n 1 <<<"$said")" ;;
esac
exit 2
