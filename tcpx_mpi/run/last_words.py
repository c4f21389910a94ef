"""The last words of a rank when its launcher ends all: Open MPI's mpirun hands on no line from then
on, and has exit code 1 for it."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path

from tcpx_mpi import _native
from tcpx_mpi.printable import printable

#: What Open MPI's calls itself.
_MPIRUN = ("prterun", "mpirun")
#: Of the kernel, on every kind of machine alike.
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438


def say(line: str, ending: bool = False) -> None:
    """Prints a line. If mpirun is ending this process, by a signal or (`ending`) because a rank has
    died, the line goes where mpirun's own errors go: it may end before it reads the usual
    stream."""
    parent = os.getppid()
    if ending or _native.stop_sender() == parent:
        try:
            if Path(f"/proc/{parent}/comm").read_text().strip() not in _MPIRUN:
                raise OSError
            theirs, safe = _errors_of(parent)
        except OSError:
            pass  # another program, another user's, a socket, or gone
        else:
            os.write(theirs, f"{printable(line)}\n".encode())
            os.close(theirs)
            if safe:
                return
    print(line, file=sys.stderr, flush=True)


def _errors_of(process: int) -> tuple[int, bool]:
    """A descriptor for the standard error of a process, and whether what is written there stays.

    If it is a file that was not opened for appending, that process writes at a place of its own,
    which only the very same open file moves. The kernel may refuse it, as Yama does for a parent.
    """
    syscall = ctypes.CDLL(None).syscall
    if (pidfd := syscall(_PIDFD_OPEN, process, 0)) >= 0:
        shared = syscall(_PIDFD_GETFD, pidfd, 2, 0)
        os.close(pidfd)
        if shared >= 0:
            return shared, True
    # A file is not begun anew, and its end is where mpirun has written.
    opened = os.open(f"/proc/{process}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    flags = Path(f"/proc/{process}/fdinfo/2").read_text().partition("flags:")[2].split()[0]
    appends = int(flags, 8) & os.O_APPEND
    return opened, bool(appends) or not stat.S_ISREG(os.fstat(opened).st_mode)
