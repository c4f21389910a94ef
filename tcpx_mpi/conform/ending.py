"""Clauses of the end: a lost peer, and closing."""

from __future__ import annotations

import ctypes
import os
import signal
from itertools import permutations
from typing import NoReturn

import numpy as np

from tcpx_mpi.conform.bench import Bench, Pair, Receive
from tcpx_mpi.conform.clause import Broken, Clause
from tcpx_mpi.conform.memory import PAGE

_PR_SET_PDEATHSIG = 1
_HANDLE_BYTES = 128
_ROUNDS, _FIRST_ROUNDS = 8, 4


def _lost_sender(bench: Bench) -> str:
    """A receive whose sender is killed after its first message."""
    pipe = os.pipe()
    peer = os.fork()
    if peer == 0:
        _be_the_sender(bench, pipe[0])
    bench.start()
    listener, handle = bench.listen()
    os.write(pipe[1], bytes(handle[:_HANDLE_BYTES]))
    pair, target = Pair(listener=listener, block=bench.new_block()), bench.area(PAGE)

    def accepted() -> bool:
        pair.receive = bench.accepting(pair)
        return pair.receive != 0

    bench.until(accepted, "accept came to no comm with a peer in another process")
    mhandle = bench.register(pair.receive, target)
    bench.finish(bench.receive(pair, target, PAGE, mhandle))
    receive = bench.receive(pair, target, PAGE, mhandle)
    os.kill(peer, signal.SIGKILL)
    os.waitpid(peer, 0)
    bench.stage = "after the death of the peer"
    bench.until(lambda: _ends(bench, receive), "test told nothing of the peer's death")
    _give_up(bench, pair)
    return "test returned an error"


def _be_the_sender(bench: Bench, pipe: int) -> NoReturn:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        bench.start()
        handle = np.frombuffer(os.read(pipe, _HANDLE_BYTES), np.uint8).copy()
        handle = np.concatenate([handle, np.full(_HANDLE_BYTES, 0xC3, np.uint8)])
        pair, source = Pair(), bench.area(PAGE).fill(4)

        def connected() -> bool:
            pair.send = bench.connecting(handle)
            return pair.send != 0

        bench.until(connected, "connect came to no comm")
        mhandle = bench.register(pair.send, source)
        bench.finish(bench.send(pair, source, PAGE, mhandle))
        signal.pause()
    finally:
        os._exit(1)


def _ends(bench: Bench, receive: Receive) -> bool:
    code, done, _ = bench.call("test", receive.request)
    if code == 0 and done:
        raise Broken("a receive was done though its sender was dead")
    return bool(code != 0)


def _give_up(bench: Bench, pair: Pair) -> None:
    """Closes what a lost peer has left, whatever the plugin says of it."""
    bench.call("close_recv", pair.receive)
    bench.call("close_listen", pair.listener)


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


def _close_order(bench: Bench) -> str:
    bench.start()
    for order in permutations(("close_send", "close_recv", "close_listen")):
        pair = bench.connect()
        comms = {"close_send": pair.send, "close_recv": pair.receive, "close_listen": pair.listener}
        for call in order:
            bench.good(call, comms[call])
    return "in each of 6 orders"


def _close_unused(bench: Bench) -> str:
    bench.start()
    listener, _ = bench.listen()
    bench.good("close_listen", listener)
    bench.close(bench.connect())
    return "a listener that nobody called"


def _close_pending(bench: Bench) -> str:
    bench.start()
    for first, second in (("close_recv", "close_send"), ("close_send", "close_recv")):
        pair, source, target = bench.connect(), bench.area(4 * PAGE), bench.area(4 * PAGE)
        there = bench.register(pair.receive, target)
        here = bench.register(pair.send, source)
        for at in range(2):
            bench.receive(pair, target, PAGE, there, at * PAGE)
        bench.send(pair, source, PAGE, here)
        comms = {"close_send": pair.send, "close_recv": pair.receive}
        for call in (first, second):
            bench.stage = "with requests in flight"
            bench.good(call, comms[call])
        bench.stage = ""
        bench.good("close_listen", pair.listener)
    bench.close(bench.connect())
    return "both ends close, and others can be opened"


def _cycles(bench: Bench) -> str:
    bench.start()
    source, target = bench.area(PAGE).fill(5), bench.area(PAGE)
    before: tuple[int, int] = (0, 0)
    for turn in range(_ROUNDS + _FIRST_ROUNDS):
        if turn == _FIRST_ROUNDS:
            before = _held()
        pair = bench.connect()
        here, there = bench.register(pair.send, source), bench.register(pair.receive, target)
        receive = bench.receive(pair, target, PAGE, there)
        bench.finish(bench.send(pair, source, PAGE, here), receive)
        bench.good("dereg_mr", pair.send, here)
        bench.good("dereg_mr", pair.receive, there)
        bench.close(pair)
    names = ("descriptors", "threads")
    for name, then, now in zip(names, before, _held(), strict=True):
        if now - then >= _ROUNDS:
            raise Broken(f"{now - then} {name} more after {_ROUNDS} connections")
    return "descriptors and threads come back"


def _held() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


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
        "closed-sender", _closed_sender,
        what="test of a receive returns an error when the sender has closed its comm.",
        why="Nothing else tells that what is waited for never comes.",
        source="test of ncclNet_vN_t",
        nccl="Ends the communicator at an error, and waits for ever without one.",
        needs=("message",),
    ),
    Clause(
        "close-order", _close_order,
        what="Both ends and the listener close in any order.",
        why="The peers do not agree when they close.",
        source="ncclNet_vN_t",
        nccl="Closes each where its proxy comes to it.",
        needs=("connect",),
    ),
    Clause(
        "close-unused", _close_unused,
        what="A listener that nobody called closes.",
        why="A set-up that failed elsewhere ends so.",
        source="ncclNet_vN_t",
        nccl="Does so when a communicator is aborted.",
        needs=("connect",),
    ),
    Clause(
        "close-pending", _close_pending,
        what="Comms with requests in flight close, and the plugin works on.",
        why="An abort does not wait for what is in flight.",
        source="ncclNet_vN_t",
        nccl="Does so when a communicator is aborted.",
        needs=("message", "close-order"),
    ),
    Clause(
        "given-back", _cycles,
        what="Connections that are closed give their descriptors and threads back.",
        why="A process makes and ends many communicators.",
        source="ncclNet_vN_t",
        nccl="Makes new comms for each communicator.",
        needs=("message", "close-order"),
    ),
)  # fmt: skip
