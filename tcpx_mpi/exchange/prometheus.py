"""Figures for Prometheus: a file in the text format, for node_exporter's textfile collector.

Labels and units are those of NCCL's Inspector where it has them. A row is one size; of several rows
of a size the slowest is shown. What is unknown is left out.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.findings.tails import arrivals_by_target
from tcpx_mpi.records import Run, RunHeader, require_writable
from tcpx_mpi.report.table import summarise_row
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import format_size_option

OPTION = "--prom"
_PREFIX = "tcpx_mpi_"
#: The collector reads no other files.
_ENDING = ".prom"

Labels = Mapping[str, str]


@dataclass
class Metric:
    """A gauge: its name without the prefix, what it is, and its samples."""

    name: str
    help: str
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, labels: Labels, value: float) -> None:
        """Leaves out what is unknown."""
        if math.isfinite(value):
            self.samples.append((labels, value))


def require_prom(path: str) -> None:
    """Raises UsageError if no such file can be written, or nobody would read it."""
    if not path.endswith(_ENDING):
        raise UsageError(
            f"{OPTION} ({path}) does not end in {_ENDING}: node_exporter reads no other file"
        )
    require_writable(path, OPTION)


def metrics_of(
    run: Run | None,
    exit_code: int,
    passed: bool | None = None,
    summaries: Sequence[RowSummary] | None = None,
) -> list[Metric]:
    """The metrics of a run; of None those of a run that ended before anything was known. `passed`
    is of its gate."""
    own = _labels(run.header if run is not None else None)
    code = Metric("exit_code", "Exit code of the run, 0 if it is good.")
    code.add(own, exit_code)
    gate = Metric("gate_passed", "1 if the run met its gate, 0 if not.")
    if passed is not None:
        gate.add(own, passed)
    end = Metric("end_timestamp_seconds", "When the run ended, in seconds since 1970.")
    end.add(own, round(time.time(), 3))
    if run is None:
        return [code, end]
    if summaries is None:
        summaries = [summarise_row(run.header, row) for row in run.rows]
    return [code, gate, end, *_of_rows(run.header, summaries), *_of_targets(run)]


def _of_targets(run: Run) -> list[Metric]:
    """Of a run of requests to several ranks."""
    found = Metric("target_microseconds", "Quantile of the time of requests to a target.")
    for row in run.rows if run.header.targets else ():
        labels = {**_labels(run.header), "message_size": format_size_option(row.size_bytes)}
        for target, spread in arrivals_by_target(run.header, row).items():
            quantiles = {"0.5": spread.p50, "0.99": spread.p99, "0.999": spread.p99_9}
            for quantile, ns in quantiles.items():
                found.add({**labels, "target": str(target), "quantile": quantile}, ns / 1e3)
    return [found]


def _of_rows(header: RunHeader, summaries: Sequence[RowSummary]) -> list[Metric]:
    busbw = Metric("bus_bandwidth_gbs", "Bus bandwidth in GB/s.")
    took = Metric("exec_time_microseconds", "Time of an iteration in microseconds.")
    tail = Metric("p99_microseconds", "99th percentile of single iterations in microseconds.")
    ratio = Metric("ratio", "Speed over that of the baseline beside it.")
    checked = Metric("checked_bytes", "Received bytes that were checked.")
    wrong = Metric("wrong_bytes", "Wrong bytes that were found.")
    of_size: dict[int, list[RowSummary]] = {}
    for summary in summaries:
        of_size.setdefault(summary.size_bytes, []).append(summary)
    for size_bytes, rows in of_size.items():
        labels = {**_labels(header), "message_size": format_size_option(size_bytes)}
        slowest = max(rows, key=lambda row: row.time_ns if math.isfinite(row.time_ns) else -1.0)
        busbw.add(labels, slowest.busbw if size_bytes else math.nan)
        took.add(labels, slowest.time_ns / 1e3)
        tail.add(labels, slowest.per_iteration.p99 / 1e3)
        for side, found in slowest.ratios.items():
            ratio.add({**labels, "baseline": side.name}, found.ratio)
        checked.add(labels, sum(max(row.payload_received_checked, 0) for row in rows))
        wrong.add(labels, sum(row.wrong_found for row in rows))
    return [busbw, took, tail, ratio, checked, wrong]


def _labels(header: RunHeader | None) -> dict[str, str]:
    """Labels of the whole run; the node is that of rank 0."""
    job = (header.environment if header is not None else os.environ).get("SLURM_JOB_ID", "unknown")
    if header is None:
        return {"slurm_job_id": job, "node": os.uname().nodename}
    first = min(header.ranks, key=lambda info: info.rank, default=None)
    labels = {
        "slurm_job_id": job,
        "node": first.host if first is not None else "unknown",
        "n_nodes": str(len({info.node for info in header.ranks})),
        "nranks": str(header.world),
        "collective": header.pattern,
    }
    if first is not None and first.gpu_name:
        labels["gpu"] = f"GPU{first.gpu}"
    return labels


def prom_text(metrics: Iterable[Metric]) -> str:
    """The text format; a metric without samples is left out."""
    lines = []
    for metric in metrics:
        if metric.samples:
            lines.append(f"# HELP {_PREFIX}{metric.name} {metric.help}")
            lines.append(f"# TYPE {_PREFIX}{metric.name} gauge")
        for labels, value in metric.samples:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{_PREFIX}{metric.name}{{{inside}}} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def write_prom(path: str, metrics: Iterable[Metric]) -> str:
    """The file in place of an older one, whole at once; its name. Raises OutputFailed."""
    # The collector passes over a name with another ending.
    half = f"{path}.{os.getpid()}"
    try:
        try:
            with open(half, "x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(prom_text(metrics))
            os.replace(half, path)
        except BaseException:
            if os.path.exists(half):
                os.unlink(half)
            raise
    except OSError as error:
        raise OutputFailed(f"{path}: cannot write: {error.strerror}") from error
    return path
