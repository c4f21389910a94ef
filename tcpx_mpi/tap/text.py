"""The figures of a job as text, and as a document of JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tcpx_mpi.printable import printable
from tcpx_mpi.tap.joined import NONE, Job
from tcpx_mpi.tap.ways import Nic, Summary, Way
from tcpx_mpi.units import counted, format_size

FORMAT = 1

WAYS = (
    "from", "to", "NIC", "comms", "messages", "bytes", "GB/s", "under way", "p50 us", "p99 us",
    "max us", "gaps", "longest ms", "caller", "receiver", "plugin",
)  # fmt: skip
NICS = (
    "of",
    "NIC",
    "way",
    "comms",
    "messages",
    "bytes",
    "GB/s",
    "under way",
    "polls",
    "plugin us",
)
#: What a terminal without room for all columns goes without, in this order.
_LEFT_OUT = (
    "comms", "gaps", "longest ms", "max us", "under way", "NIC", "p50 us", "GB/s", "receiver",
)  # fmt: skip
#: Lines of what the tap said while the job ran, a file.
_MOST_SAID = 8


def lines(job: Job, summary: Summary, columns: int | None = None) -> Iterator[str]:
    """The lines: each recorder; each way; each NIC; what the tap said meanwhile. A table is no
    wider than `columns`, if given, as far as it can do without columns of its own."""
    yield f"# {printable(heading(job))}"
    yield from (f"# WARNING: {problem}" for problem in problems(job))
    yield "#"
    yield (
        "# By way: time is the caller's (NCCL's) while nothing is posted, the receiver's while a "
        "message has no receive yet, else the plugin's and the network's."
    )
    yield from _table(WAYS, [way_cells(way) for way in summary.ways], columns)
    for way in summary.ways:
        yield f"# {way_line(way)}"
    yield "#"
    yield "# By NIC"
    yield from _table(NICS, [nic_cells(nic) for nic in summary.nics], columns)
    yield from (f"# {printable(said)}" for said in log_lines(job))


def heading(job: Job) -> str:
    """Who recorded."""
    plugins = sorted({f"{file.plugin} (v{file.abi})" for file in job.files})
    records = sum(len(file.records) for file in job.files)
    return (
        f"{counted(len(job.files), 'file')} of {counted(len(_hosts(job)), 'host')}, "
        f"{counted(records, 'record')}; plugin {', '.join(plugins)}"
    )


def way_line(way: Way) -> str:
    """What no column has of a way."""
    sizes = ", ".join(f"{format_size(below)}: {n}" for below, n in way.sizes.items())
    return (
        f"{way.sender} > {way.receiver}: sizes below {sizes}; receives posted "
        f"{way.receive_after_send_us:.1f} us after their sends, or sends "
        f"{way.send_after_receive_us:.1f} us after their receives (medians)"
    )


def log_lines(job: Job) -> Iterator[str]:
    """What the tap said while the job ran."""
    for number, file in enumerate(job.files):
        for said in file.said[:_MOST_SAID]:
            yield f"{job.name(number)} said: {said}"


def document(job: Job, summary: Summary) -> dict[str, Any]:
    """The same for programs; sizes in bytes, times in ns or us as their names say."""
    return {
        "format": FORMAT,
        "files": [
            {
                "path": file.path,
                "name": job.name(number),
                "rank": file.rank,
                "host": file.host,
                "process": file.process,
                "abi": file.abi,
                "plugin": file.plugin,
                "plugin_path": file.plugin_path,
                "records": len(file.records),
                "lost": file.lost if file.lost >= 0 else None,
                "said": list(file.said),
            }
            for number, file in enumerate(job.files)
        ],
        "unpaired": sum(NONE in (link.sender, link.receiver) for link in job.links),
        "ways": [_plain(way) for way in summary.ways],
        "nics": [_plain(nic) for nic in summary.nics],
    }


def _plain(figures: Way | Nic) -> dict[str, Any]:
    found = dataclasses.asdict(figures)
    for name, value in found.items():
        if isinstance(value, tuple):
            found[name] = [None if math.isnan(each) else each for each in value]
    return found


def _hosts(job: Job) -> set[str]:
    return {file.host for file in job.files}


def problems(job: Job) -> Iterator[str]:
    """What lacks."""
    for number, file in enumerate(job.files):
        if file.lost > 0:
            yield f"{counted(file.lost, 'record')} of {job.name(number)} are not there"
    if died := [job.name(number) for number, file in enumerate(job.files) if file.lost < 0]:
        more = f" and {len(died) - _MOST_SAID} more" if len(died) > _MOST_SAID else ""
        yield (
            f"ended without a last word, so that records may lack: "
            f"{', '.join(died[:_MOST_SAID])}{more}"
        )
    if unpaired := sum(NONE in (link.sender, link.receiver) for link in job.links):
        yield (f"{counted(unpaired, 'comm')} without the other end: give the files of all ranks")


def way_cells(way: Way) -> list[str]:
    """Its row of WAYS."""
    nic = way.sender_nic if way.sender_nic == way.receiver_nic else (
        f"{way.sender_nic}>{way.receiver_nic}"
    )  # fmt: skip
    p50, p99, most = way.post_to_done_us
    return [
        way.sender, way.receiver, nic, str(way.comms),
        str(way.messages) + (f" ({way.not_done} not done)" if way.not_done else ""),
        str(way.bytes), f"{way.gb_per_s:.3f}", f"{way.depth:.1f} (max {way.most})", f"{p50:.1f}",
        f"{p99:.1f}", f"{most:.1f}", str(way.gaps), f"{way.longest_gap_ns / 1e6:.2f}",
        *(f"{100 * share:.0f} %" for share in (way.caller, way.receiver_late, way.plugin)),
    ]  # fmt: skip


def nic_cells(nic: Nic) -> list[str]:
    """Its row of NICS."""
    return [
        nic.process, nic.nic, "out" if nic.sends else "in", str(nic.comms), str(nic.messages),
        str(nic.bytes), f"{nic.gb_per_s:.3f}", f"{nic.depth:.1f}", f"{nic.polls:.1f}",
        f"{nic.plugin_us:.2f}",
    ]  # fmt: skip


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None
) -> Iterator[str]:
    cells = [heads, *(list(map(printable, row)) for row in rows)]
    by_head = dict(zip(heads, zip(*cells, strict=True), strict=True))
    widths = {head: max(map(len, column)) for head, column in by_head.items()}
    left_out = []
    for head in _LEFT_OUT:
        if columns is None or sum(widths.values()) + 2 * (len(widths) - 1) <= columns:
            break
        if widths.pop(head, None) is not None:
            left_out.append(head)
    for row in zip(*(by_head[head] for head in widths), strict=True):
        yield "  ".join(map(str.rjust, row, widths.values()))
    if left_out:
        yield f"# Not shown here: {', '.join(left_out)}: use a pipe"
