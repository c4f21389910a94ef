"""23 bytes from each rank to the next, through the plugin, with MPI to meet.

mpirun -n 2 python examples/hello.py
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from tcpx_mpi import Session

TEXT = b"Hello from TCPX client!"


def main() -> None:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    target, source = (rank + 1) % size, (rank - 1) % size
    # A session is for one peer, so with more than two ranks there are two.
    to_next, from_last = Session(), Session()
    info = world.sendrecv(from_last.listen(), dest=source, source=target)
    to_next.load_remote_conn_info(info)
    to_next.connect()
    from_last.accept()

    message = np.frombuffer(TEXT, dtype=np.uint8).copy()
    received = np.zeros(len(TEXT), dtype=np.uint8)
    incoming, outgoing = from_last.create_transfer(), to_next.create_transfer()
    incoming.post_recv(from_last.register_memory(received), 0, len(TEXT))
    outgoing.post_send(to_next.register_memory(message), 0, len(TEXT))
    outgoing.wait()
    incoming.wait()

    text = received.tobytes()
    print(f"rank {rank}: {len(text)} bytes from rank {source}: {text.decode()}", flush=True)
    world.Barrier()  # a sender may not close before its receiver has everything
    to_next.close()
    from_last.close()
    if text != TEXT:
        world.Abort(5)


if __name__ == "__main__":
    main()
