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
from tcpx_mpi.slips import did_you_mean

if TYPE_CHECKING:
    from tcpx_mpi.patterns.program import Program
    from tcpx_mpi.schedule.promise import Expected
    from tcpx_mpi.schedule.table import Layout, Schedule


# fmt: off
#: Patterns of bytes: the module here that has each, and what it does in one line.
_OURS = {
    "pair": ("pair", "one direction of a pair: rank r of the first half sends to rank r + n/2"),
    "pingpong": ("pair", "there and back between the ranks of a pair; time is half the round trip"),
    "ring": ("ring", "every rank sends to rank + 1 and receives from rank - 1 at the same time"),
    "mesh": ("mesh", "all to all: the send buffer is divided among all ranks, own part copied "
        "locally"),
    "pairs": ("pairs", "two ranks at a time, every rank busy: both directions in turn; "
        "--all: each with each"),
    "bidirectional": ("pair", "both directions between the ranks of a pair at the same time"),
    "fan_in": ("fan", "all to one rank (--root) at the same time"),
    "fan_out": ("fan", "one rank (--root) to all at the same time"),
    "incast": ("fan", "several to one rank (--senders, --root), at once or by --stagger, with "
        "the tail of each; --background: beside a mesh"),
    "permutation": ("permutation", "every rank sends to one other and receives from one, drawn "
        "by --seed"),
    "matrix": ("traffic", "bytes from each rank to each in the proportions of a matrix (--matrix)"),
    "moe": ("moe", "tokens to their experts and back (--moe), skewed by --skew, another matrix in "
        "each iteration"),
    "replay": ("replay", "the messages of a job that the tap has recorded (--replay), in its order "
        "and depth"),
    "loaded_pingpong": ("loaded", "pingpong alone, and while a mesh (--load) runs on lanes of "
        "its own"),
}
#: nccl-tests' programs, which its users know with `_perf` behind the name.
_OF_NCCL_TESTS = {
    "all_reduce": ("all_reduce", "the reduction of everybody's payload, everywhere"),
    "all_gather": ("all_gather", "everybody's block, everywhere"),
    "reduce_scatter": ("reduce_scatter", "the reduction of everybody's payload, a block of it to "
        "each rank"),
    "reduce": ("rooted", "the reduction of everybody's payload, to the root"),
    "broadcast": ("rooted", "the root's payload to everybody"),
    "alltoall": ("alltoall", "a block from each rank to each"),
    "alltoallv": ("alltoall", "a block from each rank to each, of lengths by distance or by a "
        "matrix"),
    "gather": ("gather_scatter", "everybody's block to the root"),
    "scatter": ("gather_scatter", "a block of the root's payload to each rank"),
    "sendrecv": ("sendrecv", "every rank sends to rank + 1 and receives from rank - 1: ring, "
        "with types"),
    "hypercube": ("all_gather", "everybody's block, everywhere, by exchanges along the edges of "
        "a cube"),
}
# fmt: on
#: Every pattern that `run` offers, with what it does in one line.
NAMES = {name: summary for name, (_, summary) in {**_OURS, **_OF_NCCL_TESTS}.items()}
#: Those of them that are nccl-tests' programs.
PROGRAMS = tuple(_OF_NCCL_TESTS)
#: What is sent and checked once, and not measured.
SMOKE = "smoke"
_FAMILY = {name: family for name, (family, _) in {**_OURS, **_OF_NCCL_TESTS}.items()}
_FAMILY[SMOKE] = "smoke"
#: What measures the bandwidth of a link, and what measures its latency.
STREAM, ROUND_TRIP = "pair", "pingpong"
#: In what every two ranks meet alone, and what uses all NICs at once.
TOURNAMENT, ALL_AT_ONCE = "pairs", "ring"
#: What runs where there is a recording.
RECORDED = "replay"
#: The algorithm that is chosen by what is measured.
AUTO = "auto"
#: What `--algo` may be; a program has its own of them.
ALGORITHMS = (AUTO, "ring", "doubling", "halving", "tree", "spread", "pairwise")

_REGISTERED: dict[str, Program] = {}


def register(pattern: Pattern) -> None:
    """Offer a pattern of one's own, in this process; the name must be new."""
    from tcpx_mpi.patterns.program import of_bytes

    if pattern.name in _FAMILY or pattern.name in _REGISTERED:
        raise UsageError(f"pattern `{pattern.name}` is there already; choose another name")
    _REGISTERED[pattern.name] = of_bytes(pattern.name, lambda form: pattern)
    NAMES[pattern.name] = pattern.summary


def canonical(name: str) -> str:
    """The name of a pattern without the `_perf` that nccl-tests' programs have."""
    return name.removesuffix("_perf") if name.removesuffix("_perf") in PROGRAMS else name


def offered() -> dict[str, str]:
    """The names that `run` takes, each with its meaning in one line."""
    once = "one small message each way between every two ranks, checked (also `tcpx-mpi smoke`)"
    return {**NAMES, SMOKE: once}


def unknown(name: str) -> UsageError:
    """The answer to a name that no pattern has."""
    known = offered()
    return UsageError(
        f"unknown pattern {name}{did_you_mean(name, known)}: use one of {', '.join(known)}"
    )


def find_program(name: str) -> Program:
    """The program of this name. Raises UsageError for an unknown one."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _FAMILY:
        raise unknown(name)
    module = importlib.import_module(f"tcpx_mpi.patterns.{_FAMILY[name]}")
    found: Program = next(each for each in module.PROGRAMS if each.name == name)
    return found


def load(name: str) -> Pattern:
    """The pattern of this name in its first form. Raises UsageError for an unknown one."""
    return find_program(name).first()


def find(name: str) -> Pattern | None:
    """The same; None for an unknown one: a file may be of a newer version."""
    return load(name) if name in _FAMILY or name in _REGISTERED else None


def repeated(pattern: Pattern, messages: int) -> Pattern:
    """The pattern with `messages` independent copies posted together in an iteration (`-m`).

    The size stays that of one copy; each buffer is `messages` times as large.
    """
    if messages < 1:
        raise UsageError(f"-m ({messages}) must be at least 1; use 1 or more")
    if messages == 1:
        return pattern
    from tcpx_mpi.schedule.promise import Expected
    from tcpx_mpi.schedule.table import BlockTable, BufferId, repeated_layout, repeated_schedule

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
            rounds.chosen,
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
