"""The bytes that are sent, against the same function written once more with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tcpx_mpi import _native

_U64 = (1 << 64) - 1
_U32 = (1 << 32) - 1
_STRIDE = 512

uint64s = st.integers(0, _U64)


def mix64(x: int) -> int:
    for _ in range(2):
        x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & _U64
    return x ^ x >> 32


def expected(count: int, seed: int, sender: int, iteration: int, offset: int) -> bytes:
    key = mix64(mix64((mix64(seed) + sender + 1) & _U64) + iteration + 1 & _U64)
    places = np.arange(offset, offset + count, dtype=np.uint64)
    words = places // 4
    stirs = {int(high): mix64(int(high)) & _U32 for high in np.unique(words >> np.uint64(32))}
    stir = np.array([stirs[int(w)] for w in words >> np.uint64(32)], np.uint32)
    x = (words & np.uint64(_U32)).astype(np.uint32) + np.uint32(key & _U32)
    x *= np.uint32(0x9E3779B1)
    x ^= x >> np.uint32(15)
    x = (x + (stir ^ np.uint32(key >> 32))) * np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(16)
    return bytes((x >> (8 * (places % 4)).astype(np.uint32) & 255).astype(np.uint8))


def slots(used: int, count: int) -> Any:
    buffer = _native.SlotBuffer(_STRIDE * count)
    buffer.cut(used, 64, _STRIDE, count)
    return buffer


def span_of(used: int, sender: int) -> NDArray[np.int64]:
    return np.array([[0, used, sender, 0]], np.int64)


@given(
    count=st.integers(0, 300),
    seed=uint64s,
    sender=st.integers(0, (1 << 32) - 2),
    iteration=st.integers(0, _U64 - 1),
    offset=st.one_of(st.integers(0, 1 << 40), st.integers((1 << 34) - 300, 1 << 34)),
)
def test_the_native_bytes_are_those_of_the_written_function(
    count: int, seed: int, sender: int, iteration: int, offset: int
) -> None:
    assert _native.payload(count, seed, sender, iteration, offset) == expected(
        count, seed, sender, iteration, offset
    )


def test_poison_is_the_complement_so_that_no_byte_of_it_is_right() -> None:
    buffer = slots(300, 2)
    buffer.poison(0, 2, 40, 9, span_of(300, 2))
    right = np.frombuffer(expected(300, 9, 2, 41, 0), np.uint8)
    assert np.array_equal(buffer.view().reshape(2, _STRIDE)[1, :300], ~right)
    assert buffer.verify(0, 2, 40, 9, span_of(300, 2))["wrong"] == 600


def test_the_first_wrong_byte_is_named() -> None:
    buffer = slots(300, 3)
    spans = np.array([[0, 100, 4, 7], [100, 200, 5, 1000]], np.int64)
    buffer.poison(0, 3, 40, 9, spans)
    buffer.fill(0, 3, 40, 9, spans)
    assert buffer.verify(0, 3, 40, 9, spans) == {"wrong": 0, "guard_wrong": 0, "first": None}
    view = buffer.view().reshape(3, _STRIDE)
    right = view[1, 250]
    view[1, 250] ^= 1
    view[2, 3] ^= 1
    assert buffer.verify(0, 3, 40, 9, spans) == {
        "wrong": 2,
        "guard_wrong": 0,
        "first": {
            "iteration": 41,
            "offset": 250,
            "sender": 5,
            "element": None,
            "expected": bytes([right]),
            "found": bytes([right ^ 1]),
        },
    }


def test_a_write_behind_a_message_has_no_sender() -> None:
    buffer = slots(300, 1)
    buffer.poison(0, 1, 0, 9, span_of(300, 2))
    buffer.fill(0, 1, 0, 9, span_of(300, 2))
    buffer.view()[310] = 0
    verdict = buffer.verify(0, 1, 0, 9, span_of(300, 2))
    assert (verdict["wrong"], verdict["guard_wrong"]) == (0, 1)
    assert (verdict["first"]["offset"], verdict["first"]["sender"]) == (310, -1)


@pytest.mark.parametrize(
    ("used", "stride", "count"), [(449, 512, 4), (300, 512, 5), (1 << 40, 1 << 41, 1)]
)
def test_slots_that_do_not_fit_are_refused(used: int, stride: int, count: int) -> None:
    buffer = _native.SlotBuffer(_STRIDE * 4)
    with pytest.raises(ValueError, match="slots do not fit"):
        buffer.cut(used, 64, stride, count)


def test_slots_that_are_not_there_are_refused() -> None:
    buffer = slots(300, 4)
    for call in (buffer.fill, buffer.poison, buffer.verify):
        with pytest.raises(ValueError, match="no such slots"):
            call(2, 3, 0, 9, span_of(300, 2))
