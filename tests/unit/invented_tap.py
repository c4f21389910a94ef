"""Files of the tap, byte by byte: of one comm each, whose other end another has."""

from __future__ import annotations

import json
import struct

import numpy as np

from tcpx_mpi.tap.file import RECORD

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
    parts = [
        struct.pack("<8sII", b"TCPXTAP1", RECORD.itemsize, 7),
        clock(0),
        lines({"process": 7, "rank": rank, "ranks": 2, "host": "h", "abi": 7, "plugin": "p",
               "path": "/p"},
              {"device": 0, "name": "eth1"},
              {"comm": 0, "side": side, "device": 0, "handle": HANDLE, "ticks": 10**12}),
        block(2, b"".join(each.tobytes() for each in records)),
        clock(1_000_000),
    ]  # fmt: skip
    return b"".join(parts) + (lines({"lost": 0, "unseen": 0}) if end else b"")
