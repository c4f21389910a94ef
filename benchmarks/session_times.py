#!/usr/bin/env python3
"""Times of Python's Session: round trips between two processes, the bytes of the last one checked.

benchmarks/against_commit REV -- python $PWD/benchmarks/session_times.py
"""

from __future__ import annotations

import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tcpx_mpi import Session, Transfer

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from two_processes import exchange, part, together

#: Bytes, and round trips of which the median is taken.
SIZES = ((8, 4000), (1 << 20, 400), (16 << 20, 40))
MOST = max(size for size, _ in SIZES)


def moved(transfer: Transfer, sends: bool, memory: int, size: int) -> None:
    (transfer.post_send if sends else transfer.post_recv)(memory, 0, size)
    transfer.wait()


def first(line: Connection) -> None:
    out, back = np.arange(MOST, dtype=np.uint32).view(np.uint8)[:MOST], np.zeros(MOST, np.uint8)
    with Session(plugin="softtcpx") as session:
        exchange(line, session)
        there, here = session.register_memory(out), session.register_memory(back)
        for size, count in SIZES:
            back[:] = 0
            transfer, times = session.create_transfer(), []
            for _ in range(count):
                begun = time.perf_counter_ns()
                moved(transfer, True, there, size)
                moved(transfer, False, here, size)
                times.append(time.perf_counter_ns() - begun)
            if not (back[:size] == out[:size]).all():
                sys.exit("wrong bytes")
            print(f"round trip of {size} B: {np.median(times) / 1e3:.2f} us")
        part(line)


def second(line: Connection) -> None:
    memory = np.zeros(MOST, np.uint8)
    with Session(plugin="softtcpx") as session:
        exchange(line, session)
        place = session.register_memory(memory)
        for size, count in SIZES:
            transfer = session.create_transfer()
            for _ in range(count):
                moved(transfer, False, place, size)
                moved(transfer, True, place, size)
        part(line)


if __name__ == "__main__":
    together(first, second)
