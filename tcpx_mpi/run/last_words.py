"""The last words of a rank when its launcher ends all (`native/engine/last_words.h`)."""

from __future__ import annotations

import os
import sys

from tcpx_mpi import _native
from tcpx_mpi.printable import printable

#: Whether it may write to mpirun's own open file.
_SHARES = True


def say(line: str, ending: bool = False) -> None:
    """Prints a line. If mpirun is ending this process, by a signal or (`ending`) because a rank has
    died, the line goes where mpirun's own errors go: it may end before it reads the usual
    stream."""
    text = f"{printable(line)}\n"
    if (ending or _native.stop_sender() == os.getppid()) and _native.say_to_mpirun(text, _SHARES):
        return
    print(line, file=sys.stderr, flush=True)
