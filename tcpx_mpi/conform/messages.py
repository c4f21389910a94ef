"""Clauses of messages: isend, irecv and test."""

from __future__ import annotations

import functools
import random
import threading

from tcpx_mpi.conform.bench import Bench, Receive, Send
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.loopback import POISON, STEPS, Flow, Loopback, receiving, window_of
from tcpx_mpi.conform.memory import PAGE
from tcpx_mpi.conform.outcome import Broken, NotOffered

_SIZES = (0, 1, 7, PAGE - 1, PAGE, PAGE + 1, (1 << 16) + 1, (1 << 20) + 3, 4 << 20)
#: Around what plugins read and write at a time.
_IN_FLIGHT = (
    0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 8255, 8256, 8257, 8320, 0, 65535,
    65536, 65537, 524287, 524288, 524289, 0, 1 << 20, (1 << 21) + 4097, 3,
)  # fmt: skip
#: (offset, size) of messages between bytes that are nobody's.
_PLACES = (
    (PAGE, PAGE), (PAGE + 1, 1), (2 * PAGE - 1, 2), (63, 65), (3 * PAGE + 7, 2 * PAGE + 1),
)  # fmt: skip
#: The most requests that NCCL has of a comm.
_MOST_REQUESTS, _MOST_OF_V6 = 32, 8
_LONG_RUN = 150
_MANY, _MANY_SIZES = 12_000, (0, 1, 7, 64, 100, 333)
#: Of each comm messages of such sizes, by chance.
_COMMS, _OF_EACH, _COMM_SIZES = 12, 40, (0, 1, 5000, 13_577, 70_000)
_TURNS, _OF_A_TURN, _TURN_SIZES = 4, 30, (0, 10, 100_000)
_OF_A_THREAD = _LONG_RUN + _TURNS * _OF_A_TURN
#: One thread does so often what two do, that nobody takes for theirs what comes of many messages.
_TIMES = 4


def _message(bench: Bench) -> str:
    loopback = Loopback(bench.start(), PAGE)
    receive = loopback.receive(PAGE)
    bench.finish(loopback.send(PAGE), receive)
    loopback.expect(PAGE)
    loopback.close()
    return f"{PAGE} bytes arrived"


def _sizes(bench: Bench) -> str:
    bench.start()
    sizes = sorted({bench.largest(size) for size in _SIZES})
    loopback = Loopback(bench, sizes[-1] + PAGE)
    for size in sizes:
        bench.stage = f"for a message of {size} bytes"
        loopback.target.poison(POISON)
        receive = loopback.receive(size)
        bench.finish(loopback.send(size), receive)
        loopback.expect_alone(size)
    loopback.close()
    return f"{len(sizes)} sizes from 0 to {sizes[-1]} bytes"


def _send_first(bench: Bench) -> str:
    loopback = Loopback(bench.start(), PAGE)
    taken: list[Send] = []
    sent: list[Send] = []

    def step() -> None:
        if not taken:
            found = bench.try_send(loopback.pair, loopback.source, PAGE, loopback.here)
            taken.extend([found] if found else [])
        elif not sent and bench.done(taken[0]) is not None:
            sent.append(taken[0])

    bench.turns(step)
    came_first = bool(taken)
    receive = loopback.receive(PAGE)
    if not came_first:
        taken.append(loopback.send(PAGE))
    bench.finish(receive, *([] if sent else taken))
    loopback.expect(PAGE)
    loopback.close()
    if came_first:
        return "a message that came before its receive arrived"
    return "isend is busy until there is a receive, and takes the message then"


def _shorter(bench: Bench) -> str:
    loopback = Loopback(bench.start(), 4 * PAGE)
    receive = loopback.receive(4 * PAGE)
    bench.finish(loopback.send(1000), receive)
    loopback.expect_alone(1000)
    loopback.close()
    return "1000 bytes arrived in a receive of more"


def _neighbours(bench: Bench) -> str:
    loopback = Loopback(bench.start(), 8 * PAGE)
    for offset, size in _PLACES:
        loopback.target.poison(POISON)
        receive = loopback.receive(size, offset)
        bench.finish(loopback.send(size, offset), receive)
        loopback.expect_neighbours(size, offset)
    loopback.close()
    return f"{len(_PLACES)} messages between bytes that stayed as they were"


