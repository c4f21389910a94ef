"""Clauses of a lost peer: one whose process is killed, and one that has closed."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from tcpx_mpi.conform.bench import Bench, Pair, Receive, Send
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.memory import PAGE, Area, Bytes
from tcpx_mpi.conform.outcome import Broken
from tcpx_mpi.parent_death import end_with_parent

_HANDLE_BYTES = 128
_MORE_THAN_BUFFERS = 32 << 20


def _lost_sender(bench: Bench) -> str:
    """A receive whose sender is killed after its first message."""
    pipe = os.pipe()
    peer = _fork(bench, lambda: _send_one(bench, pipe[0]))
    bench.start()
    listener, handle = bench.listen()
    os.write(pipe[1], bytes(handle[:_HANDLE_BYTES]))
    pair, target = Pair(listener=listener, block=bench.new_block()), bench.area(PAGE)
    _accept(bench, pair)
    mhandle = bench.register(pair.receive, target)
    bench.finish(bench.receive(pair, target, PAGE, mhandle))
    receive = bench.receive(pair, target, PAGE, mhandle)
    _kill(bench, peer)
    bench.until(lambda: _ends(bench, receive), "test told nothing of the peer's death")
    _give_up(bench, pair)
    return "test returned an error"


def _lost_receiver(bench: Bench) -> str:
    """Sends whose receiver is killed after the first message."""
    pipes = [os.pipe(), os.pipe()]
    peers = [_fork(bench, functools.partial(_receive_one, bench, pipe[1])) for pipe in pipes]
    bench.start()
    source = bench.area(_MORE_THAN_BUFFERS).fill(4)
    for size, peer, pipe in zip((PAGE, bench.largest(source.size)), peers, pipes, strict=True):
        os.close(pipe[1])
        _lose_receiver(bench, source, size, peer, pipe[0])
    return "isend or test returned an error, whether or not buffers had room for what was sent"


def _lose_receiver(bench: Bench, source: Area, size: int, peer: int, pipe: int) -> None:
    handle = os.read(pipe, _HANDLE_BYTES)
    if not handle:
        raise Broken("listen in another process came to no handle")
    pair = Pair()
    _connect(bench, pair, handle)
    mhandle = bench.register(pair.send, source)
    bench.finish(bench.send(pair, source, PAGE, mhandle))
    os.read(pipe, 1)  # it has the message
    pending: list[Send] = []

    def send_failed() -> bool:
        if not pending:
            code, request = bench.call("isend", pair.send, source.address, size, 0, mhandle)
            pending.extend([Send(pair.send, request)] if request else [])
            return bool(code != 0)
        code, done, _ = bench.call("test", pending[0].request)
        if code == 0 and done:  # what fits into buffers may be done
            pending.clear()
        return bool(code != 0)

    bench.turns(send_failed)
    _kill(bench, peer)
    bench.until(send_failed, "neither isend nor test told of the peer's death")
    bench.call("close_send", pair.send)
    bench.stage = ""


def _fork(bench: Bench, body: Callable[[], None]) -> int:
    """A peer in a process of its own, which ends with this one; the plugin is loaded later."""
    peer = os.fork()
    if peer == 0:
        _be_the_peer(bench, body)
    return peer


def _be_the_peer(bench: Bench, body: Callable[[], None]) -> NoReturn:
    end_with_parent(os.getppid())
    try:
        bench.start()
        body()
        signal.pause()
    finally:
        os._exit(1)


def _send_one(bench: Bench, pipe: int) -> None:
    pair, source = Pair(), bench.area(PAGE).fill(4)
    _connect(bench, pair, os.read(pipe, _HANDLE_BYTES))
    mhandle = bench.register(pair.send, source)
    bench.finish(bench.send(pair, source, PAGE, mhandle))


def _receive_one(bench: Bench, pipe: int) -> None:
    listener, handle = bench.listen()
    os.write(pipe, bytes(handle[:_HANDLE_BYTES]))
    pair, target = Pair(listener=listener, block=bench.new_block()), bench.area(PAGE)
    _accept(bench, pair)
    mhandle = bench.register(pair.receive, target)
    bench.finish(bench.receive(pair, target, PAGE, mhandle))
    os.write(pipe, b"1")


def _connect(bench: Bench, pair: Pair, handle: bytes) -> None:
    copy: Bytes = np.full(2 * _HANDLE_BYTES, 0xC3, np.uint8)
    copy[:_HANDLE_BYTES] = np.frombuffer(handle, np.uint8)

    def connected() -> bool:
        pair.send = bench.connecting(copy)
        return pair.send != 0

    bench.until(connected, "connect came to no comm with a peer in another process")


def _accept(bench: Bench, pair: Pair) -> None:
    def accepted() -> bool:
        pair.receive = bench.accepting(pair)
        return pair.receive != 0

    bench.until(accepted, "accept came to no comm with a peer in another process")


def _kill(bench: Bench, peer: int) -> None:
    os.kill(peer, signal.SIGKILL)
    os.waitpid(peer, 0)
    bench.stage = "after the death of the peer"


def _closed_sender(bench: Bench) -> str:
    """A receive whose sender has closed."""
    bench.start()
    pair, target = bench.connect(), bench.area(PAGE)
    mhandle = bench.register(pair.receive, target)
    receive = bench.receive(pair, target, PAGE, mhandle)
    bench.good("close_send", pair.send)
    bench.stage = "after the sender has closed"
    bench.until(lambda: _ends(bench, receive), "test told nothing of a sender that has closed")
    _give_up(bench, pair)
    return "test returned an error"


def _ends(bench: Bench, receive: Receive) -> bool:
    code, done, _ = bench.call("test", receive.request)
    if code == 0 and done:
        raise Broken("a receive was done though its sender was dead")
    return bool(code != 0)


def _give_up(bench: Bench, pair: Pair) -> None:
    """Closes what a lost peer has left, whatever the plugin says of it."""
    bench.call("close_recv", pair.receive)
    bench.call("close_listen", pair.listener)


CLAUSES = (
    Clause(
        "lost-sender", _lost_sender,
        what="test of a receive returns an error when the sender's process is killed.",
        why="Nothing else tells that what is waited for never comes.",
        source="test of ncclNet_vN_t",
        nccl="Ends the communicator at an error, and waits for ever without one.",
        needs=("send-first", "connect-first", "accept-first"),
    ),
    Clause(
        "lost-receiver", _lost_receiver,
        what="isend, or test of a send, returns an error when the receiver's process is killed.",
        why="Sends that are taken for ever, or never done, hide that nobody has the data.",
        source="isend and test of ncclNet_vN_t",
        nccl="Ends the communicator at an error, and waits for ever without one.",
        needs=("released", "connect-first", "accept-first"),
    ),
    Clause(
        "closed-sender", _closed_sender,
        what="test of a receive returns an error when the sender has closed its comm.",
        why="Nothing else tells that what is waited for never comes.",
        source="test of ncclNet_vN_t",
        nccl="Ends the communicator at an error, and waits for ever without one.",
        needs=("message",),
    ),
)  # fmt: skip
