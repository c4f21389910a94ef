"""A pattern as data: what the engine, the planner and the reports ask of it, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tcpx_mpi.schedule.promise import Expected
    from tcpx_mpi.schedule.symmetry import Symmetry
    from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule


def fewer_than_two(name: str, world: int) -> str | None:
    """The refusal of a world in which nothing can be sent."""
    if world < 2:
        return f"{name} needs at least 2 ranks; found {world}; start 2 or more (mpirun -n 2)"
    return None


@dataclass(frozen=True)
class Rounds:
    """For a pattern whose rows differ: every size runs once a round, each round with a pattern of
    its own. The pattern as a whole has the peers of all."""

    #: All that a run may have, by their numbers.
    of: Callable[[int], Sequence[Pattern]]
    #: (world, `--all`, `--pairs`) -> the numbers of those that a run has, in order; None: all.
    chosen: Callable[[int, bool, int], Sequence[int]] | None = None
    #: A row's pairs as text (`text_of_pairs`) -> the pattern of that row, where ranks that look
    #: slow meet others once more; None if pairs cannot be chosen.
    of_pairs: Callable[[str], Pattern] | None = None


@dataclass(frozen=True)
class Loaded:
    """The part of a pattern that is timed: an iteration's time is that between the bytes of one
    lane and those of another."""

    #: From when the bytes of the first were there until those of the second were.
    timed_lanes: tuple[int, int]
    #: The same without what loads it, which takes turns with it: the row's own figures are those.
    #: None of that one.
    alone: Pattern | None


def _even(world: int) -> float:
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One form of a program: pure functions of (rank, world size), each rank only its own part.

    schedule(rank, world) -> Schedule; layout(rank, world, size_bytes) -> Layout with the same
    number of blocks at every size; expected(rank, world) -> Expected.
    busbw_factor(world) turns algorithm bandwidth into bus bandwidth, NaN where that is what left a
    rank in an iteration on average; `time_divisor` is 2 where an iteration is a round trip.
    refuse(world) is None, or one line that says why not and what to do (fewer than 2 ranks, unless
    it is given). A refused world is passed to none of the other functions.
    """

    name: str
    #: In one line, of a pattern of one's own; those of `tcpx_mpi.patterns` have theirs there.
    summary: str = ""
    schedule: Callable[[int, int], Schedule]
    layout: Callable[[int, int, int], Layout]
    expected: Callable[[int, int], Expected]
    refuse: Callable[[int], str | None] = None  # type: ignore[assignment]  # see __post_init__
    busbw_factor: Callable[[int], float] = _even
    #: world -> what part of the size the algorithm bandwidth counts, as nccl-tests defines it.
    algbw_factor: Callable[[int], float] = _even
    time_divisor: int = 1
    #: (round, receiver, world) -> sender. Each rank that receives has one sender and waits for
    #: nobody else, so that its time is that of one link; None if ranks have several peers.
    sender: Callable[[int, int, int], int] | None = None
    #: (rank, world) -> whom a rank answers as soon as it has all, None for one that begins, where
    #: an iteration is there and back between two.
    answers: Callable[[int, int], int | None] | None = None
    #: `--rate` can say when its iterations begin: some ranks only send, or begin.
    open_loop: bool = False
    #: Default channels are reduced to the connections that a NIC has use for.
    fits_nics: bool = False
    #: What a reader of the table must know beside the summary.
    notes: tuple[str, ...] = ()
    #: Whether reports have the tail of each sender: "one link" where all share the receiver's.
    tails: str = ""
    #: (rank, world) -> how many ranks begin an iteration before it, with `--stagger`; None: that
    #: has no meaning.
    place: Callable[[int, int], int] | None = None
    rounds: Rounds | None = None
    #: Of a pattern whose iterations differ: what iteration i of a row does, its warm-ups counted.
    #: The pattern as a whole has the peers of all, and blocks as long as the longest.
    turn: Callable[[int], Pattern] | None = None
    loaded: Loaded | None = None
    #: (rank, world) -> rows of (RECV block, payload block): the payload stands in RECV at the
    #: start; None: in SEND.
    held: Callable[[int, int], Sequence[tuple[int, int]]] | None = None
    #: (rank, world, size_bytes) -> the blocks of the payload, where they are not those of SEND.
    payload: Callable[[int, int, int], BlockTable] | None = None
    #: Bytes of an element, which no block, and no chunk of a reduction, may cut.
    element_bytes: int = 1
    #: world -> how its ranks are alike, so that a few stand for all in a simulation; None: not.
    symmetry: Callable[[int], Symmetry | None] = lambda world: None

    def __post_init__(self) -> None:
        if self.refuse is None:
            refuse = functools.partial(fewer_than_two, self.name)
            object.__setattr__(self, "refuse", refuse)

    def rounds_run(self, world: int, everybody: bool, most_pairs: int = 0) -> Sequence[Pattern]:
        """The rounds that rows run in turn: itself if all are alike; `everybody`: `--all` was
        given, and with it `most_pairs`, 0 for no limit."""
        if self.rounds is None:
            return [self]
        rounds = self.rounds.of(world)
        return [rounds[number] for number in self.round_numbers(world, everybody, most_pairs)]

    def round_numbers(self, world: int, everybody: bool, most_pairs: int = 0) -> Sequence[int]:
        """The numbers of the same, by which `sender` knows them."""
        if self.rounds is None:
            return [0]
        if self.rounds.chosen is None:
            return range(len(self.rounds.of(world)))
        return self.rounds.chosen(world, everybody, most_pairs)

    def payload_of(self, rank: int, world: int, size_bytes: int) -> BlockTable:
        """The blocks that a rank contributes, wherever they stand at the start."""
        from tcpx_mpi.schedule.table import BufferId

        if self.payload is not None:
            return self.payload(rank, world, size_bytes)
        return self.layout(rank, world, size_bytes)[BufferId.SEND]

    def peers_sent(self, world: int) -> int:
        """The most ranks that one rank sends to."""
        ends = (self.schedule(rank, world) for rank in {0, world - 1})
        return max(len({peer for peer, _ in schedule.peers_sent}) for schedule in ends)


