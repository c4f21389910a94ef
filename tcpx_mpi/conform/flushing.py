"""Clauses of iflush: what was put into a GPU's memory becomes visible."""

from __future__ import annotations

from tcpx_mpi.conform.bench import Bench, Part, Receive, Send
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.loopback import FIRST_TAG, Loopback, most_grouped
from tcpx_mpi.conform.memory import PAGE
from tcpx_mpi.conform.outcome import Broken, NotOffered, NotTried

_SHORT = 1000


def _flush(bench: Bench) -> str:
    if not bench.start().takes_gpus:
        raise NotOffered("its ptrSupport has no GPU memory, and NCCL flushes nothing else")
    if bench.gathers:
        raise NotOffered("receives of a plugin that unpacks are not flushed")
    try:
        waits = _flushed_between_pages(Loopback(bench, 3 * PAGE))
    except Broken as broken:
        raise Broken(str(broken), hurts=bench.memory != "host") from None
    return "iflush ended" if waits else "nothing to wait for"


def _flushed_between_pages(loopback: Loopback) -> bool:
    """Whether iflush has made a request."""
    receive, _ = _arrived(loopback, PAGE, PAGE, PAGE)
    waits = loopback.bench.flush(loopback.pair, *receive.parts)
    loopback.expect(PAGE, PAGE)
    loopback.expect_neighbours(PAGE, PAGE)
    loopback.bench.consumed(receive)
    loopback.close()
    return waits


def _unasked(bench: Bench) -> str:
    loopback = _in_place(bench, 2 * PAGE)
    receive, _ = _arrived(loopback, PAGE, PAGE)
    for _ in range(2):
        bench.flush(loopback.pair, *receive.parts)
        loopback.expect_alone(PAGE)
        bench.stage = "of what was flushed before"
    bench.stage = ""
    bench.consumed(receive)
    _one_more(loopback)
    return "a second iflush of a receive ended, and changed nothing"


def _reported(bench: Bench) -> str:
    loopback = _in_place(bench, 4 * PAGE)
    receive, sizes = _arrived(loopback, 4 * PAGE, _SHORT)
    bench.flush(loopback.pair, *_with_reported_sizes(receive, sizes))
    loopback.expect_alone(_SHORT)
    bench.consumed(receive)
    loopback.close()
    return f"iflush of {_SHORT} bytes of a receive of {4 * PAGE} ended"


def _empty(bench: Bench) -> str:
    loopback = _in_place(bench, 2 * PAGE)
    receive, sizes = _arrived(loopback, PAGE, 0)
    try:
        bench.flush(loopback.pair, *_with_reported_sizes(receive, sizes))
    except Broken as broken:
        raise Broken(str(broken), hurts=bench.properties.max_recvs > 1) from None
    bench.consumed(receive)
    _one_more(loopback)
    return "iflush of 0 bytes ended"


def _several(bench: Bench) -> str:
    loopback = _in_place(bench, 0)
    if (most := most_grouped(bench)) < 2:
        raise NotOffered(f"maxRecvs is {bench.properties.max_recvs}")
    loopback = Loopback(bench, most * PAGE, loopback.pair)
    lengths = [*(100 + at for at in range(most - 1)), 0]
    receive = loopback.receive_group(most)
    sends = [
        loopback.send(size, at * PAGE, FIRST_TAG + at) for at, size in enumerate(lengths)
    ]  # fmt: skip
    sizes = _untaken(bench, receive, *sends)
    bench.flush(loopback.pair, *_with_reported_sizes(receive, sizes))
    for at, size in enumerate(lengths):
        loopback.expect(size, at * PAGE)
    bench.consumed(receive)
    loopback.close()
    return f"{most} receives in one iflush, the last of 0 bytes"


def _closed(bench: Bench) -> str:
    loopback = _in_place(bench, PAGE)
    receive, _ = _arrived(loopback, PAGE, PAGE)
    bench.good("dereg_mr", loopback.pair.send, loopback.here)
    bench.good("close_send", loopback.pair.send)
    loopback.pair.send = 0
    bench.stage = "after the sender has closed"
    bench.flush(loopback.pair, *receive.parts)
    bench.stage = ""
    loopback.expect(PAGE)
    bench.consumed(receive)
    bench.good("dereg_mr", loopback.pair.receive, loopback.there)
    bench.close(loopback.pair)
    return "iflush ended after the sender had closed"


