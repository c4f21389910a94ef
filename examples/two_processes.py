"""Two processes, no MPI: one sends an array, the other adds 1 to it and sends it back.

    python examples/two_processes.py                          both here, joined by a pipe
    python examples/two_processes.py listen 127.0.0.1:5000    one side ...
    python examples/two_processes.py connect 127.0.0.1:5000   ... and the other, joined by TCP

What joins them carries the connection info at the start and one word at the end; all else goes
through the plugin.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

from tcpx_mpi import Session

COUNT = 1_000_003
#: Not a secret: it only keeps a stray connection from being taken for the other side.
KEY = b"two_processes"


def exchange(line: Connection, session: Session) -> None:
    """Tell the other side where to connect, hear the same of it, and meet."""
    line.send_bytes(session.listen())
    session.load_remote_conn_info(line.recv_bytes())
    session.establish()


def part(line: Connection) -> None:
    """Wait until the other side has everything too: only then may connections be closed."""
    line.send_bytes(b"done")
    line.recv_bytes()


def first(line: Connection) -> None:
    numbers = np.arange(COUNT, dtype=np.int64)
    with Session() as session:
        exchange(line, session)
        memory = session.register_memory(numbers)
        with session.create_transfer() as there:
            there.post_send(memory)
            there.wait()
        with session.create_transfer() as back:
            back.post_recv(memory)
            back.wait()
        part(line)
    right = bool((numbers == np.arange(1, COUNT + 1)).all())
    print(f"{numbers.nbytes} bytes there and back: {'all right' if right else 'WRONG'}")
    sys.exit(0 if right else 5)


def second(line: Connection) -> None:
    numbers = np.zeros(COUNT, dtype=np.int64)
    with Session() as session:
        exchange(line, session)
        memory = session.register_memory(numbers)
        transfer = session.create_transfer()
        transfer.post_recv(memory)
        transfer.wait()
        numbers += 1
        transfer.post_send(memory)
        transfer.wait()
        transfer.release()
        part(line)


def together(first: Callable[[Connection], None], second: Callable[[Connection], None]) -> None:
    """Both sides here, joined by a pipe."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=second, args=(theirs,))
    other.start()
    theirs.close()
    try:
        first(ours)
    finally:
        ours.close()
        other.join()


def connected(address: tuple[str, int], patience_s: float = 30.0) -> Connection:
    """The other side may be started a little later."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return Client(address, authkey=KEY)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)  # nobody tells when it listens


def main(arguments: list[str]) -> None:
    if not arguments:
        return together(first, second)
    if len(arguments) != 2 or arguments[0] not in ("listen", "connect"):
        sys.exit(__doc__)
    host, _, port = arguments[1].rpartition(":")
    if arguments[0] == "listen":
        with Listener((host, int(port)), authkey=KEY) as listener, listener.accept() as line:
            first(line)
    else:
        with connected((host, int(port))) as line:
            second(line)


if __name__ == "__main__":
    main(sys.argv[1:])
