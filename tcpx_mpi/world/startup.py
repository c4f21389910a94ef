"""Start MPI once a process; a defect in one rank ends all."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType

from tcpx_mpi import _native
from tcpx_mpi.errors import ExitCode, SetupFailed
from tcpx_mpi.launch.defect import say_defect
from tcpx_mpi.launch.launcher_rank import foreign_library, under_launcher
from tcpx_mpi.launch.setup_table import TABLE_VARIABLE
from tcpx_mpi.launch.watch import waits_for_mpi
from tcpx_mpi.world.collectives import World
from tcpx_mpi.world.launcher_watch import watch_launcher
from tcpx_mpi.world.library import library_settings, library_version, load

#: What Open MPI takes for the messages of one rank is less.
_SHARED_BYTES = 32 << 20


def start(
    stop_signal: Callable[[], int], environ: MutableMapping[str, str], tcp_only: bool = False
) -> World:
    """Initialise MPI (once a process) and return the world.

    `tcp_only`: messages between ranks of a node must not take a short cut through memory. Raises
    PluginMissing if no MPI library can be loaded, SetupFailed where it is not the launcher's.
    """
    launched = under_launcher(environ)
    _native.watch_waits_for("the MPI library to be loaded")
    MPI = load()
    for name, value in library_settings(
        library_version(), tcp_only, _on_one_machine(environ)
    ).items():
        environ.setdefault(name, value)
    waits_for_mpi(launched.rank if launched is not None else 0)
    if not MPI.Is_initialized():
        # mpi4py warns of a launcher of another MPI, which is refused below in one line.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    refusal = foreign_library(launched, MPI.COMM_WORLD.Get_size(), library_version())
    if refusal is not None:
        raise SetupFailed(refusal)
    rank, host = MPI.COMM_WORLD.Get_rank(), socket.gethostname()
    _end_all_ranks_on_a_defect(f"rank {rank} on {host}")
    if launched is not None:
        watch_launcher(f"rank {rank} on {host}")
    try:
        return World(MPI.COMM_WORLD, stop_signal)
    except MPI.Exception as error:
        # Others may have reached whom they need, and now wait for this rank without a deadline.
        print(
            f"tcpx-mpi: error: rank {rank} on {host}: MPI cannot reach every other rank ({error}): "
            "check that the interfaces of btl_tcp_if_include are up on all nodes",
            file=sys.stderr,
            flush=True,
        )
        _native.watch_ending(int(ExitCode.SETUP_FAILED))
        MPI.COMM_WORLD.Abort(int(ExitCode.SETUP_FAILED))
        raise


def finish() -> None:
    """Collective: ends MPI, after which this process is a rank no more."""
    sys.excepthook = sys.__excepthook__  # nobody waits for it
    load().Finalize()


def _on_one_machine(environ: Mapping[str, str]) -> bool:
    """Whether a launcher of ours has all ranks here, and shared memory has room for their messages
    (containers are given 64 MiB)."""
    launched = under_launcher(environ)
    if launched is None or launched.size is None:
        return False
    if TABLE_VARIABLE not in environ:  # which only ranks of the launcher's own machine have
        return False
    with contextlib.suppress(OSError):
        room = os.statvfs("/dev/shm")
        return room.f_bavail * room.f_frsize > launched.size * _SHARED_BYTES
    return False


def _end_all_ranks_on_a_defect(name: str) -> None:
    """An exception that nobody expected ends all ranks: the others would wait for this one."""
    show = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        say_defect(name, error)
        load().COMM_WORLD.Abort(int(ExitCode.DEFECT))

    sys.excepthook = end
