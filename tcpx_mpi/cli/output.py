"""The standard output of commands, and what happens when its reader is gone."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator

from tcpx_mpi.errors import OutputFailed

#: What a write ends with where its file can take no more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def drop_output() -> None:
    """Nothing more may be written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Output(io.TextIOWrapper):
    """Drops what nobody reads (`| head`): the command goes on to its exit code all the same.
    Raises OutputFailed if its file is full."""

    def write(self, text: str) -> int:
        with _reporting_failures():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with _reporting_failures():
            super().flush()


@contextlib.contextmanager
def _reporting_failures() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno not in _FULL:
            raise
        drop_output()
        if not isinstance(error, BrokenPipeError):
            text = f"the standard output could not be written: {error.strerror}"
            raise OutputFailed(text) from None


def complete_output() -> None:
    """Makes this process's standard output one; it shows what a terminal cannot in another form."""
    stream = sys.stdout
    if type(stream) is not io.TextIOWrapper:  # another program's, who imports us
        return
    encoding, buffered = stream.encoding, stream.line_buffering
    stream.flush()
    sys.stdout = Output(
        stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=buffered
    )
