"""What each rank of a launch of ours waits for while it is set up, as its launcher sees it.

A file with a record a rank, written by `native/engine/setup_watch.cc`. Ranks of other nodes do not
find it.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass

#: Tells ranks the path of the file.
TABLE_VARIABLE = "TCPX_MPI_SETUP_TABLE"
#: As in `native/engine/setup_watch.h`, which the launcher need not load.
RECORD_BYTES = 256
_OVER, _SIGNAL = "over", "signal "


@dataclass(frozen=True)
class Wait:
    """What a rank waits for, and for how long it has."""

    what: str
    age_s: float


def note_end(path: str, number: int) -> None:
    """A signal has ended all ranks; nothing where its launcher is on another node."""
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return
    text = f"{_SIGNAL}{number}".encode().ljust(RECORD_BYTES, b"\0")
    os.pwrite(descriptor, text, 0)
    os.close(descriptor)


class SetupTable:
    """The file; `close` removes it."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        descriptor, self.path = tempfile.mkstemp(prefix="tcpx-mpi-setup-")
        os.close(descriptor)

    def close(self) -> None:
        os.unlink(self.path)

    def waits(self) -> dict[int, Wait | None]:
        """By rank, of those that have spoken; None for one whose set-up is over."""
        with open(self.path, "rb") as file:
            content = file.read()
        found: dict[int, Wait | None] = {}
        for rank in range(self.ranks):
            start = rank * RECORD_BYTES
            record = content[start : start + RECORD_BYTES].rstrip(b"\0")
            text = record.decode(errors="replace")
            since, _, what = text.partition(" ")
            if text == _OVER or text.startswith(_SIGNAL):
                found[rank] = None
            elif since.isdecimal():
                found[rank] = Wait(what, (time.monotonic_ns() - int(since)) / 1e9)
        return found

    def signal(self) -> int:
        """The signal that has ended all ranks; 0 for none."""
        with open(self.path, "rb") as file:
            text = file.read(RECORD_BYTES).rstrip(b"\0").decode(errors="replace")
        number = text.removeprefix(_SIGNAL)
        return int(number) if text.startswith(_SIGNAL) and number.isdecimal() else 0

    def over(self) -> bool:
        """Whether the set-up of every rank is over."""
        waits = self.waits()
        return len(waits) == self.ranks and not any(waits.values())
