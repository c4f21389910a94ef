"""Findings on GPUs: unpack time, throttling, unequal clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.records import RunHeader, rank_name, throttled
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import counted, figure, format_size

#: Clocks of GPUs in one run that differ by more are worth a word: the figures may, too.
_EVEN_CLOCKS = 1.1
#: Ways to unpack that have the CPU's part in what events measure.
_OF_THE_CPU = ("d2d", "host")
#: What is said of a GPU that something slows down, before the reasons.
THROTTLED = "was throttled"


def gpus(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """All there is to say of GPUs; nothing of a run without."""
    yield from _unpacks(header, summaries)
    yield from _throttled(header, summaries)
    clocks = [gpu.sm_mhz_after for s in summaries for gpu in s.gpu if gpu.sm_mhz_after > 0]
    if clocks and max(clocks) > _EVEN_CLOCKS * min(clocks):
        text = (
            f"SM clocks of the GPUs were {min(clocks)} to {max(clocks)} MHz after the rows: what "
            "the GPUs themselves take may differ as much"
        )
        yield Finding(Severity.DOUBTFUL, "", text)


def _unpacks(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The GPU's own time for what it unpacked, in the batches that were watched for it."""
    # A launch waits in the GPU's queue as a whole; copies are handed over while others run.
    copies = (
        ", the CPU's handing over of each copy included" if header.unpack in _OF_THE_CPU else ""
    )
    for summary in summaries:
        known = [gpu for gpu in summary.gpu if gpu.unpack_gpu_ns > 0]
        if not known:
            continue
        time_ns = sum(gpu.unpack_gpu_ns for gpu in known)
        total = sum(gpu.unpack_bytes for gpu in known)
        launches = sum(gpu.unpack_launches for gpu in known)
        text = (
            f"{total / time_ns:.3g} GB/s while it ran, "
            f"{figure(time_ns / launches / 1e3, 3)} us a launch, "
            f"{counted(launches, 'launch')} (by events, in a batch of its own{copies})"
        )
        where = format_size(summary.size_bytes)
        yield Finding(Severity.NOTE, "Unpack on the GPU", text, evidence=where)


def _throttled(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    for info in header.ranks:
        rows = [(s.size_bytes, s.gpu[info.rank]) for s in summaries if info.rank < len(s.gpu)]
        reasons = [
            (size, word)
            for size, gpu in rows
            for word in throttled(
                max(gpu.throttle_reasons_before, 0) | max(gpu.throttle_reasons_after, 0)
            )
        ]
        if reasons:
            words = ", ".join(dict.fromkeys(word for _, word in reasons))
            sizes = ", ".join(dict.fromkeys(format_size(size) for size, _ in reasons))
            text = f"the GPU of {rank_name(header, info.rank)} {THROTTLED} ({words}) at {sizes}"
            yield Finding(Severity.DOUBTFUL, "", text)