def _reported(bench: Bench) -> str:
    loopback = Loopback(bench.start(), 4 * PAGE)
    for size in (1000, 4 * PAGE, 0):
        receive = loopback.receive(4 * PAGE)
        (said, *_), _ = bench.finish(receive, loopback.send(size))
        if said == -1 and (bench.unpacks or not bench.takes_gpus):
            raise NotOffered("test writes no size, and nothing of it is to be flushed")
        if said == -1:
            raise Broken("test does not write the size of a receive: NCCL then flushes none")
        if said != size:
            raise Broken(f"test reports {said} bytes of a receive of {size}")
    loopback.close()
    return "test reports the bytes that came"


def _done_once(bench: Bench) -> str:
    loopback, (first, *more) = receiving(bench.start(), 2)

    def early(receive: Receive, what: str) -> None:
        if bench.done(receive) is not None:
            raise Broken(f"a receive was done before {what}")

    bench.turns(lambda: early(first, "anything was sent"))
    bench.finish(loopback.send(PAGE), first)
    loopback.expect(PAGE)
    if more:
        bench.turns(lambda: early(more[0], "its message was sent, by the one before it"))
        bench.finish(loopback.send(PAGE, PAGE), more[0])
        loopback.expect(PAGE, PAGE)
    loopback.close()
    return "one message ends one receive"


def _order(bench: Bench) -> str:
    loopback, receives = receiving(bench.start(), STEPS)
    sends = [loopback.send(PAGE, at * PAGE) for at in range(len(receives))]
    bench.finish(*receives, *sends)
    for at in range(len(receives)):
        loopback.expect(PAGE, at * PAGE)
    loopback.close()
    return f"{len(receives)} messages in flight arrived in their order"


def _in_flight(bench: Bench) -> str:
    bench.start()
    Flow(bench, window_of(bench), map(bench.largest, _IN_FLIGHT)).finish()
    return f"{len(_IN_FLIGHT)} messages of all sizes, one behind the other in memory"


def _full(bench: Bench) -> str:
    most = _MOST_OF_V6 if bench.abi == 6 else _MOST_REQUESTS
    loopback = Loopback(bench.start(), most * PAGE)
    sends: list[Send] = []
    receives: list[Receive] = []
    for at in range(most):
        where = ([loopback.target.address + at * PAGE], [PAGE], [0], [loopback.there])
        code, request = bench.call("irecv", loopback.pair.receive, *where)
        if code != 0:
            raise Broken(f"irecv number {at + 1} returned {code}: full is 0 and a NULL request")
        if request == 0:
            break
        loopback.pair.receives += 1
        parts = ((loopback.target.address + at * PAGE, PAGE, loopback.there),)
        receives.append(
            Receive(loopback.pair, request, loopback.target, at * PAGE, PAGE, at, parts=parts)
        )

    def offer(at: int) -> None:
        if len(sends) > at:
            return
        code, request = bench.call("isend", loopback.pair.send, loopback.source.address + at * PAGE,
                                   PAGE, 0, loopback.here)  # fmt: skip
        if code != 0:
            raise Broken(f"isend number {at + 1} returned {code}: full is 0 and a NULL request")
        if request:
            sends.append(Send(loopback.pair.send, request))
        elif not sends and bench.done(receives[0]) is not None:  # which lets a plugin get on
            raise Broken("a receive was done before anything was sent")

    for at in range(len(receives)):
        # Busy may be full, or that the sender has not heard of the receive yet.
        bench.turns(functools.partial(offer, at))
        if len(sends) == at:
            break
    room = len(receives)
    if room < STEPS or len(sends) < STEPS:
        few = min(room, len(sends))
        raise Broken(f"it has room for {few} requests: NCCL has {STEPS}", hurts=few == 0)
    later = range(len(sends), room)
    bench.finish(*receives[: len(sends)], *sends)
    for at in later:
        bench.finish(loopback.send(PAGE, at * PAGE), receives[at])
    for at in range(room):
        loopback.expect(PAGE, at * PAGE)
    loopback.close()
    return f"{room} requests at least" if room == most else f"{room} requests, then busy"


