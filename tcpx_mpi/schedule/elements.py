"""Types of elements, and what a reduction makes of two of them: the numbers that native code knows.

`native/reduce/element.h` has the same numbers in the same order and computes the same bits:

    integers    modulo 2^w; the division of `avg` truncates toward zero
    float, double   as IEEE 754 has it, to nearest even
    half, bfloat16, f8e4m3, f8e5m2   in float, rounded to nearest even after each operation; f8e4m3
                has no infinity: what rounds to more than 448 is NaN, as ml_dtypes converts it
    min, max    the smaller and the larger number; a NaN is not in scope

What ranks put in (`native/memory/element_rule.h`) is such that no step of a reduction rounds, so
that any order gives the same bits:

    integers, all but avg   random bits of the whole width (prod: odd ones)
    sum, mulsum, avg        whole numbers from 1 on, both signs where the type has two, whose sum is
                            at most 16 (f8e4m3), 8 (f8e5m2), 256 (bfloat16), 2048 (half), 2^24
                            (float), 2^30 (double), 127 and 255 (avg of int8 and uint8), 2^30 (avg
                            of wider integers)
    prod                    1, -1, 2, -2; at most 8 (f8e4m3), 15 (half, f8e5m2) or 60 are a 2
    min, max                whole numbers up to the same bounds, never 0

At most 64 ranks are active in an element, in f8e5m2 at most 8: those that a hash of its index
picks. The others put in 0, 1, or the largest or least number.

The types that numpy lacks are those of ml_dtypes: `float8_e4m3fn` and `float8_e5m2` of the OCP.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import Any

from tcpx_mpi.arrays import np


class ElementType(IntEnum):
    """The type of an element, in nccl-tests' order."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    HALF = 6
    FLOAT = 7
    DOUBLE = 8
    BFLOAT16 = 9
    F8E4M3 = 10
    F8E5M2 = 11

    @property
    def label(self) -> str:
        """As the command line and the tables have it: "bfloat16"."""
        return self.name.lower()

    @classmethod
    def of_label(cls, label: str) -> ElementType:
        """Raises KeyError for a name that no type has."""
        return cls[label.upper()]

    @property
    def bytes(self) -> int:
        return _BYTES[self]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """numpy's, or ml_dtypes' own that numpy can compute with."""
        if self.name in _NUMPY:
            return np.dtype(_NUMPY[self.name])
        import ml_dtypes  # seldom wanted

        own: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
        return own

    @property
    def is_integer(self) -> bool:
        return self <= ElementType.UINT64


class ReduceOp(IntEnum):
    """A reduction of all ranks' elements.

    AVG is SUM, and then a SCALE step that divides by the number of ranks. MULSUM is a SCALE step
    that multiplies by the rank's own factor, and then SUM.
    """

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4
    MULSUM = 5

    @property
    def label(self) -> str:
        """As the command line and the tables have it: "mulsum"."""
        return self.name.lower()

    @classmethod
    def of_label(cls, label: str) -> ReduceOp:
        """Raises KeyError for a name that no operation has."""
        return cls[label.upper()]

    def factor(self, index: int, ranks: int) -> float:
        """The `factor` of a program on rank `index` of the `ranks` that are reduced together.

        AVG: what a SCALE step divides by. MULSUM: what it multiplies by, 1 or 2 in turn. Others
        have no SCALE step.
        """
        if self is ReduceOp.AVG:
            return float(ranks)
        return float(1 + index % 2) if self is ReduceOp.MULSUM else 1.0


_BYTES = dict(zip(ElementType, (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1), strict=True))
_NUMPY = {
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "UINT32": "uint32",
    "INT64": "int64",
    "UINT64": "uint64",
    "HALF": "float16",
    "FLOAT": "float32",
    "DOUBLE": "float64",
}
_ML_DTYPES = {"BFLOAT16": "bfloat16", "F8E4M3": "float8_e4m3fn", "F8E5M2": "float8_e5m2"}
