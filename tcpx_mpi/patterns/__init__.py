"""The patterns by name: who sends what to whom, as pure functions that yield schedules.

Names and summaries are here, so that the command line lists them without importing numpy; a
pattern itself is imported when it is asked for. One file a family.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tcpx_mpi.errors import UsageError
from tcpx_mpi.schedule.pattern import Pattern

if TYPE_CHECKING:
    from tcpx_mpi.patterns.program import Program
    from tcpx_mpi.schedule.table import Expected, Layout, Schedule

#: nccl-tests' programs, which its users know with `_perf` behind the name.
PROGRAMS: dict[str, str] = {
    "all_reduce": "the reduction of everybody's payload, everywhere",
    "all_gather": "everybody's block, everywhere",
    "reduce_scatter": "the reduction of everybody's payload, a block of it to each rank",
    "reduce": "the reduction of everybody's payload, to the root",
    "broadcast": "the root's payload to everybody",
    "alltoall": "a block from each rank to each",
    "alltoallv": "a block from each rank to each, of lengths by distance or by a matrix",
    "gather": "everybody's block to the root",
    "scatter": "a block of the root's payload to each rank",
    "sendrecv": "every rank sends to rank + 1 and receives from rank - 1: ring, with types",
    "hypercube": "everybody's block, everywhere, by exchanges along the edges of a cube",
}

#: Every pattern, with what it does in one line.
NAMES: dict[str, str] = {
    "pair": "one way between two ranks: rank r of the first half sends to rank r + n/2",
    "pingpong": "there and back between the ranks of a pair; time is half the round trip",
    "ring": "every rank sends to rank + 1 and receives from rank - 1 at the same time",
    "mesh": "all to all: the send buffer is divided among all ranks, own part copied locally",
    "pairs": "one way between two ranks at a time, every rank busy: both ways in turn; --all: each "
    "with each",
    "bidirectional": "both ways between the ranks of a pair at the same time",
    "fan_in": "all to one rank (--root) at the same time",
    "fan_out": "one rank (--root) to all at the same time",
    "permutation": "every rank sends to one other and receives from one, drawn by --seed",
    "matrix": "bytes from each rank to each in the proportions of a matrix (--matrix)",
    "loaded_pingpong": "pingpong alone, and while a mesh (--load) runs on lanes of its own",
    **PROGRAMS,
}

#: The pattern of `tcpx-mpi smoke`, which `run` does not offer.
SMOKE = "smoke"

_FAMILY = {
    "pair": "pair",
    "pingpong": "pair",
    "ring": "ring",
    "mesh": "mesh",
    "pairs": "pairs",
    "bidirectional": "pair",
    "fan_in": "fan",
    "fan_out": "fan",
    "permutation": "permutation",
    "matrix": "traffic",
    "loaded_pingpong": "loaded",
    SMOKE: "smoke",
}
_PROGRAM_FAMILY = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce": "rooted",
    "broadcast": "rooted",
    "alltoall": "alltoall",
    "alltoallv": "alltoall",
    "gather": "gather_scatter",
    "scatter": "gather_scatter",
    "sendrecv": "sendrecv",
    "hypercube": "all_gather",
}

#: Options (by their fields) that choose one of a family of transfer patterns.
CHOICES: dict[str, frozenset[str]] = {
    "fan_in": frozenset({"root"}),
    "fan_out": frozenset({"root"}),
    "permutation": frozenset({"seed"}),
    "matrix": frozenset({"matrix_path"}),
    "loaded_pingpong": frozenset({"load_bytes"}),
}

_REGISTERED: dict[str, Pattern] = {}


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a run chooses of a pattern in `CHOICES`; as it stands, what `load` gives."""

    root: int = 0
    seed: int = 1
    #: From rank i to rank j, in any unit; None: by distance.
    weights: tuple[tuple[int, ...], ...] | None = None
    #: What a rank sends to all in an iteration, beside what is timed.
    load_bytes: int = 4 << 20


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
    if name in PROGRAMS:
        return _first_form(name)
    if name not in _FAMILY:
        return None
    if name in CHOICES:
        return load_chosen(name, Choice())
    module = importlib.import_module(f"tcpx_mpi.patterns.{_FAMILY[name]}")
    pattern: Pattern = getattr(module, name.upper())
    return pattern


@functools.lru_cache(maxsize=64)
def load_chosen(name: str, choice: Choice) -> Pattern:
    """One of the patterns that go by a name in `CHOICES`."""
    module = importlib.import_module(f"tcpx_mpi.patterns.{_FAMILY[name]}")
    pattern: Pattern = module.CHOSEN[name](choice)
    return pattern


def canonical(name: str) -> str:
    """The name of a pattern without the `_perf` that nccl-tests' programs have."""
    return name.removesuffix("_perf") if name.removesuffix("_perf") in PROGRAMS else name


@functools.cache
def _first_form(name: str) -> Pattern:
    """A program as a pattern of bytes: its first algorithm, out of place."""
    from tcpx_mpi.patterns.program import Form

    program = find_program(name)
    return program.pattern(Form(program.algos[0]))


def find_program(name: str) -> Program:
    """The program of this name, which must be one of `PROGRAMS`."""
    module = importlib.import_module(f"tcpx_mpi.patterns.{_PROGRAM_FAMILY[name]}")
    found: Program = next(each for each in module.PROGRAMS if each.name == name)
    return found


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

    def rounds(world: int) -> Sequence[Pattern]:
        assert pattern.rounds is not None
        return [repeated(one, messages) for one in pattern.rounds(world)]

    return dataclasses.replace(
        pattern,
        schedule=schedule,
        layout=layout,
        expected=expected,
        payload=None if pattern.payload is None else payload,
        held=None if pattern.held is None else held,
        rounds=None if pattern.rounds is None else rounds,
    )
