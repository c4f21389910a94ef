"""Clauses of messages: isend, irecv and test."""

from __future__ import annotations

import mmap
import os

import numpy as np

from tcpx_mpi.conform.bench import PAGE, Area, Bench, Pair, Receive, Send
from tcpx_mpi.conform.clause import Broken, Clause, NotOffered, NotTried

_SIZES = (0, 1, 7, PAGE - 1, PAGE, PAGE + 1, (1 << 16) + 1, (1 << 20) + 3, 4 << 20)
_POISON = 0xEE
#: What NCCL has in flight on a comm that it does not share, and the most that it may have.
_STEPS, _MOST_REQUESTS, _MOST_OF_V6 = 8, 32, 8
_LONG_RUN = 150
_COMMS = 3
#: More than an int says; below 2 GiB little memory lies there again and again.
_ABOVE = (2 << 30) + 4097
_REPEATED = 8 << 20


class _Both:
    """A connection with registered memory on both ends."""

    def __init__(self, bench: Bench, size: int, pair: Pair | None = None, seed: int = 1) -> None:
        self.bench, self.pair = bench, pair or bench.connect()
        self.source, self.target = Area(size).fill(seed), Area(size).poison(_POISON)
        self.here = bench.register(self.pair.send, self.source)
        self.there = bench.register(self.pair.receive, self.target)

    def send(self, size: int, offset: int = 0, tag: int = 0) -> Send:
        return self.bench.send(self.pair, self.source, size, self.here, offset, tag)

    def receive(self, size: int, offset: int = 0, tag: int = 0) -> Receive:
        return self.bench.receive(self.pair, self.target, size, self.there, offset, tag)

    def close(self) -> None:
        self.bench.good("dereg_mr", self.pair.send, self.here)
        self.bench.good("dereg_mr", self.pair.receive, self.there)
        self.bench.close(self.pair)

    def expect(self, size: int, offset: int = 0) -> None:
        """The bytes of this place, and no byte behind them."""
        got = self.target.bytes
        wrong = np.flatnonzero(
            got[offset : offset + size] != self.source.bytes[offset : offset + size]
        )
        if wrong.size:
            raise Broken(
                f"{wrong.size} of {size} bytes of a message are wrong, the first is {wrong[0]}"
            )

    def expect_alone(self, size: int) -> None:
        """The bytes at the beginning, and no byte behind them."""
        self.expect(size)
        if (self.target.bytes[size:] != _POISON).any():
            raise Broken(f"bytes behind a message of {size} bytes were written")


def _message(bench: Bench) -> str:
    both = _Both(bench.start(), PAGE)
    receive = both.receive(PAGE)
    bench.finish(both.send(PAGE), receive)
    both.expect(PAGE)
    both.close()
    return f"{PAGE} bytes arrived"


def _sizes(bench: Bench) -> str:
    bench.start()
    sizes = sorted({bench.largest(size) for size in _SIZES})
    both = _Both(bench, sizes[-1] + PAGE)
    for size in sizes:
        bench.stage = f"for a message of {size} bytes"
        both.target.poison(_POISON)
        receive = both.receive(size)
        bench.finish(both.send(size), receive)
        both.expect_alone(size)
    both.close()
    return f"{len(sizes)} sizes from 0 to {sizes[-1]} bytes"


def _send_first(bench: Bench) -> str:
    both = _Both(bench.start(), PAGE)
    request = both.send(PAGE)
    sent: list[Send] = []

    def step() -> None:
        if not sent and bench.done(request) is not None:
            sent.append(request)

    bench.turns(step)
    receive = both.receive(PAGE)
    bench.finish(receive, *([] if sent else [request]))
    both.expect(PAGE)
    both.close()
    return "a message that came before its receive arrived"


def _shorter(bench: Bench) -> str:
    both = _Both(bench.start(), 4 * PAGE)
    receive = both.receive(4 * PAGE)
    bench.finish(both.send(1000), receive)
    both.expect_alone(1000)
    both.close()
    return "1000 bytes arrived in a receive of more"


def _reported(bench: Bench) -> str:
    both = _Both(bench.start(), 4 * PAGE)
    for size in (1000, 4 * PAGE, 0):
        receive = both.receive(4 * PAGE)
        (said, *_), _ = bench.finish(receive, both.send(size))
        if said == -1:
            raise Broken("test does not write the size of a receive")
        if said != size:
            raise Broken(f"test reports {said} bytes of a receive of {size}")
    both.close()
    return "test reports the bytes that came"


