"""Files of the tap, byte by byte: of one comm, whose other end another has, and of whole jobs."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcpx_mpi.tap.file import DONE, RECEIVE, RECORD, SEND

HANDLE = "00112233445566aa"
#: Ticks are half a nanosecond.
START, TICKS = 1_700_000_000_000_000_000, 2


def block(kind: int, content: bytes) -> bytes:
    return struct.pack("<IIII", 0x42504154, kind, 0, len(content)) + content


def clock(ns: int) -> bytes:
    return block(3, struct.pack("<Qqq", 10**12 + TICKS * ns, 5_000 + ns, START + ns))


def lines(*objects: dict[str, object]) -> bytes:
    return block(1, b"".join(json.dumps(each).encode() + b"\n" for each in objects))


def record(kind: int, request: int, ns: int, size: int, comm: int = 0, **more: int) -> np.void:
    made = np.zeros(1, RECORD)
    made["kind"], made["comm"], made["request"] = kind, comm, request
    made["ticks"], made["bytes"], made["parts"] = 10**12 + TICKS * ns, size, 1
    for name, value in more.items():
        made[name] = value
    return made[0]


def file_of(rank: int, side: str, *records: np.void, end: bool = True) -> bytes:
    return file_with(rank, [(side, HANDLE)], records, lost=0 if end else None)


def file_with(
    rank: int,
    comms: Sequence[tuple[str, str]],
    records: Sequence[np.void],
    lost: int | None = 0,
    ranks: int = 2,
    process: int = 7,
) -> bytes:
    """The file of a rank whose comms, from 0, have these sides and handles."""
    opened = [
        {"comm": number, "side": side, "device": 0, "handle": handle, "ticks": 10**12 + number}
        for number, (side, handle) in enumerate(comms)
    ]
    parts = [
        struct.pack("<8sII", b"TCPXTAP1", RECORD.itemsize, 7),
        clock(0),
        lines({"process": process, "rank": rank, "ranks": ranks, "host": "h", "abi": 7,
               "plugin": "p", "path": "/p"},
              {"device": 0, "name": "eth1"}, *opened),
        block(2, b"".join(each.tobytes() for each in records)),
        clock(1_000_000),
    ]  # fmt: skip
    return b"".join(parts) + (b"" if lost is None else lines({"lost": lost, "unseen": 0}))


@dataclass(frozen=True)
class Message:
    """One that was sent at an instant and had left at another; awaited, and there; in ns."""

    sent: int
    left: int
    awaited: int
    came: int
    bytes: int = 8


#: By connection, (sender, receiver, lane): its messages in order.
Job = Mapping[tuple[int, int, int], Sequence[Message]]


def write_job(folder: Path, job: Job, ranks: int, **more: Any) -> Path:
    """The files of a job; a handle a connection."""
    for rank in range(ranks):
        mine = [connection for connection in job if rank in connection[:2]]
        comms, records = [], []
        for comm, connection in enumerate(mine):
            sends = connection[0] == rank
            comms.append(("send" if sends else "receive", "{:04x}{:04x}{:08x}".format(*connection)))
            for number, one in enumerate(job[connection]):
                posted, done = (one.sent, one.left) if sends else (one.awaited, one.came)
                kind = SEND if sends else RECEIVE
                records.append(record(kind, number, posted, one.bytes, comm))
                records.append(record(DONE, number, done, one.bytes, comm))
        made = file_with(rank, comms, records, ranks=ranks, **more)
        folder.mkdir(exist_ok=True)
        (folder / f"{rank}.tap").write_bytes(made)
    return folder
