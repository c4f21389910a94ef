"""The meaning of an exit code of mpirun: a rank's, a signal's, or a failure of mpirun itself."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.launch.setup_table import Ends
from tcpx_mpi.launch.watch import ROWS, SET_UP

#: What a rank never ends with: verdicts of comparisons, and of files. mpirun has codes of its own.
_NEVER_OF_A_RANK = (ExitCode.PARTIAL_RESULT, ExitCode.BETTER)
_OF_RANKS = frozenset(map(int, ExitCode)) - set(_NEVER_OF_A_RANK)
#: Of those that the kernel itself sends; a code above them is one of mpirun's own.
OF_SIGNALS = range(129, 128 + signal.SIGRTMIN)
#: Of a program that has a defect of its own: Open MPI 5 where it loses a rank within MPI_Init.
CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)


def may_be_of_a_rank(code: int | None) -> bool:
    """Whether ranks, or a signal, can have ended mpirun with this code."""
    return code in _OF_RANKS or code in OF_SIGNALS


def explained(code: int) -> int:
    """The code of an mpirun whose ranks have spoken; SETUP_FAILED, with a line, for another."""
    return code if may_be_of_a_rank(code) else _say_mpirun_failed(code)


def _say_mpirun_failed(code: int) -> int:
    print(
        f"tcpx-mpi: error: mpirun ended with exit code {code}, which no rank gave: MPI did not "
        "come up on all of them, for the reason that mpirun gives above",
        file=sys.stderr,
        flush=True,
    )
    return int(ExitCode.SETUP_FAILED)


def code_behind(code: int, ends: Ends) -> int:
    """The code of a run whose mpirun ended with one that no rank gave, or with 1: its code for a
    signal, a rank without MPI_Finalize, and failures of its own."""
    said = code_of_ranks(ends)
    if said or (said == 0 and code == ExitCode.DEFECT):  # the latter without MPI_Finalize
        return said
    of_a_rank = code != ExitCode.DEFECT and code in _OF_RANKS
    if ends.silent or ends.well or of_a_rank:
        return _say_silent(code, ends)
    return _say_mpirun_failed(code)


def causes(codes: Mapping[int, int]) -> list[int]:
    """The codes of ranks that say why all have ended, a defect first. Of a signal that has ended
    some of them, mpirun was the sender, and another one the cause."""
    found = [code for code in codes.values() if code != 0 and code not in OF_SIGNALS]
    return sorted(found, key=lambda code: code != ExitCode.DEFECT)


def code_of_ranks(ends: Ends) -> int | None:
    """The exit code that ranks have given: that of one that knows the cause; else if all have."""
    if found := causes(ends.codes):
        return found[0]
    if len(ends.codes) < ends.ranks:
        return None
    # mpirun stops only the others of one that has left without MPI_Finalize.
    every = len(ends.stopped) == ends.ranks
    well = 128 + max(ends.stopped.values()) if every else 0
    return next(filter(None, ends.codes.values()), well)


def is_no_ranks(code: int, ends: Ends) -> bool:
    """Whether mpirun has ended with a code that no rank has said, as one that ends by _exit()."""
    return code > 0 and code not in OF_SIGNALS and code not in ends.codes.values()


def _say_silent(code: int, ends: Ends) -> int:
    """Prints which ranks have ended without a word; no other one has said why."""
    silent = [str(rank) for rank in range(ends.ranks) if rank not in ends.codes]
    who = f"rank{'s' * (len(silent) > 1)} {' and '.join(silent)}" if silent else "a rank"
    measured = ends.well or ROWS.option in ends.silent.values()
    print(
        f"tcpx-mpi: error: {who} ended without saying why (mpirun's exit code is {code}): the "
        "plugin, or another library, may have called _exit() there",
        file=sys.stderr,
        flush=True,
    )
    return int(ROWS.lost if measured else SET_UP.lost)


def say_beside(how: str) -> None:
    """Prints how mpirun itself ended as it ended the ranks, which is no error of the run's."""
    print(f"# {how}", file=sys.stderr, flush=True)


def say_killed(code: int, ends: Ends) -> None:
    """Prints that a signal has ended a rank, if no other rank was there to do so."""
    left = [str(rank) for rank in range(ends.ranks) if rank not in ends.codes] or ["one"]
    print(
        f"tcpx-mpi: error: rank {' or '.join(left)} was ended by signal {code - 128}; mpirun says "
        "which above",
        file=sys.stderr,
        flush=True,
    )


def say_stopped(number: int) -> None:
    """Prints that a signal has ended the run, if no rank could heed it and say so."""
    print(
        f"tcpx-mpi: error: interrupted by signal {number}; no rank has heeded it, and all were "
        "killed",
        file=sys.stderr,
        flush=True,
    )


def code_of(code: int, killed: Sequence[str]) -> int:
    """The exit code of a process that ended so, or that we have killed for these reasons."""
    if code >= 0:
        return code
    what = killed[0] if killed else f"mpirun was killed by signal {-code}"
    print(f"tcpx-mpi: error: {what}", file=sys.stderr, flush=True)
    return int(ExitCode.SETUP_FAILED) if killed else 128 - code


def say_set_up_failed(late: Sequence[str]) -> int:
    """Prints that the launcher's own deadline has ended the ranks."""
    print(f"tcpx-mpi: error: {late[0]}", file=sys.stderr, flush=True)
    return int(ExitCode.SETUP_FAILED)
