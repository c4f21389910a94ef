"""What a chunk costs the engine, out of batches whose times are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcpx_mpi import _native
from tcpx_mpi.transport import overhead


class Engine:
    """An engine whose batches take 9 ms, 51.2 us and 2 ms; then it is long enough."""

    def __init__(self, *given: Any) -> None:
        self._times = [9_000_000, 51_200, 2_000_000]

    def listen(self, *given: Any) -> bytes:
        return b""

    def nothing(self, *given: Any) -> None:
        pass

    add_send = establish = register_buffer = set_blocks = start = fault = close = nothing

    def load(self, table: Any, chunk_bytes: int, *given: Any) -> None:
        #: 128 chunks in each of eight steps.
        assert (len(table), chunk_bytes) == (8, 4096)

    def wait(self, patience_s: float) -> bool:
        return True

    def stamps(self, iterations: int) -> _native.Stamps:
        none = np.zeros(1, np.int64)
        return _native.Stamps(7, False, none + 7 + self._times.pop(0), none, none)


def test_a_chunk_costs_its_part_of_the_fastest_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = SimpleNamespace(Engine=Engine, SlotBuffer=_native.SlotBuffer)
    monkeypatch.setattr(overhead, "_native", fake)
    plugin: Any = None
    assert overhead._chunk_ns(plugin) == 51_200 / (8 * 128)
