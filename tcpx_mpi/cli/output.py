"""The standard output of commands, and what becomes of it when nobody reads on."""

from __future__ import annotations

import io
import os
import sys


def drop_output() -> None:
    """Nothing more may be written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Output(io.TextIOWrapper):
    """Drops what nobody reads (`| head`): the command goes on to its exit code all the same."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            drop_output()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            drop_output()


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
