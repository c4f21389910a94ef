"""Whether a person looks at a terminal, and how wide it is: for what is printed in its place."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tcpx_mpi.launch.mpirun import TERMINAL_VARIABLE
from tcpx_mpi.report import Screen

#: What a terminal has that does not know its size.
_USUAL_COLUMNS = 80


def screen_of_parent(environ: Mapping[str, str], verbose: bool) -> Screen | None:
    """That of whoever started mpirun, where it shows the table; None if nobody has told a rank."""
    where, _, columns = environ.get(TERMINAL_VARIABLE, "").partition(" ")
    if where != "both" or not columns.isdecimal():
        return None
    return Screen(int(columns), not environ.get("NO_COLOR"), verbose)


def screen_here(environ: Mapping[str, str], verbose: bool = False) -> Screen | None:
    """That of this process's standard output; None where that is no terminal."""
    if not sys.stdout.isatty():
        return None
    columns = os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_COLUMNS
    dumb = environ.get("TERM", "dumb") == "dumb"
    return Screen(columns, not dumb and not environ.get("NO_COLOR"), verbose)
