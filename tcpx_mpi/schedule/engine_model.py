"""The engine as interpreter and simulator know it: how it cuts, queues and holds back chunks."""

from __future__ import annotations

from dataclasses import dataclass

from tcpx_mpi.schedule.table import RECEIVE_OPS, Op


@dataclass(frozen=True)
class EngineModel:
    """The engine's knowledge, and how strict the world around it is.

    rendezvous: a send completes only when its receive was posted and the bytes have moved (what
    a plugin may do); otherwise as soon as it is posted. order: None, or a seed that
    decides which of the possible events happens next.
    """

    chunk_bytes: int = 524288
    channels: int = 2
    window_send: int = 12
    window_recv: int = 16
    rendezvous: bool = True
    order: int | None = None


def queue_kind(op: Op) -> Op:
    """Steps of one kind share a queue: what receives, and what is local."""
    if op == Op.SEND:
        return Op.SEND
    return Op.RECV if op in RECEIVE_OPS else Op.COPY