def text_of_pairs(pairs: Sequence[tuple[int, int]]) -> str:
    """(sender, receiver) of a row as its record has it: "0>2 3>1"."""
    return " ".join(f"{sender}>{receiver}" for sender, receiver in pairs)


def pairs_of_text(text: str) -> list[tuple[int, int]]:
    """The inverse of `text_of_pairs`."""
    found = []
    for pair in text.split():
        sender, receiver = map(int, pair.split(">"))
        found.append((sender, receiver))
    return found


def expected_bytes(pattern: Pattern, rank: int, world: int, size_bytes: int) -> NDArray[np.int64]:
    """The content that a rank's RECV buffer must have, in bytes.

    int64[n, 4] of dst_offset, length, origin_rank, origin_offset (in the origin's payload), sorted
    by dst_offset; rows without bytes are dropped. A reduced block has a row for each of its
    origins. Raises ScheduleError if block and origin block differ in length.
    """
    import numpy as np

    from tcpx_mpi.schedule.table import BufferId, ScheduleError

    expected = pattern.expected(rank, world)
    recv = pattern.layout(rank, world, size_bytes)[BufferId.RECV]
    sends = {
        origin: pattern.payload_of(origin, world, size_bytes)
        for origin in set(expected.origin_rank.tolist())
    }
    rows = []
    for block, origin, origin_block in zip(
        expected.dst_block.tolist(),
        expected.origin_rank.tolist(),
        expected.origin_block.tolist(),
        strict=True,
    ):
        length, found = int(recv.lengths[block]), int(sends[origin].lengths[origin_block])
        if length != found:
            raise ScheduleError(
                f"{pattern.name}: rank {rank} expects {length} bytes in block {block}, but block "
                f"{origin_block} of rank {origin} has {found}"
            )
        if length:
            offset = int(sends[origin].offsets[origin_block])
            rows.append((int(recv.offsets[block]), length, origin, offset))
    rows.sort()
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def held_bytes(pattern: Pattern, rank: int, world: int, size_bytes: int) -> NDArray[np.int64]:
    """The place of a rank's payload at the start, in SEND or, in place, in RECV.

    int64[n, 4] of offset, length, rank, offset in the payload; rows without bytes are dropped.
    """
    import numpy as np

    from tcpx_mpi.schedule.table import BufferId

    payload = pattern.payload_of(rank, world, size_bytes)
    if pattern.held is None:
        rows = [(0, payload.total_bytes, rank, 0)]
    else:
        recv = pattern.layout(rank, world, size_bytes)[BufferId.RECV]
        rows = [
            (int(recv.offsets[block]), int(recv.lengths[block]), rank, int(payload.offsets[part]))
            for block, part in pattern.held(rank, world)
        ]
    return np.array([row for row in rows if row[1]], dtype=np.int64).reshape(-1, 4)