def _done_once(bench: Bench) -> str:
    both = _Both(bench.start(), 2 * PAGE)
    first, second = both.receive(PAGE), both.receive(PAGE, PAGE)

    def early(receive: Receive, what: str) -> None:
        if bench.done(receive) is not None:
            raise Broken(f"a receive was done before {what}")

    bench.turns(lambda: early(first, "anything was sent"))
    bench.finish(both.send(PAGE), first)
    bench.turns(lambda: early(second, "its message was sent, by the one before it"))
    bench.finish(both.send(PAGE, PAGE), second)
    both.expect(PAGE)
    both.expect(PAGE, PAGE)
    both.close()
    return "one message ends one receive"


def _order(bench: Bench) -> str:
    both = _Both(bench.start(), _STEPS * PAGE)
    receives = [both.receive(PAGE)]
    while len(receives) < _STEPS:
        at = len(receives) * PAGE
        found = bench.try_receive(both.pair, both.target, PAGE, both.there, at)
        if found is None:  # how many it must have room for is another clause's
            break
        receives.append(found)
    sends = [both.send(PAGE, at * PAGE) for at in range(len(receives))]
    bench.finish(*receives, *sends)
    for at in range(len(receives)):
        both.expect(PAGE, at * PAGE)
    both.close()
    return f"{len(receives)} messages in flight arrived in their order"


def _full(bench: Bench) -> str:
    most = _MOST_OF_V6 if bench.abi == 6 else _MOST_REQUESTS
    both = _Both(bench.start(), most * PAGE)
    sends: list[Send] = []
    receives: list[Receive] = []
    for at in range(most):
        where = ([both.target.address + at * PAGE], [PAGE], [0], [both.there])
        code, request = bench.call("irecv", both.pair.receive, *where)
        if code != 0:
            raise Broken(f"irecv number {at + 1} returned {code}: full is 0 and a NULL request")
        if request == 0:
            break
        both.pair.receives += 1
        receives.append(Receive(both.pair, request, both.target, at * PAGE, PAGE, at))
    for at in range(len(receives)):
        code, request = bench.call("isend", both.pair.send, both.source.address + at * PAGE, PAGE,
                                   0, both.here)  # fmt: skip
        if code != 0:
            raise Broken(f"isend number {at + 1} returned {code}: full is 0 and a NULL request")
        if request == 0:
            break
        sends.append(Send(both.pair.send, request))
    room = len(receives)
    if room < _STEPS or len(sends) < _STEPS:
        raise Broken(f"it has room for {min(room, len(sends))} requests: NCCL has {_STEPS}")
    later = range(len(sends), room)
    bench.finish(*receives[: len(sends)], *sends)
    for at in later:
        bench.finish(both.send(PAGE, at * PAGE), receives[at])
    for at in range(room):
        both.expect(PAGE, at * PAGE)
    both.close()
    return f"{room} requests at least" if room == most else f"{room} requests, then busy"


def _released(bench: Bench) -> str:
    both = _Both(bench.start(), PAGE)
    for turn in range(_LONG_RUN):
        bench.stage = f"of message {turn + 1} of a comm"
        receive = both.receive(PAGE)
        bench.finish(both.send(PAGE), receive)
    both.expect(PAGE)
    both.close()
    return f"{_LONG_RUN} messages one after another"


def _several_comms(bench: Bench) -> str:
    bench.start()
    ends = [_Both(bench, 2 * PAGE, seed=seed) for seed in range(_COMMS)]
    for offset in (0, PAGE):
        receives = [both.receive(PAGE, offset) for both in ends]
        sends = [both.send(PAGE, offset) for both in reversed(ends)]
        bench.finish(*receives, *sends)
    for both in ends:
        both.expect(PAGE)
        both.expect(PAGE, PAGE)
        both.close()
    return f"{_COMMS} comms at once, each with its own bytes"


