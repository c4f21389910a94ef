"""The set-up table: what each rank of our launch waits for, as the launcher sees it.

A file with a record a rank, written by `native/engine/watch.cc`. Ranks of other nodes do not
find it.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tcpx_mpi.errors import SetupFailed

#: Tells ranks the path of the file.
TABLE_VARIABLE = "TCPX_MPI_SETUP_TABLE"
#: As in `native/engine/watch.h`, which the launcher need not load.
RECORD_BYTES = 256
_OVER, _ENDED, _TOLD = "over", "ended ", b"told"
#: What a rank waits for until it has MPI.
_BEFORE_MPI = ("its own start", "the MPI library", "MPI_Init")
_END = re.compile(rf"{_ENDED}(?P<code>\d+)(?:, signal (?P<signal>\d+))?")


@dataclass(frozen=True)
class Wait:
    """The wait of a rank: for what, and for how long."""

    what: str
    age_s: float


@dataclass(frozen=True)
class Ends:
    """What so many ranks have said of their ends."""

    ranks: int
    #: Exit codes by rank.
    codes: Mapping[int, int]
    #: Of ranks with MPI that have said none: the option of the phase that they were in, "" in
    #: set-up.
    silent: Mapping[int, str]
    #: Signals by rank, that came behind the end of a good run.
    stopped: Mapping[int, int] = field(default_factory=dict)

    @property
    def well(self) -> bool:
        """Whether every rank has come to the end of a good run."""
        return len(self.codes) == self.ranks and not any(self.codes.values())


class SetupTable:
    """The file; `close` removes it."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        try:
            descriptor, self.path = tempfile.mkstemp(prefix="tcpx-mpi-setup-")
        except OSError as error:
            raise SetupFailed(
                f"no temporary folder can be written ({error.strerror or error}): mpirun needs "
                "one, too; set TMPDIR to one that can"
            ) from None
        os.close(descriptor)

    def close(self) -> None:
        os.unlink(self.path)

    def waits(self) -> dict[int, Wait | None]:
        """Waits by rank, of those that have spoken; None for one whose set-up is over."""
        found: dict[int, Wait | None] = {}
        for rank, text in enumerate(self._records()):
            since, _, what = text.partition(" ")
            if text.startswith((_OVER, _ENDED)):
                found[rank] = None
            elif since.isdecimal():
                found[rank] = Wait(what, (time.monotonic_ns() - int(since)) / 1e9)
        return found

    def mark_reported(self) -> None:
        """The launcher says why set-up has not ended: ranks that wait leave it at that."""
        with open(self.path, "r+b") as file:
            for rank, each in self.waits().items():
                if each is not None:
                    file.seek(rank * RECORD_BYTES)
                    file.write(_TOLD.ljust(RECORD_BYTES, b"\0"))

    def ended(self) -> dict[int, int]:
        """Exit codes by rank, of those whose run is over."""
        found = map(_END.fullmatch, self._records())
        return {rank: int(end["code"]) for rank, end in enumerate(found) if end}

    def ends(self) -> Ends:
        """What all ranks have said of their ends."""
        records = self._records()
        silent = {
            rank: text.removeprefix(_OVER).strip()
            for rank, text in enumerate(records)
            if text.startswith(_OVER)
        }
        waits = {rank: each.what for rank, each in self.waits().items() if each is not None}
        silent |= {rank: "" for rank, what in waits.items() if not what.startswith(_BEFORE_MPI)}
        found = map(_END.fullmatch, records)
        stopped = {
            rank: int(end["signal"]) for rank, end in enumerate(found) if end and end["signal"]
        }
        return Ends(self.ranks, self.ended(), silent, stopped)

    def _records(self) -> list[str]:
        with open(self.path, "rb") as file:
            content = file.read().ljust(self.ranks * RECORD_BYTES, b"\0")
        starts = range(0, self.ranks * RECORD_BYTES, RECORD_BYTES)
        records = [content[start : start + RECORD_BYTES].rstrip(b"\0") for start in starts]
        return [record.decode(errors="replace") for record in records]

    def over(self) -> bool:
        """Whether the set-up of every rank is over."""
        waits = self.waits()
        return len(waits) == self.ranks and not any(waits.values())


def record_end(path: str, rank: int, code: int) -> None:
    """Records the end as the watch does, if there is no watch yet."""
    with contextlib.suppress(OSError), open(path, "r+b") as file:
        file.seek(rank * RECORD_BYTES)
        file.write(f"{_ENDED}{code}".encode().ljust(RECORD_BYTES, b"\0"))
