"""Clauses of what not every message has: groups, tags, no completion, 2 GiB."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.conform.bench import Bench, Receive, Send
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.loopback import FIRST_TAG, POISON, Loopback, most_grouped
from tcpx_mpi.conform.memory import PAGE, Area
from tcpx_mpi.conform.outcome import Broken, NotOffered, NotTried

#: More than an int says; below 2 GiB little memory lies there again and again.
_ABOVE = (2 << 30) + 4097
_REPEATED = 8 << 20
#: Events that a profiler knows: start, stop, update, update and stop.
_PROFILER_TYPES = 4


def _grouped(bench: Bench) -> str:
    bench.start()
    if (most := most_grouped(bench)) < 2:
        raise NotOffered(f"maxRecvs is {bench.properties.max_recvs}")
    loopback = Loopback(bench, most * PAGE)
    receive = loopback.receive_group(most)
    sends = [loopback.send(100 + at, at * PAGE, tag=FIRST_TAG + at) for at in range(most)]
    bench.finish(receive, *sends)
    for at in range(most):
        loopback.expect(100 + at, at * PAGE)
    loopback.close()
    return f"{most} receives in one request"


def _tags(bench: Bench) -> str:
    bench.start()
    if (most := most_grouped(bench)) < 2:
        said = bench.properties.max_recvs
        raise NotOffered(f"maxRecvs is {said}, so the order tells whose a message is")
    loopback = Loopback(bench, most * PAGE)
    receive = loopback.receive_group(most)
    sends = [loopback.send(100 + at, at * PAGE, tag=FIRST_TAG + at) for at in reversed(range(most))]
    bench.finish(receive, *sends)
    for at in range(most):
        loopback.expect(100 + at, at * PAGE)
    loopback.close()
    return "messages go where their tag is"


def _optional(bench: Bench) -> str:
    loopback = Loopback(bench.start(), 2 * PAGE)
    request = bench.good("irecv", loopback.pair.receive, [loopback.target.address], [PAGE], [0],
                         [loopback.there], True)  # fmt: skip
    loopback.pair.receives += 1
    sent = loopback.send(PAGE)
    if request not in (0, 1):
        parts = ((loopback.target.address, PAGE, loopback.there),)
        posted = Receive(loopback.pair, request, loopback.target, 0, PAGE, 0, parts=parts)
        bench.finish(sent, posted)
    else:
        bench.finish(sent)
    last = loopback.receive(PAGE, PAGE)
    bench.finish(loopback.send(PAGE, PAGE), last)
    loopback.expect(PAGE)
    loopback.expect(PAGE, PAGE)
    loopback.close()
    return "completed without a request" if request in (0, 1) else "with a request all the same"


def _phandle(bench: Bench) -> str:
    loopback = Loopback(bench.start(), PAGE)
    mine = Area(PAGE)
    for phandle in (0, mine.address):
        bench.table.set_phandle(phandle)
        loopback.target.poison(POISON)
        receive = loopback.receive(PAGE)
        bench.finish(loopback.send(PAGE), receive)
        loopback.expect(PAGE)
    loopback.close()
    return "NULL and another are taken"


def _profiler(bench: Bench) -> str:
    loopback = Loopback(bench.start(), PAGE)
    mine = Area(PAGE)
    for phandle in (0, mine.address):
        bench.table.set_phandle(phandle)
        receive = loopback.receive(PAGE)
        bench.finish(loopback.send(PAGE), receive)
    loopback.expect(PAGE)
    loopback.close()
    events = _native.last_profiler_events()
    for kind, phandle in events:
        if phandle != mine.address:
            what = "NULL" if phandle == 0 else "one that nobody gave"
            raise Broken(f"profFunction was called with a handle that is {what}")
        if not 0 <= kind < _PROFILER_TYPES:
            raise Broken(f"profFunction was called with an event of type {kind}")
    return f"{len(events)} events, of its handles" if events else "it tells the profiler nothing"


def _large(bench: Bench) -> str:
    bench.start()
    if bench.memory != "host":
        raise NotTried("this is tried in host memory alone")
    if 0 < bench.properties.max_p2p_bytes < _ABOVE:
        raise NotOffered(f"maxP2pBytes is {bench.properties.max_p2p_bytes}")
    pair = bench.connect()
    source, target = _repeated(), _repeated()
    source[:_REPEATED] = Area(_REPEATED).fill(3).bytes
    source[2 << 30 :] = Area(_ABOVE - (2 << 30)).fill(4).bytes[: _ABOVE - (2 << 30)]
    here = bench.good("reg_mr", pair.send, int(source.ctypes.data), _ABOVE, 1)
    there = bench.good("reg_mr", pair.receive, int(target.ctypes.data), _ABOVE, 1)
    at = [int(target.ctypes.data)]
    request = _until_taken(bench, "irecv", pair.receive, at, [_ABOVE], [0], [there])
    sent = _until_taken(bench, "isend", pair.send, int(source.ctypes.data), _ABOVE, 0, here)
    bench.finish(Send(pair.send, sent), Receive(pair, request, Area(PAGE), 0, _ABOVE, 0))
    for place in (slice(0, _REPEATED), slice(2 << 30, _ABOVE)):
        if not np.array_equal(source[place], target[place]):
            raise Broken(f"bytes of a message of {_ABOVE} bytes are wrong")
    for comm, mhandle in ((pair.send, here), (pair.receive, there)):
        bench.good("dereg_mr", comm, mhandle)
    bench.close(pair)
    return f"a message of {_ABOVE} bytes"


def _until_taken(bench: Bench, name: str, *arguments: Any) -> int:
    """The request of a call that is busy at most at first."""
    requests: list[int] = []

    def step() -> bool:
        request = bench.good(name, *arguments)
        requests.extend([request] if request else [])
        return bool(requests)

    bench.until(step, f"{name} was busy (a NULL request), and took nothing")
    return requests[0]


def _repeated() -> np.ndarray:
    """So many addresses of little memory, one stretch behind another."""
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
        "profiler", _profiler,
        what="init takes profFunction, which is called with handles of posts or not at all.",
        why="The function follows the handle to what the caller keeps of a request.",
        source="ncclProfilerCallback_t, v10 and later",
        nccl="Always gives its function, and reads what the handle points to where it is called.",
        needs=("phandle",), since=10,
    ),
    Clause(
        "large-message", _large,
        what="A message of more than 2 GiB arrives.",
        why="The size is a size_t: a plugin that narrows it loses bytes.",
        source="ncclNet_v9_t and later",
        nccl="Cuts messages at 1 GiB, whatever maxP2pBytes is.",
        needs=("sizes", "register-large"), since=9, hurts=False, costly=True,
    ),
)  # fmt: skip