def _grouped(bench: Bench) -> str:
    bench.start()
    most = bench.properties.max_recvs
    if most < 2:
        raise NotOffered("maxRecvs is 1")
    both = _Both(bench, most * PAGE)
    receive = _group(bench, both, most)
    sends = [both.send(100 + at, at * PAGE, tag=50 + at) for at in range(most)]
    bench.finish(receive, *sends)
    for at in range(most):
        both.expect(100 + at, at * PAGE)
    both.close()
    return f"{most} receives in one request"


def _tags(bench: Bench) -> str:
    bench.start()
    most = bench.properties.max_recvs
    if most < 2:
        raise NotOffered("maxRecvs is 1, so the order tells whose a message is")
    both = _Both(bench, most * PAGE)
    receive = _group(bench, both, most)
    sends = [both.send(100 + at, at * PAGE, tag=50 + at) for at in reversed(range(most))]
    bench.finish(receive, *sends)
    for at in range(most):
        both.expect(100 + at, at * PAGE)
    both.close()
    return "messages go where their tag is"


def _group(bench: Bench, both: _Both, most: int) -> Receive:
    where = [both.target.address + at * PAGE for at in range(most)]
    tags = [50 + at for at in range(most)]
    request = bench.good(
        "irecv", both.pair.receive, where, [PAGE] * most, tags, [both.there] * most
    )
    if request == 0:
        raise Broken("a group of receives on an idle comm was busy")
    both.pair.receives += 1
    return Receive(both.pair, request, both.target, 0, PAGE, both.pair.receives - 1, most)


def _optional(bench: Bench) -> str:
    both = _Both(bench.start(), 2 * PAGE)
    request = bench.good("irecv", both.pair.receive, [both.target.address], [PAGE], [0],
                         [both.there], True)  # fmt: skip
    both.pair.receives += 1
    sent = both.send(PAGE)
    if request not in (0, 1):
        bench.finish(sent, Receive(both.pair, request, both.target, 0, PAGE, 0))
    else:
        bench.finish(sent)
    last = both.receive(PAGE, PAGE)
    bench.finish(both.send(PAGE, PAGE), last)
    both.expect(PAGE)
    both.expect(PAGE, PAGE)
    both.close()
    return "completed without a request" if request in (0, 1) else "with a request all the same"


def _phandle(bench: Bench) -> str:
    both = _Both(bench.start(), PAGE)
    mine = Area(PAGE)
    for phandle in (0, mine.address):
        bench.table.set_phandle(phandle)
        both.target.poison(_POISON)
        receive = both.receive(PAGE)
        bench.finish(both.send(PAGE), receive)
        both.expect(PAGE)
    both.close()
    return "NULL and another are taken"


def _flush(bench: Bench) -> str:
    both = _Both(bench.start(), PAGE)
    if bench.memory != "host" and bench.unpacks:
        raise NotTried("receives of a plugin that unpacks are not flushed")
    receive = both.receive(PAGE)
    bench.finish(both.send(PAGE), receive)
    where = ([both.target.address], [PAGE], [both.there])
    request = bench.good("iflush", both.pair.receive, *where)
    if request:
        bench.finish(Send(both.pair.receive, request))
    both.expect(PAGE)
    both.close()
    return "iflush ended" if request else "nothing to wait for"


def _large(bench: Bench) -> str:
    bench.start()
    if bench.memory != "host":
        raise NotTried(f"a request of this memory has {bench.largest(_ABOVE)} bytes at most")
    pair = bench.connect()
    source, target = _repeated(), _repeated()
    source[:_REPEATED] = Area(_REPEATED).fill(3).bytes
    source[2 << 30 :] = Area(_ABOVE - (2 << 30)).fill(4).bytes[: _ABOVE - (2 << 30)]
    here = bench.good("reg_mr", pair.send, int(source.ctypes.data), _ABOVE, 1)
    there = bench.good("reg_mr", pair.receive, int(target.ctypes.data), _ABOVE, 1)
    at = [int(target.ctypes.data)]
    request = bench.good("irecv", pair.receive, at, [_ABOVE], [0], [there])
    sent = bench.good("isend", pair.send, int(source.ctypes.data), _ABOVE, 0, here)
    bench.finish(Send(pair.send, sent), Receive(pair, request, Area(PAGE), 0, _ABOVE, 0))
    for place in (slice(0, _REPEATED), slice(2 << 30, _ABOVE)):
        if not np.array_equal(source[place], target[place]):
            raise Broken(f"bytes of a message of {_ABOVE} bytes are wrong")
    for comm, mhandle in ((pair.send, here), (pair.receive, there)):
        bench.good("dereg_mr", comm, mhandle)
    bench.close(pair)
    return f"a message of {_ABOVE} bytes"


