"""The patterns by name: who sends what to whom, as pure functions that yield schedules.

Names and summaries are here, so that the command line lists them without importing numpy; a
pattern itself is imported when it is asked for. One file a family.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcpx_mpi.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tcpx_mpi.schedule import Expected, Layout, Schedule

#: Every pattern, with what it does in one line.
NAMES: dict[str, str] = {
    "pair": "one way between two ranks: rank r of the first half sends to rank r + n/2",
    "pingpong": "there and back between the ranks of a pair; time is half the round trip",
    "ring": "every rank sends to rank + 1 and receives from rank - 1 at the same time",
    "mesh": "all to all: the send buffer is divided among all ranks, own part copied locally",
    "pairs": "one way between two ranks at a time, every rank busy: both ways in turn; --all: each "
    "with each",
}

#: Rounds of `pairs` without `--all`: every rank meets one other, both ways.
ONE_ENCOUNTER = 2
#: The pattern of `tcpx-mpi smoke`, which `run` does not offer.
SMOKE = "smoke"

_FAMILY = {
    "pair": "pair",
    "pingpong": "pair",
    "ring": "ring",
    "mesh": "mesh",
    "pairs": "pairs",
    SMOKE: "smoke",
}


@dataclass(frozen=True)
class Pattern:
    """One pattern: pure functions of (rank, world size), each rank only its own part.

    schedule(rank, world) -> Schedule; layout(rank, world, size_bytes) -> Layout with the same
    number of blocks at every size; expected(rank, world) -> Expected.
    busbw_factor(world) turns algorithm bandwidth into bus bandwidth; `time_divisor` is 2 where an
    iteration is a round trip. refuse(world) is None, or one line that says why not and what to do;
    the other functions may be called only for worlds that are not refused.
    """

    name: str
    summary: str
    busbw_factor: Callable[[int], float]
    time_divisor: int
    refuse: Callable[[int], str | None]
    schedule: Callable[[int, int], Schedule]
    layout: Callable[[int, int, int], Layout]
    expected: Callable[[int, int], Expected]
    #: What a reader of the table must know beside the summary.
    notes: tuple[str, ...] = ()
    #: Where rows differ: round c is a pattern of its own, and the pattern as a whole has the peers
    #: of all rounds. Every size is run once a round.
    rounds: Callable[[int], Sequence[Pattern]] | None = None

    def rounds_run(self, world: int, everybody: bool) -> Sequence[Pattern]:
        """What rows run in turn: itself where all are alike; `everybody`: `--all` was given."""
        if self.rounds is None:
            return [self]
        rounds = self.rounds(world)
        return rounds if everybody else rounds[:ONE_ENCOUNTER]


def load(name: str) -> Pattern:
    """The pattern of this name. Raises UsageError for an unknown one."""
    if name not in _FAMILY:
        known = ", ".join(NAMES)
        raise UsageError(f"unknown pattern `{name}`; use one of {known}")
    module = importlib.import_module(f"tcpx_mpi.patterns.{_FAMILY[name]}")
    pattern: Pattern = getattr(module, name.upper())
    return pattern


class _Patterns(Mapping[str, Pattern]):
    """Name -> pattern; one is imported when it is looked up."""

    def __getitem__(self, name: str) -> Pattern:
        if name not in NAMES:
            raise KeyError(name)
        return load(name)

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


PATTERNS: Mapping[str, Pattern] = _Patterns()


def fewer_than_two(name: str, world: int) -> str | None:
    """The refusal that all transfer patterns share."""
    if world < 2:
        return f"{name} needs at least 2 ranks; found {world}; start 2 or more (mpirun -n 2)"
    return None


def expected_bytes(pattern: Pattern, rank: int, world: int, size_bytes: int) -> NDArray[np.int64]:
    """What a rank's RECV buffer must hold, in bytes.

    int64[n, 4] of dst_offset, length, origin_rank, origin_offset (in the origin's SEND buffer),
    sorted by dst_offset; rows without bytes are dropped. Raises ScheduleError where block and
    origin block differ in length.
    """
    import numpy as np

    from tcpx_mpi.schedule import BufferId, ScheduleError

    expected = pattern.expected(rank, world)
    recv = pattern.layout(rank, world, size_bytes)[BufferId.RECV]
    sends = {
        origin: pattern.layout(origin, world, size_bytes)[BufferId.SEND]
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


def repeated(pattern: Pattern, messages: int) -> Pattern:
    """The pattern with `messages` independent copies posted together in an iteration (`-m`).

    The size stays that of one copy; each buffer is `messages` times as large.
    """
    if messages < 1:
        raise UsageError(f"-m ({messages}) must be at least 1; use 1 or more")
    if messages == 1:
        return pattern
    from tcpx_mpi.schedule import BufferId, Expected, repeated_layout, repeated_schedule

    def blocks(rank: int, world: int) -> dict[BufferId, int]:
        # The number of blocks does not depend on the size.
        return {key: table.blocks for key, table in pattern.layout(rank, world, 0).items()}

    def schedule(rank: int, world: int) -> Schedule:
        return repeated_schedule(pattern.schedule(rank, world), blocks(rank, world), messages)

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        return repeated_layout(pattern.layout(rank, world, size_bytes), messages)

    def expected(rank: int, world: int) -> Expected:
        one = pattern.expected(rank, world)
        received = blocks(rank, world)[BufferId.RECV]
        sent = {
            origin: blocks(origin, world)[BufferId.SEND] for origin in set(one.origin_rank.tolist())
        }
        return Expected.of_rows(
            [
                (block + copy * received, origin, origin_block + copy * sent[origin])
                for copy in range(messages)
                for block, origin, origin_block in zip(
                    one.dst_block.tolist(),
                    one.origin_rank.tolist(),
                    one.origin_block.tolist(),
                    strict=True,
                )
            ]
        )

    def rounds(world: int) -> Sequence[Pattern]:
        assert pattern.rounds is not None
        return [repeated(one, messages) for one in pattern.rounds(world)]

    return Pattern(
        name=pattern.name,
        summary=pattern.summary,
        busbw_factor=pattern.busbw_factor,
        time_divisor=pattern.time_divisor,
        refuse=pattern.refuse,
        schedule=schedule,
        layout=layout,
        expected=expected,
        notes=pattern.notes,
        rounds=None if pattern.rounds is None else rounds,
    )