def _in_place(bench: Bench, size: int) -> Loopback:
    """A connection whose receives NCCL may flush."""
    require_in_place(bench)
    return Loopback(bench, size)


def require_in_place(bench: Bench) -> None:
    """Starts a plugin that puts what it receives into this memory of a GPU itself."""
    if not bench.start().takes_gpus or bench.unpacks:
        raise NotOffered("it puts nothing into a GPU's memory itself")
    if bench.memory == "host":
        raise NotTried("this is of memory of a GPU: --memory cuda")


def _arrived(
    loopback: Loopback, posted: int, sent: int, offset: int = 0
) -> tuple[Receive, list[int]]:
    """A receive that is done, no more, and the size that test has told."""
    receive = loopback.receive(posted, offset)
    return receive, _untaken(loopback.bench, receive, loopback.send(sent, offset))


def _untaken(bench: Bench, receive: Receive, *sends: Send) -> list[int]:
    told: list[int] = []
    under_way = list(sends)

    def step() -> bool:
        if not told:
            told.extend(bench.tested(receive) or ())
        if under_way and bench.done(under_way[0]) is not None:
            under_way.pop(0)
        return bool(told) and not under_way

    bench.until(step, "not every request was done")
    return told


def _with_reported_sizes(receive: Receive, sizes: list[int]) -> list[Part]:
    """The parts of a receive with the bytes that came."""
    return [(at, said, region) for (at, _, region), said in zip(receive.parts, sizes, strict=True)]


def _one_more(loopback: Loopback) -> None:
    """A message behind, and the end."""
    receive = loopback.receive(PAGE, PAGE)
    loopback.bench.finish(loopback.send(PAGE, PAGE), receive)
    loopback.expect(PAGE, PAGE)
    loopback.close()


CLAUSES = (
    Clause(
        "flush", _flush,
        what="iflush of a receive ends, by a request or at once; then its bytes are there, and no"
        " other byte has changed. test takes a flush's request with NULL for sizes.",
        why="Data in a GPU's memory may be under way when test says done.",
        source="iflush of ncclNet_vN_t",
        nccl="Calls it of GPU memory where forceFlush is 1, NCCL_NET_FORCE_FLUSH is 1 or the GPU is"
        " older than Hopper, forceFlush or not (recvProxyProgress of its net transport), and lets"
        " its kernels read then. It never calls it of host memory, which is tried as the nearest"
        " where --memory is host: that hurts nobody.",
        needs=("message",),
    ),
    Clause(
        "flush-unasked", _unasked,
        what="iflush of what is visible already ends, too, and the connection goes on.",
        why="The caller does not know what is under way.",
        source="iflush of ncclNet_vN_t",
        nccl="Flushes each receive once.",
        needs=("flush",), hurts=False,
    ),
    Clause(
        "flush-sizes", _reported,
        what="iflush takes the size that test has told, which may be less than was posted.",
        why="Behind what came there is nothing to be flushed.",
        source="iflush and test of ncclNet_vN_t",
        nccl="Hands over the array that test has written, of receives of the most that may come.",
        needs=("flush", "reported-size"),
    ),
    Clause(
        "flush-empty", _empty,
        what="iflush takes a receive of 0 bytes, and ends.",
        why="Of several receives one may be empty.",
        source="iflush of ncclNet_vN_t",
        nccl="Flushes the receives of a group together where any of them has a byte; without groups"
        " (maxRecvs 1) it flushes none of 0 bytes.",
        needs=("flush-sizes",),
    ),
    Clause(
        "flush-several", _several,
        what="iflush takes all receives of a group in one call, an empty one among them.",
        why="They were posted together and are done together.",
        source="iflush of ncclNet_vN_t",
        nccl="Flushes so what it has grouped.",
        needs=("flush-empty", "tags"),
    ),
    Clause(
        "flush-closed", _closed,
        what="iflush of a receive that is done ends, though its sender has closed meanwhile.",
        why="The sender knows nothing of the receiver's flush.",
        source="iflush and closeSend of ncclNet_vN_t",
        nccl="Closes a comm when its own rank is through; the peer's flush may still be to come.",
        needs=("flush",),
    ),
)  # fmt: skip
