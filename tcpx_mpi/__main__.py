"""`python -m tcpx_mpi`, the same as `tcpx-mpi`."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> int:
    """The exit code of this process's command line."""
    # What a command has half-written is removed on the way out, as at an interrupt. Ranks, and
    # what launches them, have handlers of their own.
    signal.signal(signal.SIGTERM, _end)
    # numpy's BLAS, which nothing here uses, begins with a thread for each core, in every rank, and
    # these spin at first.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:  # also while modules are read, which takes a tenth of a second
        from tcpx_mpi.cli import main

        return main()
    except KeyboardInterrupt:
        return 130


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
