"""What a reader must know of the GPUs: their time for the unpack, throttling, uneven clocks."""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.records import GpuRow, RunHeader, throttled
from tcpx_mpi.report.preamble import rank_name
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import counted, format_size

#: Clocks of GPUs in one run that differ by more are worth a word: the figures may, too.
_EVEN_CLOCKS = 1.1


def gpu_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    """The lines of the footer about GPUs; none for a run without."""
    seen = [(summary, gpu) for summary in summaries for gpu in summary.gpu]
    if not seen:
        return []
    return [
        *_unpack_lines(header, summaries),
        *_throttle_lines(header, summaries),
        *_clock_lines(seen),
    ]


def _unpack_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    """The GPU's own time for what it unpacked, in the batches that were watched for it."""
    # A launch waits in the GPU's queue as a whole; copies are handed over while others run.
    copies = ", the CPU's handing over of each copy included" if header.unpack != "kernel" else ""
    lines = []
    for summary in summaries:
        known = [gpu for gpu in summary.gpu if gpu.unpack_gpu_ns > 0]
        if not known:
            continue
        time_ns = sum(gpu.unpack_gpu_ns for gpu in known)
        total = sum(gpu.unpack_bytes for gpu in known)
        launches = sum(gpu.unpack_launches for gpu in known)
        lines.append(
            _line(
                "Unpack on the GPU",
                f"{format_size(summary.size_bytes)}: {total / time_ns:.3g} GB/s while it ran, "
                f"{time_ns / launches / 1e3:.3g} us a launch, {counted(launches, 'launch')} "
                f"(by events, in a batch of its own{copies})",
            )
        )
    return lines


def _throttle_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    lines = []
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
            lines.append(
                _line(
                    "WARNING",
                    f"the GPU of {rank_name(header, info.rank)} was throttled ({words}) at {sizes}",
                )
            )
    return lines


def _clock_lines(seen: Sequence[tuple[RowSummary, GpuRow]]) -> list[str]:
    clocks = [gpu.sm_mhz_after for _, gpu in seen if gpu.sm_mhz_after > 0]
    if not clocks or max(clocks) <= _EVEN_CLOCKS * min(clocks):
        return []
    text = f"SM clocks of the GPUs were {min(clocks)} to {max(clocks)} MHz after the rows"
    return [_line("WARNING", f"{text}: what the GPUs themselves take may differ as much")]


def _line(title: str, text: str) -> str:
    return f"# {title:<20} : {text}"
