"""Processes that hold a session with each other one, and all establish the next one's first.

    python circle_of_sessions.py PLUGIN ABI PROCESSES

With "threads" for PROCESSES: two sessions of one process, each of a thread of its own.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from multiprocessing.connection import Connection

import numpy as np

from tcpx_mpi import Session

PLUGIN, ABI = sys.argv[1], int(sys.argv[2])
PATIENCE_S = 20.0
SIZE = 100_003


def open_session() -> Session:
    return Session(plugin=PLUGIN, abi=ABI, channels=2)


def exchange(sessions: dict[int, Session], mine: int) -> None:
    """A message each way with every peer; raises unless the bytes are those of the peer."""
    out = np.full(SIZE, mine, np.uint8)
    transfers, inputs = [], []
    for peer, session in sessions.items():
        into = np.zeros(SIZE, np.uint8)
        sent, received = session.register_memory(out), session.register_memory(into)
        transfer = session.create_transfer()
        transfer.post_recv(received)
        transfer.post_send(sent)
        transfers.append(transfer)
        inputs.append((peer, into))
    for transfer in transfers:
        transfer.wait()
    for peer, into in inputs:
        if (into != peer).any():
            raise RuntimeError(f"{mine}: wrong bytes from {peer}")


def process(rank: int, lines: dict[int, Connection]) -> None:
    peers = sorted(lines, key=lambda peer: (peer - rank) % (len(lines) + 1))
    sessions = {peer: open_session() for peer in peers}
    for peer in peers:
        lines[peer].send_bytes(sessions[peer].listen())
    for peer in peers:
        sessions[peer].load_remote_conn_info(lines[peer].recv_bytes())
    for peer in peers:
        sessions[peer].establish(PATIENCE_S)
    exchange(sessions, rank)
    for peer in peers:
        lines[peer].send_bytes(b"done")
    for peer in peers:
        lines[peer].recv_bytes()
        sessions[peer].close()


def processes(count: int) -> int:
    lines: dict[int, dict[int, Connection]] = {rank: {} for rank in range(count)}
    for one in range(count):
        for other in range(one):
            lines[one][other], lines[other][one] = multiprocessing.Pipe()
    start = multiprocessing.get_context("fork").Process
    children = [start(target=process, args=(rank, lines[rank])) for rank in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return max(abs(child.exitcode or 0) for child in children)


def threads() -> int:
    """The second thread loads what it needs when the first one waits in its accept."""
    first, second = open_session(), open_session()
    of_first, of_second = first.listen(), second.listen()
    first.load_remote_conn_info(of_second)
    failed: list[BaseException] = []

    def run(session: Session, mine: int) -> None:
        try:
            session.establish(PATIENCE_S)
            exchange({1 - mine: session}, mine)
        except BaseException as error:
            failed.append(error)

    one = threading.Thread(target=run, args=(first, 0))
    one.start()
    second.load_remote_conn_info(of_first)
    run(second, 1)
    one.join()
    for error in failed:
        print(error, file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(threads() if sys.argv[3] == "threads" else processes(int(sys.argv[3])))
