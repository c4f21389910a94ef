"""The values of the model's bytes, one number each, so that bytes are moved and folded as int64s.

    -1      nobody wrote it
    0...    one origin: iteration, rank and offset in the payload of that rank
    ...-2   what reductions and scalings made of origins

A reduction may take its operands in any order, but each of them once: it makes a *multiset* of
origins. A multiset is known by the sum of 62-bit numbers that are mixed of its members, and a
scaled value by a number mixed of what was scaled. Two values agree by chance with 2^-62.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.schedule.table import NONE

_UInt64s = NDArray[np.uint64]

_MASK = np.uint64((1 << 62) - 1)
_OF_ORIGIN = np.uint64(0x9E3779B97F4A7C15)
_OF_SCALED = np.uint64(0xD1B54A32D192ED03)


@dataclass(frozen=True)
class OriginCodes:
    """An origin as one number."""

    world: int
    #: At least the bytes of the longest payload.
    stride: int

    def of_slot(self, rank: int, iteration: int, length: int) -> Int64s:
        """The bytes of a rank's payload in an iteration: each iteration has its own."""
        first = (iteration * self.world + rank) * self.stride
        return first + np.arange(length)

    def text(self, code: int) -> str:
        """An origin in words."""
        if code == NONE:
            return "untouched"
        if code < NONE:
            return "a reduction"
        iteration, rest = divmod(code, self.world * self.stride)
        rank, offset = divmod(rest, self.stride)
        return f"byte {offset} of rank {rank} in iteration {iteration}"


def reduced(one: Int64s, other: Int64s) -> Int64s:
    """The reduction of two values, both of which were written."""
    return _value(_number(one) + _number(other))


def reduced_at(places: Int64s, values: Int64s, size: int) -> Int64s:
    """int64[size] in which place i is the reduction of all values whose place it is, each written;
    NONE where there is none, and a value that is alone as it is."""
    numbers = np.zeros(size, dtype=np.uint64)
    np.add.at(numbers, places, _number(values))
    found = _value(numbers)
    members = np.bincount(places, minlength=size)
    found[members == 0] = NONE
    alone = members[places] == 1
    found[places[alone]] = values[alone]
    return found


def scaled(values: Int64s) -> Int64s:
    """The scaling of values, which were written."""
    return _value(_mixed(_number(values) ^ _OF_SCALED))


def difference_text(
    codes: OriginCodes, found: int, wanted: int, members: Iterable[int], strangers: Sequence[int]
) -> str:
    """The difference of a folded value from the wanted one, whose members are known.

    `members` are values as they are folded; `strangers` are origins that may have got in.
    """
    if found == NONE:
        return "untouched"
    apart = int(_difference(found, wanted))
    for member in members:
        number = int(_number(np.array([member]))[0])
        if apart == -number % (int(_MASK) + 1):
            return f"the same without {codes.text(member)}"
        if apart == number:
            return f"the same with {codes.text(member)} twice"
    for stranger in strangers:
        if apart == int(_number(np.array([stranger]))[0]):
            return f"the same and {codes.text(stranger)}"
    return "another reduction" if found < NONE else codes.text(found)


def _difference(found: int, wanted: int) -> np.uint64:
    ours, theirs = _number(np.array([found, wanted], dtype=np.int64)).tolist()
    return np.uint64((ours - theirs) % (int(_MASK) + 1))


def _number(values: Int64s) -> _UInt64s:
    """A written value as the number that sums are made of."""
    origins = _mixed(values.astype(np.uint64) + _OF_ORIGIN)
    numbers: _UInt64s = np.where(values >= 0, origins, (-2 - values).astype(np.uint64))
    numbers &= _MASK
    return numbers


def _value(numbers: _UInt64s) -> Int64s:
    values: Int64s = -2 - (numbers & _MASK).astype(np.int64)
    return values


def _mixed(x: _UInt64s) -> _UInt64s:
    """A permutation of 64-bit numbers whose sums tell nothing of each other."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    mixed: _UInt64s = x ^ (x >> np.uint64(31))
    return mixed
