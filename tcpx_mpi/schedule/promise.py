"""The promise of a pattern: the writer of each byte of a rank's RECV buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from tcpx_mpi.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Scaled(IntEnum):
    """Whether a result is scaled: each origin before it is reduced, or what was made of them."""

    NO = 0
    BEFORE = 1
    AFTER = 2


@dataclass(frozen=True, eq=False)
class Expected:
    """The writers of a rank's RECV buffer, in blocks: int32[n] each.

    Block `dst_block[i]` must hold block `origin_block[i]` of the payload of `origin_rank[i]` (its
    SEND buffer, where it is not a pattern in place), however many ranks forwarded it. Where
    `reduced`, a block that is named several times must hold the reduction of all its origins, each
    of them once. Blocks that are not named stay untouched; in place they may hold anything.
    """

    dst_block: NDArray[np.int32]
    origin_rank: NDArray[np.int32]
    origin_block: NDArray[np.int32]
    reduced: bool = False
    scaled: Scaled = Scaled.NO

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[tuple[int, int, int]],
        reduced: bool = False,
        scaled: Scaled = Scaled.NO,
    ) -> Expected:
        """From rows of (dst_block, origin_rank, origin_block)."""
        table = np.array(rows, dtype=np.int32).reshape(-1, 3)
        return cls(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy(), reduced, scaled)
