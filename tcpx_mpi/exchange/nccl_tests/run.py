"""The log of nccl-tests as a run in our schema, and as a file."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np

from tcpx_mpi._version import installed_version
from tcpx_mpi.errors import ExitCode, TcpxError, UsageError
from tcpx_mpi.exchange.nccl_tests.gaps import missing_rows
from tcpx_mpi.exchange.nccl_tests.model import MOST_SIZES, Device, Log, LogRow
from tcpx_mpi.records import (
    AVERAGES,
    IMPORTED_BOUNDS,
    PHASES,
    Fault,
    Plan,
    RankInfo,
    Row,
    Run,
    RunHeader,
    RunWriter,
    SetupTimes,
    filter_environment,
)
from tcpx_mpi.records.row import RANK_COLUMNS, RANK_FLAGS
from tcpx_mpi.records.sound import MOST_RANKS

PLUGIN_NAME = "nccl-tests"
_UNKNOWN = -1
#: Ranks whose lines a log may have lost; GPUs of a process; ranks of all rows, which for 2,000
#: ranks and 1,000 rows make a file of 250 MB.
_MOST_UNLISTED = 4096
_OF_PROCESS = 256
_MOST_OF_ROWS = 1 << 21
#: What today's nccl-tests says of every run; older versions, and its text, say less.
_SETTINGS = (
    "nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "warmup_iters", "iterations",
    "aggregated_iterations", "validation", "graph", "blocking_collectives",
)  # fmt: skip


def run_of(log: Log) -> Run:
    """The run of a log; what the log lacks is in its `missing`."""
    header = _header(log)
    return Run(
        path=log.name,
        header=header,
        setup=SetupTimes.joined([]),
        rows=[_row(log, index, row, header.world) for index, row in enumerate(log.rows)],
        complete=log.concluded and not log.damaged and not missing_rows(log),
        fault=_fault(log),
    )


def write_run(run: Run, path: str) -> str:
    """Write a run to a new file, `path` or the first free name beside it; return the name.

    Raises OutputFailed if it cannot be filled; nothing is left then.
    """
    writer = RunWriter(path, "--output")
    try:
        writer.write_header(run.header)
        writer.write_setup(run.setup)
        for row in run.rows:
            writer.append_row(row)
        if run.fault is not None:
            writer.write_fault(run.fault)
            writer.close()
        else:
            writer.finish()
    except TcpxError:
        # The log is still there: half of it in another form is of no use to anybody.
        writer.discard()
        raise
    return writer.path


def _header(log: Log) -> RunHeader:
    world = _world(log)  # refuses what no log tells of, before a rank of it is made
    ranks = _ranks(log)
    return RunHeader(
        run_id=log.sha256[:16],
        pattern=log.test or "unknown",
        start_time="",
        command=log.command,
        plan=_plan(log),
        settings=[(name, value, "the log") for name, value in log.settings.items()],
        versions={"tcpx-mpi": installed_version(), **log.versions},
        environment=filter_environment(log.environment),
        facts=log.facts,
        ranks=ranks,
        # A rank whose line is lost is one that the map lacks.
        world=world,
        busbw_factor=np.nan,
        time_divisor=1,
        plugin_path="",
        plugin_sha256="",
        plugin_abi=_UNKNOWN,
        plugin_name=PLUGIN_NAME,
        memory="device",
        unpack="",
        llc_bytes=_UNKNOWN,
        mode=AVERAGES,
        notes=_notes(log, len(ranks)),
    )


def _plan(log: Log) -> Plan:
    """The rows that are there, and of a log that was cut off the rest of their pass."""
    sizes = [row.size_bytes for row in log.rows]
    if not log.concluded:
        # More than one pass: nccl-tests goes through the sizes for each type, operation and root.
        asked = log.asked_count()
        begun = len(sizes) % asked if sizes and asked else 0
        sizes += log.asked_sizes(begun) if begun or not sizes else []
    return Plan(
        sizes=tuple(sizes) or tuple(log.asked_sizes()),
        iters=log.iters,
        warmup_iters=log.warmup_iters,
        agg_iters=log.agg_iters,
        average=_UNKNOWN,
        check=log.check,
        blocking=log.blocking,
        chunk_bytes=_UNKNOWN,
        channels=_UNKNOWN,
        window_send=_UNKNOWN,
        window_recv=_UNKNOWN,
    )


def _notes(log: Log, ranks: int) -> list[str]:
    of_nccl = f" over NCCL {log.versions['NCCL']}" if "NCCL" in log.versions else ""
    notes = [
        f"imported from {log.name}, sha256 {log.sha256[:12]}: "
        f"nccl-tests {log.versions.get('nccl-tests', '(version not told)')}{of_nccl}",
        "#wrong counts elements, found in an iteration of its own and not in the timed ones",
        "not in the log: samples, the plugin that NCCL used, NIC, NUMA node and CPUs of a rank",
    ]
    if unlisted := ranks - len({device.rank for device in log.devices}):
        notes.append(
            f"the log lists one GPU of each process: the devices of {unlisted} other ranks "
            "are not told"
        )
    untold = [name for name in _SETTINGS if name not in log.settings]
    if untold:
        notes.append(f"not told by the log: {', '.join(untold)}")
    if not log.test:
        notes.append("the log does not name its test")
    if len(groups := Counter(device.group for device in log.devices)) > 1:
        notes.append(f"{len(groups)} groups of ranks ran at once, each by itself")
    return notes + log.notes


def _world(log: Log) -> int:
    """The ranks of all processes; of each process at least its first GPU is listed.

    Raises UsageError for more than the lines of a log can tell of: what is kept of a row has each.
    """
    of_process = log.gpus_of_process
    world = (max(device.rank for device in log.devices) // of_process + 1) * of_process
    most = min(MOST_RANKS, _MOST_UNLISTED + 4 * len(log.devices) * of_process)
    if min(device.rank for device in log.devices) < 0 or world > most or of_process > _OF_PROCESS:
        raise UsageError(
            f"{log.name} tells of {world} ranks, {of_process} a process, and lists "
            f"{len(log.devices)}: that is no log of nccl-tests"
        )
    if world * len(log.rows) > _MOST_OF_ROWS:
        rows = f"{len(log.rows)} rows of {world} ranks"
        raise UsageError(f"{log.name} has {rows}: that is no log of nccl-tests")
    return world


def _ranks(log: Log) -> list[RankInfo]:
    """The ranks that the log lists, and those that are in one process with them."""
    ranks = {device.rank: _rank(device) for device in log.devices}
    for device in log.devices:
        first = device.rank - device.rank % log.gpus_of_process
        for rank in range(first, first + log.gpus_of_process):
            if rank not in ranks:
                place = {"device": _UNKNOWN, "gpu": _UNKNOWN, "device_name": "", "gpu_pci": ""}
                ranks[rank] = dataclasses.replace(ranks[device.rank], rank=rank, **place)  # type: ignore[arg-type]  # by name
    return [ranks[rank] for rank in sorted(ranks)]


def _rank(device: Device) -> RankInfo:
    return RankInfo(
        rank=device.rank,
        host=device.host,
        node="",
        pid=device.pid,
        device=device.device,
        device_name=device.name,
        nic="",
        nic_pci="",
        nic_speed_mbps=_UNKNOWN,
        numa_node=_UNKNOWN,
        cpus="",
        progress_cpu=_UNKNOWN,
        plugin_path="",
        plugin_sha256="",
        plugin_abi=_UNKNOWN,
        plugin_name=PLUGIN_NAME,
        memory="device",
        gpu=device.device,
        gpu_pci=device.pci,
    )


def _row(log: Log, index: int, row: LogRow, world: int) -> Row:
    nothing = {phase: np.empty((world, 0), np.int64) for phase in PHASES}
    counted: dict[str, Any] = {
        name: np.zeros(world, np.bool_) if name in RANK_FLAGS else np.full(world, _UNKNOWN)
        for name in RANK_COLUMNS
    }
    return Row(
        index=index,
        cycle=0,
        size_bytes=row.size_bytes,
        count=row.count,
        type_name=row.type_name,
        redop=row.redop,
        root=row.root,
        agg=log.agg_iters,
        messages_per_copy=_UNKNOWN,
        chunk_bytes=_UNKNOWN,
        slots=_UNKNOWN,
        iterations=log.iters,
        warmup_iterations=log.warmup_iters,
        chunks=_UNKNOWN,
        samples=nothing,
        warmup=dict(nothing),
        batches=np.empty(0, np.int64),
        batch_start=np.empty((world, 0), np.int64),
        late=np.empty((world, 0), np.bool_),
        finished_time="",
        faults=[],
        averages=list(row.averages),
        **counted,
    )


def _fault(log: Log) -> Fault | None:
    """Why the import is no whole run, if it is none."""
    texts = [*log.damaged, *missing_rows(log)]
    if not log.concluded:
        texts.append(f"{log.name} ends before nccl-tests did: it has no footer")
    if log.asked_count() > MOST_SIZES and not log.concluded:
        texts.append(f"of {log.asked_count()} sizes that were asked for {len(log.rows)} are there")
    bounds = log.facts.get(IMPORTED_BOUNDS, "")
    if "FAILED" in bounds and not any(side.wrong > 0 for row in log.rows for side in row.averages):
        texts.append(f"nccl-tests found values out of bounds ({bounds}), in no row of the log")
    if not texts:
        return None
    kind = "the log is not whole"
    return Fault(kind, int(ExitCode.PARTIAL_RESULT), {-1: "; ".join(texts)}, (), "")
