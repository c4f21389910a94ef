"""What the engine computes of two elements, bit by bit against numpy and ml_dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcpx_mpi import _native
from tcpx_mpi.schedule.elements import ElementType, ReduceOp

MEETING: dict[ReduceOp, Callable[..., Any]] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.AVG: np.add,
    ReduceOp.MULSUM: np.add,
}


def bits_of(element: ElementType) -> np.dtype[Any]:
    return np.dtype(f"u{element.bytes}")


def pairs(element: ElementType) -> tuple[NDArray[Any], NDArray[Any]]:
    """Operands of a type: all pairs of a byte's, else bits of every kind; none is NaN."""
    random = np.random.default_rng(element)
    if element.bytes == 1:
        bits = np.indices((256, 256), np.uint8).reshape(2, -1)
    else:
        bits = random.integers(0, 256, (2, 40_000, element.bytes), np.uint8)
        bits = bits.view(bits_of(element)).reshape(2, -1)
        # Near one another, so that sums round and differences cancel.
        bits[1, ::2] = bits[0, ::2] ^ random.integers(0, 4096, bits[1, ::2].shape).astype(
            bits.dtype
        )
    a, b = (np.ascontiguousarray(row).view(element.dtype) for row in bits)
    known = ~(is_nan(a) | is_nan(b))
    return a[known], b[known]


def is_nan(values: NDArray[Any]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return np.isnan(values.astype(np.float64))


def narrowed(element: ElementType, a: NDArray[Any], b: NDArray[Any], op: Any) -> NDArray[Any]:
    """As specified: types narrower than float in float, then rounded once."""
    with np.errstate(all="ignore"):
        if element.is_integer or element in (ElementType.FLOAT, ElementType.DOUBLE):
            return np.asarray(op(a, b))
        return np.asarray(op(a.astype(np.float32), b.astype(np.float32)).astype(element.dtype))


def assert_same_bits(element: ElementType, found: bytes, expected: NDArray[Any]) -> None:
    got = np.frombuffer(found, element.dtype)
    bits = bits_of(element)
    same = got.view(bits) == expected.view(bits)
    same |= is_nan(got) & is_nan(expected)
    same |= (got == expected) & (expected == np.zeros(1, element.dtype))  # the sign of a zero
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, f"{wrong.size} wrong, first {got[wrong[0]]} for {expected[wrong[0]]}"


@pytest.mark.parametrize("op", ReduceOp, ids=lambda op: op.label)
@pytest.mark.parametrize("element", ElementType, ids=lambda e: e.label)
def test_a_reduction_has_the_bits_of_numpy(element: ElementType, op: ReduceOp) -> None:
    a, b = pairs(element)
    found = _native.reduce(int(element), int(op), a.tobytes(), b.tobytes())
    assert_same_bits(element, found, narrowed(element, a, b, MEETING[op]))


@pytest.mark.parametrize("op", [ReduceOp.AVG, ReduceOp.MULSUM], ids=lambda op: op.label)
@pytest.mark.parametrize("element", ElementType, ids=lambda e: e.label)
def test_a_scaling_has_the_bits_of_numpy(element: ElementType, op: ReduceOp) -> None:
    a, _ = pairs(element)
    for factor in (1, 2, 3, 7, 100):
        found = _native.scale(int(element), int(op), float(factor), a.tobytes())
        by = np.full(1, factor).astype(np.float32 if not element.is_integer else element.dtype)
        if element is ElementType.DOUBLE:
            by = by.astype(np.float64)
        with np.errstate(all="ignore"):
            if op is ReduceOp.MULSUM:
                expected = narrowed(element, a, by, np.multiply)
            elif element.is_integer:  # toward zero, where numpy's // is toward minus infinity
                wide = a.astype(object)
                expected = np.array(
                    [abs(x) // factor * (-1 if x < 0 else 1) for x in wide], element.dtype
                )
            else:
                expected = narrowed(element, a, by, np.divide)
        assert_same_bits(element, found, expected)


def test_operands_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="no whole elements"):
        _native.reduce(int(ElementType.FLOAT), 0, b"123", b"123")
    with pytest.raises(ValueError, match="unequal lengths"):
        _native.reduce(int(ElementType.FLOAT), 0, b"1234", b"")
    with pytest.raises(ValueError, match="no type of elements 12"):
        _native.reduce(12, 0, b"", b"")
    with pytest.raises(ValueError, match="a factor of"):
        _native.scale(int(ElementType.INT32), int(ReduceOp.MULSUM), 0.5, b"")
