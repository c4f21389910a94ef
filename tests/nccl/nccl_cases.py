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

PROGRAMS = ("sendrecv", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall")
REDUCING = ("all_reduce", "reduce_scatter")
#: Of each rank goes in so many blocks, and so many come out: one, or one for every rank.
_BLOCKS = {
    "sendrecv": (False, False), "all_reduce": (False, False), "all_gather": (False, True),
    "reduce_scatter": (True, False), "broadcast": (False, False), "alltoall": (True, True),
}  # fmt: skip
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


def dtype_of(kind: str) -> np.dtype[Any]:
    """numpy's type of that name."""
    if kind == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(kind)


def case_of_bytes(program: str, size: int, world: int, kind: str = "uint8", **more: Any) -> Case:
    """A case whose larger side has so many bytes, or a little less: so nccl-tests counts."""
    blocks = world if any(_BLOCKS[program]) else 1
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
    block = case.count * dtype_of(case.kind).itemsize
    source, target = (block * (world if many else 1) for many in _BLOCKS[case.program])
    at = rank * block if case.in_place and case.program == "all_gather" else 0
    return Layout(source, target, at)


def source_of(case: Case, rank: int, world: int) -> Bytes:
    """What a rank puts in."""
    many, _ = _BLOCKS[case.program]
    kind = dtype_of(case.kind)
    elements = case.count * (world if many else 1)
    table = np.random.default_rng([case.seed, rank]).bytes(_PERIOD)
    raw = np.frombuffer(table, np.uint8)
    if case.program not in REDUCING:
        return np.resize(raw, elements * kind.itemsize)
    return np.resize((raw % _MOST).astype(kind), elements).view(np.uint8)


def target_of(case: Case, rank: int, world: int) -> Bytes:
    """What a rank must get."""

    def whole(of: int) -> Bytes:
        return source_of(case, of, world)

    block = case.count * dtype_of(case.kind).itemsize
    mine = slice(rank * block, (rank + 1) * block)
    if case.program == "sendrecv":
        return whole((rank - 1) % world)
    if case.program == "broadcast":
        return whole(case.root)
    if case.program == "all_gather":
        return np.concatenate([whole(of) for of in range(world)])
    if case.program == "alltoall":
        return np.concatenate([whole(of)[mine] for of in range(world)])
    reduced = _reduced(case, [whole(of) for of in range(world)])
    return reduced if case.program == "all_reduce" else reduced[mine]


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
