"""The types and operations of elements: names, sizes, numpy's own types for them."""

from __future__ import annotations

import numpy as np
import pytest

from tcpx_mpi.schedule.elements import ElementType, ReduceOp

LABELS = [
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
    "f8e4m3",
    "f8e5m2",
]


def test_types_are_numbered_in_the_order_of_nccl_tests() -> None:
    assert [t.label for t in ElementType] == LABELS
    assert [int(t) for t in ElementType] == list(range(12))
    assert [ElementType.of_label(label) for label in LABELS] == list(ElementType)


@pytest.mark.parametrize("element", ElementType, ids=lambda e: e.label)
def test_a_type_of_numpy_has_the_size_that_is_stated(element: ElementType) -> None:
    assert element.dtype.itemsize == element.bytes
    one = np.ones(3, element.dtype)
    assert list((one + one).astype(float)) == [2.0, 2.0, 2.0]
    if not element.label.startswith("uint"):
        assert (-one).astype(float)[0] == -1.0


@pytest.mark.parametrize(
    ("element", "largest"),
    [
        ("half", 65504.0),
        ("bfloat16", 3.3895313892515355e38),
        ("f8e4m3", 448.0),
        ("f8e5m2", 57344.0),
    ],
)
def test_a_narrow_type_has_its_largest_number(element: str, largest: float) -> None:
    dtype = ElementType.of_label(element).dtype
    assert float(np.array(largest, dtype)) == largest
    with np.errstate(over="ignore"):
        assert not np.isfinite(float(np.array(largest * 1.1, np.float32).astype(dtype)))


def test_operations_are_numbered_and_named() -> None:
    assert [op.label for op in ReduceOp] == ["sum", "prod", "min", "max", "avg", "mulsum"]
    assert [int(op) for op in ReduceOp] == list(range(6))
    assert ReduceOp.of_label("mulsum") is ReduceOp.MULSUM


def test_a_factor_is_of_the_rank_or_of_all_ranks() -> None:
    assert [ReduceOp.MULSUM.factor(index, 4) for index in range(4)] == [1.0, 2.0, 1.0, 2.0]
    assert [ReduceOp.AVG.factor(index, 4) for index in range(2)] == [4.0, 4.0]
    assert ReduceOp.SUM.factor(3, 4) == 1.0
