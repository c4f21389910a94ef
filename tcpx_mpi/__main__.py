"""`python -m tcpx_mpi`, the same as `tcpx-mpi`."""

import atexit
import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

#: Commands that ranks run.
_OF_RANKS = ("run", "smoke", "selftest", "preflight")

#: Modules are read into objects that stay. By Python's own threshold, 700, they are looked through
#: a hundred times while a rank starts: a tenth of the CPU time of a short run.
_OBJECTS_A_COLLECTION = 100_000


def main() -> int:
    """The exit code of this process's command line."""
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    atexit.register(gc.freeze)  # nor at the end, where Python would look through them again
    # What a command has half-written is removed on the way out, as at an interrupt. Ranks, and
    # what launches them, have handlers of their own.
    signal.signal(signal.SIGTERM, _end)
    # numpy's BLAS, which nothing here uses, begins with a thread for each core, in every rank, and
    # these spin at first.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:  # also while modules are read, which takes a tenth of a second
        if sys.argv[1:2] and sys.argv[1] in _OF_RANKS:
            _watch_set_up()
        from tcpx_mpi.cli import main

        code = main()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        _tell_of_defect(error)
        raise
    if sys.argv[1:2] and sys.argv[1] in _OF_RANKS:
        from tcpx_mpi.launch.defect import tell_of_end

        tell_of_end(code, os.environ)
    return code


def _tell_of_defect(error: Exception) -> None:
    """As a rank: in a line, and a launcher of ours is to know that it is not mpirun that has
    failed."""
    try:
        from tcpx_mpi.launch.defect import tell_of_defect
    except ImportError:
        return  # the traceback says enough
    tell_of_defect(error, os.environ)


def _watch_set_up() -> None:
    """As a rank, wait for nothing without a deadline, MPI and the modules of this program first."""
    try:
        from tcpx_mpi.launch.watch import begin
    except ImportError:
        return  # said in a line, by whoever needs the native part
    begin(os.environ)


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
