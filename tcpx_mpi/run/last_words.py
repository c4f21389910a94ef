"""The last words of a rank when its launcher ends all: Open MPI's mpirun hands on no line from then
on, and has exit code 1 for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tcpx_mpi import _native
from tcpx_mpi.printable import printable

#: What Open MPI's calls itself.
_MPIRUN = ("prterun", "mpirun")


def say(line: str, ending: bool = False) -> None:
    """Prints a line. If mpirun is ending this process, by a signal or (`ending`) because a rank has
    died, the line goes where mpirun's own errors go: it may end before it reads the usual
    stream."""
    parent = os.getppid()
    if ending or _native.stop_sender() == parent:
        try:
            if Path(f"/proc/{parent}/comm").read_text().strip() not in _MPIRUN:
                raise OSError
            # A file is not begun anew, and its end is where mpirun has written.
            theirs = os.open(f"/proc/{parent}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
        except OSError:
            pass  # another program, another user's, a socket, or gone
        else:
            os.write(theirs, f"{printable(line)}\n".encode())
            os.close(theirs)
            return
    print(line, file=sys.stderr, flush=True)