def _released(bench: Bench) -> str:
    loopback = Loopback(bench.start(), PAGE)
    for turn in range(_LONG_RUN):
        bench.stage = f"of message {turn + 1} of a comm"
        receive = loopback.receive(PAGE)
        bench.finish(loopback.send(PAGE), receive)
    loopback.expect(PAGE)
    loopback.close()
    return f"{_LONG_RUN} messages one after another"


def _many(bench: Bench) -> str:
    choose, window = random.Random(5), window_of(bench.start())
    Flow(bench, window, (choose.choice(_MANY_SIZES) for _ in range(_MANY))).finish()
    return f"{_MANY} messages of up to {max(_MANY_SIZES)} bytes arrived in their order"


def _several_comms(bench: Bench) -> str:
    bench.start()
    choose, window = random.Random(7), window_of(bench)
    flows = [
        Flow(bench, window, (choose.choice(_COMM_SIZES) for _ in range(_OF_EACH)), seed)
        for seed in range(_COMMS)
    ]

    def step() -> bool:
        choose.shuffle(flows)
        return sum(not flow.step() for flow in flows) == 0  # a step of each

    bench.until(step, "not every request was done")
    for flow in flows:
        flow.finish()
    return f"{_COMMS} comms at once, each with its own bytes"


def _drive(bench: Bench, window: int, loopback: Loopback, seed: int) -> None:
    """The work of one of 2 threads: messages one after another, then comm after comm."""
    choose = random.Random(seed)
    for _ in range(_LONG_RUN):
        receive = loopback.receive(PAGE)
        bench.finish(loopback.send(PAGE), receive)
        loopback.expect(PAGE)
        loopback.target.poison(POISON)
    loopback.close()
    for _ in range(_TURNS):
        sizes = (choose.choice(_TURN_SIZES) for _ in range(_OF_A_TURN))
        Flow(bench, window, sizes).finish()


def _comm_after_comm(bench: Bench) -> str:
    bench.start()
    window = window_of(bench)
    for seed in range(_TIMES):
        _drive(bench, window, Loopback(bench, PAGE, seed=seed), seed)
    return f"{_TIMES * _OF_A_THREAD} messages of {_TIMES * (1 + _TURNS)} comms arrived whole"


