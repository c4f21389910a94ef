"""Inputs of a reduction and its check, against numpy and ml_dtypes: every type and operation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcpx_mpi import _native
from tcpx_mpi.schedule.elements import ElementType, ReduceOp

COUNT = 257
FOLDS: dict[ReduceOp, Any] = {ReduceOp.PROD: np.multiply, ReduceOp.MIN: np.minimum}
FOLDS[ReduceOp.MAX] = np.maximum


def spans(element: ElementType, sender: int = 0) -> NDArray[np.int64]:
    return np.array([[0, COUNT * element.bytes, sender, 0]], np.int64)


def buffer_of(element: ElementType) -> Any:
    buffer = _native.SlotBuffer(COUNT * element.bytes)
    buffer.cut(COUNT * element.bytes, 0, COUNT * element.bytes, 1)
    return buffer


def inputs(element: ElementType, op: ReduceOp, ranks: int) -> list[NDArray[Any]]:
    group = _native.ElementGroup(int(element), int(op), ranks)
    rows = []
    for rank in range(ranks):
        buffer = buffer_of(element)
        buffer.fill_elements(0, 1, 3, 9, spans(element, rank), group)
        rows.append(buffer.view().view(element.dtype).copy())
    return rows


@pytest.mark.parametrize("ranks", [2, 5, 33, 80])
@pytest.mark.parametrize("op", ReduceOp, ids=lambda op: op.label)
@pytest.mark.parametrize("element", ElementType, ids=lambda e: e.label)
def test_a_fold_by_numpy_is_what_must_come_out(
    element: ElementType, op: ReduceOp, ranks: int
) -> None:
    rows = inputs(element, op, ranks)
    with np.errstate(over="ignore"):
        if op is ReduceOp.MULSUM:
            rows = [
                row * np.array(op.factor(rank, ranks)).astype(element.dtype)
                for rank, row in enumerate(rows)
            ]
        result = functools.reduce(FOLDS.get(op, np.add), reversed(rows))
        if op is ReduceOp.AVG:
            if element.is_integer:
                result = np.trunc(result / np.float64(ranks)).astype(element.dtype)
            elif element in (ElementType.FLOAT, ElementType.DOUBLE):
                result = result / element.dtype.type(ranks)
            else:
                result = (result.astype(np.float32) / np.float32(ranks)).astype(element.dtype)
    assert result.dtype == element.dtype
    buffer = buffer_of(element)
    buffer.view()[:] = result.view(np.uint8)
    group = _native.ElementGroup(int(element), int(op), ranks)
    verdict = buffer.verify_elements(0, 1, 3, 9, spans(element), group)
    assert verdict == {"wrong": 0, "guard_wrong": 0, "first": None}


def test_the_first_wrong_element_is_named_with_what_was_found_and_expected() -> None:
    element, ranks = ElementType.BFLOAT16, 4
    group = _native.ElementGroup(int(element), int(ReduceOp.SUM), ranks, [8, 9, 10, 11])
    rows = []
    for rank in range(ranks):
        buffer = buffer_of(element)
        buffer.fill_elements(0, 1, 3, 9, spans(element, rank), group)
        rows.append(buffer.view().view(element.dtype).copy())
    result = functools.reduce(np.add, rows)
    buffer.view()[:] = result.view(np.uint8)
    assert buffer.verify_elements(0, 1, 3, 9, spans(element), group)["wrong"] == 0
    wrong = buffer.view().view(element.dtype)
    wrong[[20, 100]] += np.ones(1, element.dtype)
    assert buffer.verify_elements(0, 1, 3, 9, spans(element), group) == {
        "wrong": 2, "guard_wrong": 0, "first": {
            "iteration": 3, "offset": 40, "sender": -1, "element": 20,
            "expected": result[20].tobytes(), "found": wrong[20].tobytes(),
        },
    }  # fmt: skip


def test_a_group_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="2 origins of 3 ranks"):
        _native.ElementGroup(0, 0, 3, [1, 2])
    group = _native.ElementGroup(int(ElementType.FLOAT), 0, 2)
    buffer, bad = buffer_of(ElementType.FLOAT), np.array([[0, 6, 0, 0]], np.int64)
    with pytest.raises(ValueError, match="not made of elements of 4 bytes"):
        buffer.fill_elements(0, 1, 0, 0, bad, group)


def test_what_is_only_moved_is_the_payload() -> None:
    group = _native.ElementGroup(int(ElementType.FLOAT), -1, 3)
    buffer = buffer_of(ElementType.FLOAT)
    buffer.fill_elements(0, 1, 3, 9, spans(ElementType.FLOAT, 2), group)
    assert bytes(buffer.view()) == _native.payload(4 * COUNT, 9, 2, 3, 0)
    assert (group.element_bytes, group.active) == (4, 1)