def _repeated() -> np.ndarray:
    """So many addresses of little memory, one stretch behind another."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    whole = mmap.mmap(-1, _ABOVE)
    array = np.frombuffer(whole, np.uint8)
    first = int(array.ctypes.data)
    file = os.memfd_create("tcpx-mpi-conform")
    os.ftruncate(file, _REPEATED)
    map_fixed_shared = 0x10 | mmap.MAP_SHARED
    for at in range(first, first + (2 << 30), _REPEATED):  # what is behind lies once
        got = libc.mmap(at, _REPEATED, mmap.PROT_READ | mmap.PROT_WRITE, map_fixed_shared, file, 0)
        if got != at:
            raise NotTried("memory that repeats cannot be mapped here")
    os.close(file)
    return array


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
        "reported-size", _reported,
        what="test writes the bytes that came, where a receive is done.",
        why="Whoever posts more than what comes learns it only here.",
        source="test of ncclNet_vN_t",
        nccl="Adds them up to know whether a receive into GPU memory needs a flush.",
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
        nccl=f"Has {_STEPS} steps of a connection in flight.",
        needs=("done-once",),
    ),
    Clause(
        "full", _full,
        what=f"A comm has room for {_STEPS} requests; a full one answers 0 and a NULL request, and"
        " takes more later.",
        why="It is no error: the caller comes again.",
        source="NCCL_NET_MAX_REQUESTS; ncclNet_vN_t",
        nccl=f"Comes again where the request is NULL, and ends the job at an error. It has {_STEPS}"
        f" in flight on a comm of its own, and {_MOST_REQUESTS} at most (v6: {_MOST_OF_V6}).",
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
        "several-comms", _several_comms,
        what=f"{_COMMS} comms at once do not disturb each other.",
        why="Each has a queue and an order of its own.",
        source="ncclNet_vN_t",
        nccl="Has several comms a peer, and many peers.",
        needs=("message",),
    ),
    Clause(
        "grouped", _grouped,
        what="irecv takes maxRecvs receives in one request, for messages in the order of tags.",
        why="maxRecvs is a promise.",
        source="irecv of ncclNet_vN_t",
        nccl="Groups the receives of several channels of a peer.",
        needs=("message",),
    ),
    Clause(
        "tags", _tags,
        what="In a group a message goes where its tag is, whatever the order of sends.",
        why="Senders of a group are independent of each other.",
        source="irecv of ncclNet_vN_t",
        nccl="Gives each channel a tag, and sends when the channel's data is there.",
        needs=("grouped",),
    ),
    Clause(
        "optional-completion", _optional,
        what="irecv whose request is 1 beforehand may complete without a request.",
        why="The caller does not need to know; a plugin that knows it not gives a request.",
        source="NCCL_NET_OPTIONAL_RECV_COMPLETION, v9 and later",
        nccl="Says so for protocols whose data carries its own flags.",
        needs=("message",), since=9,
    ),
    Clause(
        "phandle", _phandle,
        what="isend and irecv take a NULL handle of a profiler, and another.",
        why="It is for a profiler and means nothing to the data.",
        source="ncclNet_v10_t and later",
        nccl="Passes one where a profiler is loaded.",
        needs=("message",), since=10,
    ),
    Clause(
        "flush", _flush,
        what="iflush of a receive ends, by a request or at once.",
        why="Data in a GPU's memory may be under way when test says done.",
        source="iflush of ncclNet_vN_t",
        nccl="Calls it for GPU memory alone: host memory is tried as the nearest to it.",
        needs=("message",), hurts=False,
    ),
    Clause(
        "large-message", _large,
        what="A message of more than 2 GiB arrives.",
        why="The size is a size_t: a plugin that narrows it loses bytes.",
        source="ncclNet_v9_t and later",
        nccl="Cuts at maxP2pBytes and maxCollBytes, which a plugin may set above 2 GiB.",
        needs=("sizes", "register-large"), since=9, costly=True,
    ),
)  # fmt: skip
