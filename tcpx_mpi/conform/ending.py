"""Clauses of the end: closing, and what is given back."""

from __future__ import annotations

import os
from itertools import permutations

from tcpx_mpi.conform.bench import Bench
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.loopback import receiving
from tcpx_mpi.conform.memory import PAGE
from tcpx_mpi.conform.outcome import Broken

_ROUNDS, _FIRST_ROUNDS = 8, 4


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
        loopback, _ = receiving(bench, 2)
        loopback.send(PAGE)
        pair = loopback.pair
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
