"""Two processes, no MPI: one sends an array of its GPU, the other adds 1 to it and sends it back.

    python examples/two_gpus.py                          GPUs 0 and 1, or 0 twice where there is one

As two_processes.py, but for what a GPU's memory needs: the session knows its GPU before it listens,
arrays begin at a multiple of 4096 and are whole pages, and a kernel is waited for before what it
wrote is sent.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

import cupy
from two_processes import exchange, part, together

from tcpx_mpi import Session

PAGE = 4096
BYTES = 8 << 20


def pages(count: int) -> cupy.ndarray:
    """So many bytes, which begin at a multiple of a page: CuPy's begin at one of 512."""
    room = cupy.zeros(count + PAGE, cupy.uint8)
    start = -room.data.ptr % PAGE
    return room[start : start + count]


def first(line: Connection) -> None:
    numbers = pages(BYTES)
    numbers[:] = cupy.arange(BYTES, dtype=cupy.uint8)
    cupy.cuda.Device().synchronize()
    with Session(plugin="softtcpx", gpu=0) as session:
        exchange(line, session)
        memory = session.register_memory(numbers)
        with session.create_transfer() as there:
            there.post_send(memory)
            there.wait()
        with session.create_transfer() as back:
            back.post_recv(memory)
            back.wait()
        part(line)
    right = bool((numbers == cupy.arange(BYTES, dtype=cupy.uint8) + 1).all())
    print(f"{BYTES} bytes from GPU to GPU and back: {'all right' if right else 'WRONG'}")
    sys.exit(0 if right else 5)


def second(line: Connection) -> None:
    gpu = cupy.cuda.runtime.getDeviceCount() - 1
    with cupy.cuda.Device(gpu), Session(plugin="softtcpx", gpu=gpu) as session:
        numbers = pages(BYTES)
        exchange(line, session)
        memory = session.register_memory(numbers)
        transfer = session.create_transfer()
        transfer.post_recv(memory)
        transfer.wait()
        numbers += 1
        cupy.cuda.Device().synchronize()
        transfer.post_send(memory)
        transfer.wait()
        transfer.release()
        part(line)


if __name__ == "__main__":
    together(first, second)
