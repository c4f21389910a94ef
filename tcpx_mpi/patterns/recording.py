"""What the ranks of a job sent, as data: messages, and what each rank knew when it posted one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tcpx_mpi.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A message; its number is its place, and those of a lane are in the order of their sends.
MESSAGE = [("sender", "<i4"), ("receiver", "<i4"), ("lane", "<i4"), ("bytes", "<i8")]


class Post(NamedTuple):
    """What a rank posts, and what it knew: messages by their numbers."""

    message: int
    sends: bool
    #: Receives that were done since the post before, the last one of each connection.
    arrived: tuple[int, ...] = ()
    #: Of a send: the last one that was done on its connection; -1: none.
    own: int = -1
    #: Before it nothing was under way for so long.
    idle_us: int = 0
    #: Sends that such a pause is behind.
    left: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Recording:
    """What the ranks of a job sent."""

    world: int
    messages: NDArray[np.void]
    #: rank -> its posts, in order.
    posts: Callable[[int], Sequence[Post]]
    longest_idle_s: float = 0.0
    #: The most requests that were under way on a connection.
    depth: int = 1
    notes: tuple[str, ...] = ()
    #: Of all of it.
    fingerprint: str = ""

    @functools.cached_property
    def busiest_bytes(self) -> int:
        """The most that a rank sends, or receives."""
        ends = (self.messages["sender"], self.messages["receiver"])
        sums = (np.bincount(end, self.messages["bytes"], 1).max() for end in ends)
        return int(max(sums))

    @property
    def longest_bytes(self) -> int:
        return int(self.messages["bytes"].max(initial=0))

    def sent(self, rank: int) -> NDArray[np.intp]:
        """The numbers of what a rank sends."""
        return np.flatnonzero(self.messages["sender"] == rank)

    def received(self, rank: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.messages["receiver"] == rank)
