"""The exit code of a rank for a launcher of ours; of a defect also one line that names the rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.launch.setup_table import TABLE_VARIABLE, record_end


def say_defect(name: str, error: BaseException) -> None:
    """The line, below the traceback."""
    said = "; ".join(str(error).split("\n")) or "no text"
    text = f"tcpx-mpi: error: {name}: a defect of tcpx-mpi: {type(error).__name__}: {said}"
    print(text, file=sys.stderr, flush=True)


def tell_of_end(code: int, environ: Mapping[str, str]) -> None:
    """Tells a launcher of ours a rank's exit code: one that it is not told is nobody's verdict."""
    launched = under_launcher(environ)
    if launched is not None and (path := environ.get(TABLE_VARIABLE)):
        record_end(path, launched.rank, code)


def tell_of_defect(error: BaseException, environ: Mapping[str, str]) -> None:
    """Prints a rank's defect; before MPI is there nobody else does."""
    launched = under_launcher(environ)
    if launched is None:
        return
    tell_of_end(int(ExitCode.DEFECT), environ)
    if (native := sys.modules.get("tcpx_mpi._native")) is not None:
        native.watch_ending(int(ExitCode.DEFECT))
    if sys.excepthook is sys.__excepthook__:
        say_defect(f"rank {launched.rank} on {os.uname().nodename}", error)
