"""The watch: from the first import on a native thread holds a deadline over every wait.

`native/engine/watch.h` says how. `setup_table` is where a launcher of ours looks on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.launch.setup_table import TABLE_VARIABLE

#: Until a rank has read its settings; the plugin's own initialisation may take minutes.
DEFAULT_S = 300.0
#: Who waits for others ends so much later than who is waited for, and can say why.
OTHERS_LEAD_S = 1.0
#: A rank in a world calls the roll by then, which names who did not come.
ROLL_CALL_LEAD_S = 3.0


@dataclass(frozen=True)
class Phase:
    """A part of a run, and whose deadline it has."""

    name: str
    option: str
    #: The exit codes where a call of the plugin does not return, and where a rank does not come.
    hang: ExitCode
    lost: ExitCode


SET_UP = Phase("set-up", "--setup-timeout", ExitCode.SETUP_FAILED, ExitCode.SETUP_FAILED)
CONNECT = Phase("connections", "--connect-timeout", ExitCode.SETUP_FAILED, ExitCode.SETUP_FAILED)
ROWS = Phase("rows", "--stall-timeout", ExitCode.STALL, ExitCode.LOST_RANK)
END = Phase("end", "", ExitCode.OK, ExitCode.OK)  # WATCH_END_S, and the code of the run
#: In the order of a run.
PHASES = (SET_UP, CONNECT, ROWS, END)


def begin(environ: Mapping[str, str]) -> None:
    """Watch this process from now on, if it is a rank."""
    launched = under_launcher(environ)
    if launched is None:
        return
    stops = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # the library's own start knows no exceptions
    try:
        from tcpx_mpi import _native  # `--help` needs none
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
    for number in stops:
        # Python would take our handlers away as it ends, and MPI_Finalize comes behind that.
        signal.signal(number, signal.SIG_DFL)
    _native.watch_begin(DEFAULT_S)
    name = f"rank {launched.rank} on {os.uname().nodename}"
    _native.name_process(name)
    _native.watch_name(name, environ.get(TABLE_VARIABLE, ""), launched.rank)


def waits_for_mpi(rank: int) -> None:
    """MPI comes up from now on; of ranks that all wait for another one, rank 0 speaks first."""
    from tcpx_mpi import _native

    what = "MPI_Init, to which every rank must come (one hangs, was stopped, or is not reached)"
    _native.watch_waits_for(what, OTHERS_LEAD_S * (1 if rank == 0 else 2))