def _two_threads(bench: Bench) -> str:
    bench.start()
    window = window_of(bench)
    ends = [Loopback(bench, PAGE, seed=seed) for seed in range(2)]
    together = threading.Barrier(len(ends))
    failed: list[Exception] = []

    def drive(loopback: Loopback, seed: int) -> None:
        try:
            if bench.gpu is not None:
                bench.gpu.make_current()
            together.wait(bench.patience_s)
            _drive(bench, window, loopback, seed)
        except Exception as error:  # for the main thread to raise
            failed.append(error)
        finally:
            bench.tell("")

    bench.tell("")
    threads = [
        threading.Thread(target=drive, args=(loopback, seed), daemon=True)
        for seed, loopback in enumerate(ends)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failed:
        raise error
    return f"{_LONG_RUN} messages a thread, and {_TURNS} comms more of each"


CLAUSES = (
    Clause(
        "message", _message,
        what="A message arrives with every byte right.",
        why="Everything else needs it.",
        source="ncclNet_vN_t",
        nccl="Does nothing else all day.",
        needs=("register",),
    ),
    Clause(
        "sizes", _sizes,
        what="Messages of 0 bytes, 1, odd ones and megabytes arrive, and nothing behind them.",
        why="Empty and odd messages go ways of their own in most plugins.",
        source="ncclNet_vN_t",
        nccl="Sends what is left of a buffer, of any size, empty ones too.",
        needs=("message",),
    ),
    Clause(
        "send-first", _send_first,
        what="A message may be sent before its receive is posted.",
        why="The two sides know nothing of each other's time.",
        source="ncclNet_vN_t",
        nccl="Posts sends when its data is there, whatever the peer does.",
        needs=("message",),
    ),
    Clause(
        "shorter", _shorter,
        what="A message may be shorter than its receive, and leaves the rest alone.",
        why="The receiver may not know the size.",
        source="ncclNet_vN_t",
        nccl="Posts receives of the most that may come.",
        needs=("message",),
    ),
    Clause(
        "neighbours", _neighbours,
        what="A message leaves the bytes around it alone, those before it, too, wherever it lies.",
        why="A plugin that moves whole words or pages writes over what is beside.",
        source="ncclNet_vN_t",
        nccl="Has the receives of several steps side by side in one buffer.",
        needs=("message",),
    ),
    Clause(
        "reported-size", _reported,
        what="test writes the bytes that came, where a receive is done, or no size; it has to where"
        " receives into GPU memory may need a flush.",
        why="Whoever posts more than what comes learns it only here.",
        source="test of ncclNet_vN_t",
        nccl="Begins with 0 and adds them up: a receive of 0 bytes is not flushed.",
        needs=("shorter", "sizes"),
    ),
    Clause(
        "done-once", _done_once,
        what="A receive is done when its own message is there, not before.",
        why="Data that is not there yet would be used.",
        source="test of ncclNet_vN_t",
        nccl="Hands the data to its kernels at once.",
        needs=("message",),
    ),
    Clause(
        "order", _order,
        what="Messages in flight arrive in the order in which they were posted.",
        why="Messages of one tag have nothing else that tells them apart.",
        source="ncclNet_vN_t",
        nccl=f"Has {STEPS} steps of a connection in flight.",
        needs=("done-once",),
    ),
    Clause(
        "in-flight", _in_flight,
        what="Messages of all sizes in flight together arrive, from and to any place of their"
        " registration.",
        why="A large message, an empty one and an odd place are each easy alone.",
        source="ncclNet_vN_t",
        nccl=f"Has {STEPS} steps of a connection in flight, the last one shorter.",
        needs=("order", "sizes", "send-first", "neighbours"),
    ),
    Clause(
        "full", _full,
        what=f"A comm has room for {STEPS} requests; a full one answers 0 and a NULL request, and"
        " takes more later.",
        why="It is no error: the caller comes again.",
        source="NCCL_NET_MAX_REQUESTS; ncclNet_vN_t",
        nccl=f"Comes again where the request is NULL, and ends the job at an error. It has {STEPS}"
        f" in flight on a comm of its own, and {_MOST_REQUESTS} at most (v6: {_MOST_OF_V6}); with"
        " room for less it is slower, not hurt.",
        needs=("order",),
    ),
    Clause(
        "released", _released,
        what="A request that is done is free again.",
        why="A queue that loses requests stops after some minutes.",
        source="test of ncclNet_vN_t",
        nccl="Sends without end on one comm.",
        needs=("message",),
    ),
    Clause(
        "many-messages", _many,
        what=f"{_MANY} messages of a comm, of 0 to {max(_MANY_SIZES)} bytes, arrive in order.",
        why="Counters that wrap, and slots that are used again and again, are met late.",
        source="ncclNet_vN_t",
        nccl="Sends without end on one comm.",
        needs=("in-flight", "released"), costly=True,
    ),
    Clause(
        "several-comms", _several_comms,
        what=f"{_COMMS} comms at once do not disturb each other.",
        why="Each has a queue and an order of its own.",
        source="ncclNet_vN_t",
        nccl="Has several comms a peer, and many peers.",
        needs=("in-flight",),
    ),
    Clause(
        "comm-after-comm", _comm_after_comm,
        what=f"{_TIMES * _OF_A_THREAD} messages of {_TIMES * (1 + _TURNS)} comms, one comm after"
        " another, arrive whole.",
        why="What goes wrong once in some hundred messages, or in a comm that is not the first.",
        source="ncclNet_vN_t",
        nccl="Makes comms, closes them and makes others as long as a job lasts.",
        needs=("in-flight", "released"),
    ),
    Clause(
        "two-threads", _two_threads,
        what="Two threads drive a comm each at the same time, close it, and make others.",
        why="A comm has one thread at a time; what comms have in common, the plugin has to guard.",
        source="ncclNet_vN_t",
        nccl="Has a thread for each communicator that drives its comms, and threads that set"
        " communicators up, several in one process.",
        needs=("several-comms", "comm-after-comm"),
    ),
)  # fmt: skip
