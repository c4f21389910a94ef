"""What the proof of placement costs around batches, in rows of 1 MiB over the null plugin.

Usage: python benchmarks/proof_cost.py [PAIRS [ITERATIONS]]

Batches with and without an observer take turns in one process. Prints the time of a chunk with it
and without, as stamped by the timed loop, and how long the observer itself took between batches.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.transport.observed_placement import PlacementObserver

MIB = 1 << 20
CHUNK_BYTES, CHANNELS = MIB // 2, 2
#: An iteration of a rank of a ring: a message in, a message out.
CHUNKS = 2 * MIB // CHUNK_BYTES
STRIDE_BYTES, GUARD_BYTES = MIB + 4096, 64
#: Rows of a schedule's table: operation, peer, lane, source, target, blocks, predecessors.
SEND = [0, 1, 0, 0, 0, -1, -1, 1, -1, 0, -1, 0]
RECEIVE = [1, 1, 0, -1, -1, 1, 0, 1, -1, 0, -1, 0]
#: As many slots of 1 MiB as a run has by default.
ITERATIONS, PAIRS = 480, 401


def main(pairs: int, iterations: int) -> None:
    engine = engine_over_null(iterations)
    observer = PlacementObserver(engine, (), "lo")
    took_us: list[float] = []

    def ns_a_chunk(watched: bool) -> float:
        start = time.monotonic_ns()
        if watched:
            observer.before()
        before = time.monotonic_ns()
        engine.start(0, iterations, 0, 10**10, 0)
        while not engine.wait(1.0):
            pass
        after = time.monotonic_ns()
        if watched:
            observer.after({"rtt_us": 1})
            took_us.append((before - start + time.monotonic_ns() - after) / 1e3)
        stamps = engine.stamps(iterations)
        return float(stamps["end"][-1] - stamps["start"]) / (iterations * CHUNKS)

    ns_a_chunk(True)  # warm
    ratios, each = [], {True: [0.0] * pairs, False: [0.0] * pairs}
    for pair in range(pairs):
        for watched in (True, False) if pair % 2 else (False, True):  # ABBA
            each[watched][pair] = ns_a_chunk(watched)
        ratios.append(each[True][pair] / each[False][pair])
    print(
        f"with {statistics.median(each[True]):.2f} ns/chunk, "
        f"without {statistics.median(each[False]):.2f} ns/chunk, "
        f"cost {100 * (statistics.median(ratios) - 1):.2f} %, "
        f"witness {statistics.median(took_us):.1f} us a batch"
    )


def engine_over_null(iterations: int) -> _native.Engine:
    """One rank, connected and loaded with the row."""
    plugin = _native.Plugin(str(Path(_native.__file__).parent / "libnccl-net-null.so"))
    plugin.init()
    engine = _native.Engine(plugin, 0, 12, 16, 100)
    for channel in range(CHANNELS):
        engine.add_send(1, 0, channel, engine.listen(1, 0, channel))
    engine.establish(5.0)
    buffers = [_native.SlotBuffer(iterations * STRIDE_BYTES) for _ in range(2)]
    for number, buffer in enumerate(buffers):
        buffer.cut(MIB, GUARD_BYTES, STRIDE_BYTES, iterations)
        engine.register_buffer(number, buffer)
        engine.set_blocks(number, np.array([0], np.int64), np.array([MIB], np.int64))
    table = np.array([SEND, RECEIVE], np.int32)
    engine.load(table, CHUNK_BYTES, CHANNELS, [*buffers, None], iterations)
    return engine


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(PAIRS, ITERATIONS)[len(given) :])
