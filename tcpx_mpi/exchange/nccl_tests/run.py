"""The log of nccl-tests as a run in our schema, and as a file."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tcpx_mpi._version import installed_version
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.exchange.nccl_tests.log import Device, Log, LogRow
from tcpx_mpi.records import (
    AVERAGES,
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

PLUGIN_NAME = "nccl-tests"
_UNKNOWN = -1


def run_of(log: Log) -> Run:
    """The run of a log; what the log lacks is in its `missing`."""
    header = _header(log)
    return Run(
        path=log.name,
        header=header,
        setup=SetupTimes.joined([]),
        rows=[_row(log, index, row, header.world) for index, row in enumerate(log.rows)],
        complete=log.concluded and not log.damaged,
        fault=_fault(log),
    )


def write_run(run: Run, path: str) -> str:
    """Write a run to a new file, `path` or the first free name beside it; return the name."""
    writer = RunWriter(path, "--output")
    writer.write_header(run.header)
    writer.write_setup(run.setup)
    for row in run.rows:
        writer.append_row(row)
    if run.fault is not None:
        writer.write_fault(run.fault)
        writer.close()
    else:
        writer.finish()
    return writer.path


def _header(log: Log) -> RunHeader:
    return RunHeader(
        run_id=log.sha256[:16],
        pattern=log.test or "unknown",
        start_time="",
        command=log.command,
        plan=_plan(log),
        settings=[],
        versions={"tcpx-mpi": installed_version(), **log.versions},
        environment=filter_environment(log.environment),
        facts=log.facts,
        ranks=[_rank(device) for device in log.devices],
        # A rank whose line is lost is one that the map lacks.
        world=max(device.rank for device in log.devices) + 1,
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
        notes=_notes(log),
    )


def _plan(log: Log) -> Plan:
    """The rows that are there, and of a log that was cut off the rest of their pass."""
    sizes = [row.size_bytes for row in log.rows]
    if not log.concluded:
        # More than one pass: nccl-tests goes through the sizes for each type, operation and root.
        asked = log.asked_sizes()
        begun = len(sizes) % len(asked) if sizes else 0
        sizes += asked[begun:] if begun or not sizes else []
    return Plan(
        sizes=tuple(sizes) or tuple(log.asked_sizes()),
        iters=log.iters,
        warmup_iters=log.warmup_iters,
        agg_iters=log.agg_iters,
        average=_UNKNOWN,
        check=log.check,
        blocking=_UNKNOWN,
        chunk_bytes=_UNKNOWN,
        channels=_UNKNOWN,
        window_send=_UNKNOWN,
        window_recv=_UNKNOWN,
    )


def _notes(log: Log) -> list[str]:
    of_nccl = f" over NCCL {log.versions['NCCL']}" if "NCCL" in log.versions else ""
    notes = [
        f"imported from {log.name}, sha256 {log.sha256[:12]}: "
        f"nccl-tests {log.versions.get('nccl-tests', '(version not told)')}{of_nccl}",
        "#wrong counts elements, found in an iteration of its own and not in the timed ones",
        "not in the log: samples, the plugin that NCCL used, NIC, NUMA node and CPUs of a rank",
    ]
    if not log.test:
        notes.append("the log does not name its test")
    if len(groups := Counter(device.group for device in log.devices)) > 1:
        notes.append(f"{len(groups)} groups of ranks ran at once, each by itself")
    return notes + log.notes


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
    texts = list(log.damaged)
    if not log.concluded:
        texts.append(f"{log.name} ends before nccl-tests did: it has no footer")
    if not texts:
        return None
    kind = "the log is not whole"
    return Fault(kind, int(ExitCode.PARTIAL_RESULT), {-1: "; ".join(texts)}, (), "")
