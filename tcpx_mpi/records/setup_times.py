"""Set-up times: how long each connection and registration took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcpx_mpi.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETUP_COLUMNS = [
    ("rank", "<i4"), ("phase", "S16"), ("peer", "<i4"), ("lane", "<i4"), ("channel", "<i4"),
    ("ns", "<i8"),
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class SetupTimes:
    """The time of each set-up call, on every rank: a table of `SETUP_COLUMNS`.

    `phase` is "listen", "connect", "accept" or "regMr"; -1 stands for "no such peer" and so on.
    """

    table: NDArray[np.void]

    @staticmethod
    def from_rows(rows: Iterable[tuple[int, str, int, int, int, int]]) -> SetupTimes:
        """Rows are (rank, phase, peer, lane, channel, ns)."""
        encoded = [(rank, phase.encode("ascii"), *rest) for rank, phase, *rest in rows]
        return SetupTimes(np.array(encoded, dtype=SETUP_COLUMNS))

    @staticmethod
    def joined(parts: Sequence[SetupTimes]) -> SetupTimes:
        """The times of several ranks in one table."""
        if not parts:
            return SetupTimes(np.empty(0, dtype=SETUP_COLUMNS))
        return SetupTimes(np.concatenate([part.table for part in parts]))

    def phases(self) -> list[str]:
        """The phases in order of their first appearance."""
        return list(dict.fromkeys(name.decode("ascii") for name in self.table["phase"].tolist()))

    def of(self, phase: str) -> NDArray[np.void]:
        """The part of the table about one phase."""
        part: NDArray[np.void] = self.table[self.table["phase"] == phase.encode("ascii")]
        return part
