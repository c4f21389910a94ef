"""What ranks are to do with NCCL, what goes in, and what must come out, bit by bit. Pure.

A case is one call of every rank. What a rank puts in follows from the case and its number, so each
rank knows what it must get without asking another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

#: NCCL's numbers of types (ncclDataType_t) and operations (ncclRedOp_t).
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
         "float32": 7, "float64": 8, "bfloat16": 9}  # fmt: skip
OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}

#: Those that NCCL has a call for, and those that are made of sends and receives (nccl_rounds).
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
GROUPED = ("sendrecv", "alltoall", "alltoallv", "gather", "scatter", "hypercube")
PROGRAMS = (*GROUPED, *COLLECTIVES)
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
#: A block for every rank goes in, and comes out; else one.
_MANY_IN = ("reduce_scatter", "alltoall", "alltoallv", "scatter")
_MANY_OUT = ("all_gather", "alltoall", "alltoallv", "gather", "hypercube")
#: After so many bytes a pattern comes again: a prime, so no page has the bytes of another one.
_PERIOD = 1048573
#: In front of what comes out and behind it, where nothing may be written.
GUARD = 512
POISON = 0xA5
#: Elements that are reduced are below this, so that no type rounds them, in whatever order.
_MOST = 8


@dataclass(frozen=True)
class Case:
    """One call: `count` elements of a type in each block."""

    program: str
    count: int
    kind: str = "uint8"
    operation: str = "sum"
    root: int = 0
    in_place: bool = False
    seed: int = 1
    comm: str = "first"

    @property
    def name(self) -> str:
        text = f"{self.program} of {self.count} {self.kind}"
        if self.program in REDUCING:
            text += f" by {self.operation}"
        return text + (" in place" if self.in_place else "")


def programs_of(world: int) -> tuple[str, ...]:
    """Those of so many ranks: as in nccl-tests, a cube needs a power of 2."""
    cube = world & (world - 1) == 0
    return tuple(each for each in PROGRAMS if cube or each != "hypercube")


def dtype_of(kind: str) -> np.dtype[Any]:
    """numpy's type of that name."""
    if kind == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(kind)


def case_of_bytes(program: str, size: int, world: int, kind: str = "uint8", **more: Any) -> Case:
    """A case whose larger side has so many bytes, or a little less: so nccl-tests counts."""
    blocks = world if program in _MANY_IN + _MANY_OUT else 1
    return Case(program, size // (blocks * dtype_of(kind).itemsize), kind, **more)


@dataclass(frozen=True)
class Layout:
    """Where a rank's elements lie, in bytes: of the source, and behind the guard of the target.

    In place the source lies within the target.
    """

    source: int
    target: int
    source_at: int

    @property
    def target_with_guards(self) -> int:
        return self.target + 2 * GUARD


def layout_of(case: Case, rank: int, world: int) -> Layout:
    """The layout of one rank."""
    size = dtype_of(case.kind).itemsize
    source = sum(length_of(case, rank, to, world) for to in range(world))
    target = sum(length_of(case, of, rank, world) for of in range(world))
    if case.program not in _MANY_IN:
        source = case.count
    if case.program not in _MANY_OUT:
        target = case.count
    if case.program in ("gather", "reduce") and rank != case.root:
        target = 0
    if case.program == "scatter" and rank != case.root:
        source = 0
    at = rank * case.count * size if case.in_place and case.program == "all_gather" else 0
    return Layout(source * size, target * size, at)


def length_of(case: Case, source: int, target: int, world: int) -> int:
    """Elements of the block from one rank to another; those of alltoallv grow with the distance."""
    if case.program != "alltoallv":
        return case.count
    return 2 * case.count * ((target - source) % world) // (world - 1)


def source_of(case: Case, rank: int, world: int) -> Bytes:
    """What a rank puts in."""
    kind = dtype_of(case.kind)
    elements = layout_of(case, rank, world).source // kind.itemsize
    table = np.random.default_rng([case.seed, rank]).bytes(_PERIOD)
    raw = np.frombuffer(table, np.uint8)
    if case.program not in REDUCING:
        return np.resize(raw, elements * kind.itemsize)
    return np.resize((raw % _MOST).astype(kind), elements).view(np.uint8)


def target_of(case: Case, rank: int, world: int) -> Bytes:
    """What a rank must get."""

    def source(of: int) -> Bytes:
        return source_of(case, of, world)

    size = dtype_of(case.kind).itemsize
    mine = slice(rank * case.count * size, (rank + 1) * case.count * size)
    if case.program == "sendrecv":
        return source((rank - 1) % world)
    if case.program == "broadcast":
        return source(case.root)
    if case.program == "scatter":
        return source(case.root)[mine]
    if case.program in ("gather", "reduce") and rank != case.root:
        return np.empty(0, np.uint8)
    if case.program in ("all_gather", "hypercube", "gather"):
        return np.concatenate([source(of) for of in range(world)])
    if case.program == "alltoall":
        return np.concatenate([source(of)[mine] for of in range(world)])
    if case.program == "alltoallv":
        return np.concatenate([_part(case, of, rank, world) for of in range(world)])
    reduced = _reduced(case, [source(of) for of in range(world)])
    return reduced[mine] if case.program == "reduce_scatter" else reduced


def _part(case: Case, of: int, to: int, world: int) -> Bytes:
    """What one rank has for another, of what it puts in."""
    size = dtype_of(case.kind).itemsize
    first = sum(length_of(case, of, each, world) for each in range(to))
    end = first + length_of(case, of, to, world)
    return source_of(case, of, world)[first * size : end * size]


def _reduced(case: Case, sources: list[Bytes]) -> Bytes:
    kind = dtype_of(case.kind)
    # Small whole numbers, which every type has.
    numbers = [source.view(kind).astype(np.int32) for source in sources]
    function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    total = numbers[0]
    for other in numbers[1:]:
        total = function[case.operation](total, other)
    return total.astype(kind).view(np.uint8)


def verdict(case: Case, rank: int, world: int, found: Bytes) -> dict[str, Any]:
    """Of a target with its guards: how many bytes are wrong, and the first of them."""
    expected = target_of(case, rank, world)
    wrong = np.flatnonzero(found[GUARD : GUARD + len(expected)] != expected)
    guards = np.concatenate([found[:GUARD], found[GUARD + len(expected) :]])
    return {
        "case": case.name,
        "checked": len(expected),
        "wrong": len(wrong),
        "first": int(wrong[0]) if len(wrong) else -1,
        "beyond": int(np.count_nonzero(guards != POISON)),
    }
