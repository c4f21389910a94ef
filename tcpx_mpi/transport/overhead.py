"""Overhead of this program: cost of its loop and clock; below it a row measures us."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.plugin.find import bundled_dir, find_plugin
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.table import BufferId

_CHUNK_BYTES = 4096
_CHUNKS_A_STEP = 128
_STEPS = 8
_BATCHES = 100
_LONG_ENOUGH_NS = 10_000_000
_PEER = 1
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Overhead:
    """Nanoseconds; `chunk_ns` is the engine's part of one chunk, posted, tested and consumed."""

    clock_ns: float
    clock_step_ns: int
    chunk_ns: float


def measure_overhead(null: _native.Plugin | None = None) -> Overhead:
    """Measured in about 20 ms: the clock, and the engine over a plugin that completes at once.

    `null` is that plugin where this process has it already: one is initialised once.

    The fastest of many batches: others on the machine make it slower, never faster.
    """
    clock_ns, step_ns = _native.clock_cost()
    return Overhead(clock_ns, step_ns, _chunk_ns(null or _null_plugin()))


def _null_plugin() -> _native.Plugin:
    plugin = _native.Plugin(find_plugin("null", {}, bundled_dir()).path)
    plugin.init()
    return plugin


def _chunk_ns(plugin: _native.Plugin) -> float:
    engine = _native.Engine(plugin, 0, 12, 16, 100)
    engine.add_send(_PEER, 0, 0, engine.listen(_PEER, 0, 0))
    engine.establish(_PATIENCE_S)
    block = _CHUNKS_A_STEP * _CHUNK_BYTES
    blocks = _STEPS // 2
    buffers: list[_native.SlotBuffer | None] = [
        _native.SlotBuffer(blocks * block) for _ in (BufferId.SEND, BufferId.RECV)
    ]
    steps = ScheduleBuilder()
    for number in range(blocks):
        steps.receive(_PEER, number)
        steps.send(_PEER, number)
    offsets = np.arange(blocks, dtype=np.int64) * block
    for number, buffer in enumerate(buffers):
        assert buffer is not None
        engine.register_buffer(number, buffer)
        buffer.cut(blocks * block, 0, blocks * block, 1)
        engine.set_blocks(number, offsets, np.full(blocks, block, np.int64))
    engine.load(steps.build().table, _CHUNK_BYTES, 1, buffers, 1)
    times: list[int] = []
    while len(times) < _BATCHES and sum(times) < _LONG_ENOUGH_NS:
        engine.start(0, 1, 0, int(_PATIENCE_S * 1e9), 0)
        while not engine.wait(_PATIENCE_S):
            pass
        if engine.fault() is not None:  # a signal; the run has its own way to say so
            return float("nan")
        stamps = engine.stamps(1)
        times.append(int(stamps.end[0]) - stamps.start)
    engine.close()
    return min(times) / (_STEPS * _CHUNKS_A_STEP)
