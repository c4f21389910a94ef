"""The patterns by name: who sends what to whom, as pure functions that yield schedules.

Names and summaries are here, so that the command line lists them without importing numpy; a
pattern itself is imported when it is asked for. One file a family.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING

from tcpx_mpi.errors import UsageError
from tcpx_mpi.schedule.pattern import Pattern, Rounds

if TYPE_CHECKING:
    from tcpx_mpi.patterns.program import Program
    from tcpx_mpi.schedule.table import Expected, Layout, Schedule


@dataclasses.dataclass(frozen=True)
class _Known:
    """What is known of a pattern before its module is imported."""

    summary: str
    #: The module here that has it.
    family: str
    #: One of nccl-tests' programs, which its users know with `_perf` behind the name.
    of_nccl_tests: bool = False


_KNOWN: dict[str, _Known] = {
    "pair": _Known(
        "one way between two ranks: rank r of the first half sends to rank r + n/2", "pair"
    ),
    "pingpong": _Known(
        "there and back between the ranks of a pair; time is half the round trip", "pair"
    ),
    "ring": _Known(
        "every rank sends to rank + 1 and receives from rank - 1 at the same time", "ring"
    ),
    "mesh": _Known(
        "all to all: the send buffer is divided among all ranks, own part copied locally", "mesh"
    ),
    "pairs": _Known(
        "one way between two ranks at a time, every rank busy: both ways in turn; --all: each "
        "with each",
        "pairs",
    ),
    "bidirectional": _Known("both ways between the ranks of a pair at the same time", "pair"),
    "fan_in": _Known("all to one rank (--root) at the same time", "fan"),
    "fan_out": _Known("one rank (--root) to all at the same time", "fan"),
    "permutation": _Known(
        "every rank sends to one other and receives from one, drawn by --seed", "permutation"
    ),
    "matrix": _Known(
        "bytes from each rank to each in the proportions of a matrix (--matrix)", "traffic"
    ),
    "loaded_pingpong": _Known(
        "pingpong alone, and while a mesh (--load) runs on lanes of its own", "loaded"
    ),
    "all_reduce": _Known("the reduction of everybody's payload, everywhere", "all_reduce", True),
    "all_gather": _Known("everybody's block, everywhere", "all_gather", True),
    "reduce_scatter": _Known(
        "the reduction of everybody's payload, a block of it to each rank", "reduce_scatter", True
    ),
    "reduce": _Known("the reduction of everybody's payload, to the root", "rooted", True),
    "broadcast": _Known("the root's payload to everybody", "rooted", True),
    "alltoall": _Known("a block from each rank to each", "alltoall", True),
    "alltoallv": _Known(
        "a block from each rank to each, of lengths by distance or by a matrix", "alltoall", True
    ),
    "gather": _Known("everybody's block to the root", "gather_scatter", True),
    "scatter": _Known("a block of the root's payload to each rank", "gather_scatter", True),
    "sendrecv": _Known(
        "every rank sends to rank + 1 and receives from rank - 1: ring, with types",
        "sendrecv",
        True,
    ),
    "hypercube": _Known(
        "everybody's block, everywhere, by exchanges along the edges of a cube", "all_gather", True
    ),
}
#: Every pattern that `run` offers, with what it does in one line.
NAMES: dict[str, str] = {name: known.summary for name, known in _KNOWN.items()}
#: Those of them that are nccl-tests' programs.
PROGRAMS = tuple(name for name, known in _KNOWN.items() if known.of_nccl_tests)
#: The pattern of `tcpx-mpi smoke`, which `run` does not offer.
SMOKE = "smoke"
_KNOWN[SMOKE] = _Known("one message each way between every two ranks", "smoke")
#: What measures the bandwidth of a link, and what measures its latency.
STREAM, ROUND_TRIP = "pair", "pingpong"
#: The algorithm that is chosen by what is measured.
AUTO = "auto"
#: What `--algo` may be; a program has its own of them.
ALGORITHMS = (AUTO, "ring", "doubling", "halving", "tree", "spread", "pairwise")

_REGISTERED: dict[str, Program] = {}


def register(pattern: Pattern) -> None:
    """Offer a pattern of one's own, in this process; the name must be new."""
    from tcpx_mpi.patterns.program import of_bytes

    if pattern.name in _KNOWN or pattern.name in _REGISTERED:
        raise UsageError(f"pattern `{pattern.name}` is there already; choose another name")
    _REGISTERED[pattern.name] = of_bytes(pattern.name, lambda form: pattern)
    NAMES[pattern.name] = pattern.summary


def canonical(name: str) -> str:
    """The name of a pattern without the `_perf` that nccl-tests' programs have."""
    return name.removesuffix("_perf") if name.removesuffix("_perf") in PROGRAMS else name


def find_program(name: str) -> Program:
    """What goes by this name. Raises UsageError for an unknown one."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _KNOWN:
        raise UsageError(f"unknown pattern `{name}`; use one of {', '.join(NAMES)}")
    module = importlib.import_module(f"tcpx_mpi.patterns.{_KNOWN[name].family}")
    found: Program = next(each for each in module.PROGRAMS if each.name == name)
    return found


def load(name: str) -> Pattern:
    """What goes by this name in its first form. Raises UsageError for an unknown one."""
    return find_program(name).first()


def find(name: str) -> Pattern | None:
    """The same; None for an unknown one: a file may be of a newer version."""
    return load(name) if name in _KNOWN or name in _REGISTERED else None


def repeated(pattern: Pattern, messages: int) -> Pattern:
    """The pattern with `messages` independent copies posted together in an iteration (`-m`).

    The size stays that of one copy; each buffer is `messages` times as large.
    """
    if messages < 1:
        raise UsageError(f"-m ({messages}) must be at least 1; use 1 or more")
    if messages == 1:
        return pattern
    from tcpx_mpi.schedule.table import (
        BlockTable,
        BufferId,
        Expected,
        repeated_layout,
        repeated_schedule,
    )

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
        sent = {origin: payload_blocks(origin, world) for origin in set(one.origin_rank.tolist())}
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
            ],
            one.reduced,
            one.scaled,
        )

    def payload_blocks(rank: int, world: int) -> int:
        return pattern.payload_of(rank, world, 0).blocks

    def payload(rank: int, world: int, size_bytes: int) -> BlockTable:
        one = pattern.payload_of(rank, world, size_bytes)
        return BlockTable.of_lengths(one.lengths.tolist() * messages)

    def held(rank: int, world: int) -> list[tuple[int, int]]:
        assert pattern.held is not None
        received, own = blocks(rank, world)[BufferId.RECV], payload_blocks(rank, world)
        return [
            (block + copy * received, of_payload + copy * own)
            for copy in range(messages)
            for block, of_payload in pattern.held(rank, world)
        ]

    def each(rounds: Rounds) -> Rounds:
        of_pairs = rounds.of_pairs
        return Rounds(
            lambda world: [repeated(one, messages) for one in rounds.of(world)],
            rounds.alone,
            None if of_pairs is None else lambda text: repeated(of_pairs(text), messages),
        )

    return dataclasses.replace(
        pattern,
        schedule=schedule,
        layout=layout,
        expected=expected,
        payload=None if pattern.payload is None else payload,
        held=None if pattern.held is None else held,
        rounds=None if pattern.rounds is None else each(pattern.rounds),
    )
