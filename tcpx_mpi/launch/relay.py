"""The output of ranks on its way to our standard output: mpirun itself does not say that a disk is
full, and ends with 0, and it ends with a signal where the reader of a pipe has gone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import IO

_PIECE = 1 << 16
_PATIENCE_S = 10.0


def may_fill(descriptor: int) -> bool:
    """Whether writes can fail for want of room, or of a reader: to all but a terminal."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return not os.isatty(descriptor)


class Relay:
    """Copies a pipe to a descriptor until its end; after a failed write it reads on and drops, so
    that no rank waits for room in the pipe."""

    def __init__(self, pipe: IO[bytes], descriptor: int) -> None:
        self._pipe, self._descriptor = pipe, descriptor
        #: What the first failed write ended with; a reader that has gone is none.
        self.error: OSError | None = None
        self._over = False
        self._thread = threading.Thread(target=self._copy, name="relay", daemon=True)

    def _copy(self) -> None:
        with self._pipe:
            while piece := os.read(self._pipe.fileno(), _PIECE):
                self._write(piece)

    def _write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while len(rest) and not self._over:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                self._over = True
                if not isinstance(error, BrokenPipeError):
                    self.error = error

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Copies while the block runs and until the pipe ends."""
        self._thread.start()
        try:
            yield
        finally:
            # The pipe ends with mpirun, unless something that it started has it too.
            self._thread.join(_PATIENCE_S)
