"""softtcpx's own trace files (SOFTTCPX_TRACE), one a process, matched to messages.

The form is documented in docs/reference/softtcpx.md; the engine knows nothing of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import Limits, read_bytes

VARIABLE = "SOFTTCPX_TRACE"
_LIMITS = Limits(bytes=256 << 20)
_MAGIC = b"STCPXTR1"
#: magic, bytes of the header, bytes of a record, capacity, records written, process.
_HEADER = struct.Struct("<8sIIQQQ")
RECORD = np.dtype(
    [
        ("ns", "<i8"),
        ("connection", "<u8"),
        ("offset", "<u8"),
        ("message", "<u4"),
        ("bytes", "<u4"),
        ("step", "<u2"),
        ("socket", "<u2"),
        ("thread", "<u4"),
    ]
)
#: By number, as `TraceStep` of native/softtcpx/environment/trace.h.
STEPS = {
    1: "posted",
    2: "wakes",
    3: "woken",
    4: "copy begun",
    5: "copy landed",
    6: "sending",
    7: "sent",
    8: "header",
    9: "received",
    10: "whole",
    11: "done",
}

#: Of one message of one connection: when each step first was, and when last.
Spans = dict[str, tuple[int, int]]


def read_records(path: str) -> NDArray[np.void]:
    """The records of a file, oldest first; raises UsageError where it is no such file."""
    content = read_bytes(path, _LIMITS)
    if len(content) < _HEADER.size or content[:8] != _MAGIC:
        raise UsageError(f"{path} is no trace of softtcpx; {VARIABLE} makes one")
    _, header_bytes, record_bytes, capacity, written, _ = _HEADER.unpack_from(content)
    whole = len(content) == header_bytes + capacity * record_bytes
    if record_bytes != RECORD.itemsize or not capacity or not whole:
        raise UsageError(f"{path} is cut off, or of another version of softtcpx")
    records = np.frombuffer(content, RECORD, capacity, header_bytes)
    if written <= capacity:
        return records[:written]
    return np.roll(records, -(written % capacity))


class PluginTrace:
    """The steps of all messages of some processes, as far as their files still have them."""

    def __init__(self, files: Iterable[tuple[int, str]]) -> None:
        """`files`: process and path of each."""
        self._spans: dict[tuple[int, int, int], Spans] = {}
        for process, path in files:
            for record in read_records(path).tolist():
                ns, connection, _, message, _, step, _, _ = record
                if step not in STEPS:  # torn: the process ended while it wrote
                    continue
                spans = self._spans.setdefault((process, connection, message), {})
                first, last = spans.get(STEPS[step], (ns, ns))
                spans[STEPS[step]] = (min(first, ns), max(last, ns))

    def of(self, process: int, connection: int, message: int) -> Spans:
        return self._spans.get((process, connection, message), {})
