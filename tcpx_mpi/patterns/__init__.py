"""The patterns by name: who sends what to whom, as pure functions that yield schedules.

Names and summaries are here, so that the command line lists them without importing numpy; a
pattern itself is imported when it is asked for. One file a family.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tcpx_mpi.errors import UsageError
from tcpx_mpi.schedule.pattern import Pattern

if TYPE_CHECKING:
    from tcpx_mpi.schedule.table import Expected, Layout, Schedule

#: Every pattern, with what it does in one line.
NAMES: dict[str, str] = {
    "pair": "one way between two ranks: rank r of the first half sends to rank r + n/2",
    "pingpong": "there and back between the ranks of a pair; time is half the round trip",
    "ring": "every rank sends to rank + 1 and receives from rank - 1 at the same time",
    "mesh": "all to all: the send buffer is divided among all ranks, own part copied locally",
    "pairs": "one way between two ranks at a time, every rank busy: both ways in turn; --all: each "
    "with each",
}

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


_REGISTERED: dict[str, Pattern] = {}


def register(pattern: Pattern) -> None:
    """Offer a pattern of one's own, in this process; the name must be new."""
    if pattern.name in _FAMILY or pattern.name in _REGISTERED:
        raise UsageError(f"pattern `{pattern.name}` is there already; choose another name")
    _REGISTERED[pattern.name] = pattern
    NAMES[pattern.name] = pattern.summary


def find(name: str) -> Pattern | None:
    """The pattern of this name; None where there is none: a file may be of a newer version."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _FAMILY:
        return None
    module = importlib.import_module(f"tcpx_mpi.patterns.{_FAMILY[name]}")
    pattern: Pattern = getattr(module, name.upper())
    return pattern


def load(name: str) -> Pattern:
    """The pattern of this name. Raises UsageError for an unknown one."""
    pattern = find(name)
    if pattern is None:
        raise UsageError(f"unknown pattern `{name}`; use one of {', '.join(NAMES)}")
    return pattern


def fewer_than_two(name: str, world: int) -> str | None:
    """The refusal that all transfer patterns share."""
    if world < 2:
        return f"{name} needs at least 2 ranks; found {world}; start 2 or more (mpirun -n 2)"
    return None


def repeated(pattern: Pattern, messages: int) -> Pattern:
    """The pattern with `messages` independent copies posted together in an iteration (`-m`).

    The size stays that of one copy; each buffer is `messages` times as large.
    """
    if messages < 1:
        raise UsageError(f"-m ({messages}) must be at least 1; use 1 or more")
    if messages == 1:
        return pattern
    from tcpx_mpi.schedule.table import BufferId, Expected, repeated_layout, repeated_schedule

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

    return dataclasses.replace(
        pattern,
        schedule=schedule,
        layout=layout,
        expected=expected,
        rounds=None if pattern.rounds is None else rounds,
    )
