"""An invented run for tests: every figure is made up, and a function of its arguments."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from tcpx_mpi.clock.trips import Knot
from tcpx_mpi.records import (
    PHASES,
    BaselineInfo,
    Plan,
    RankInfo,
    RankRow,
    Row,
    RowFacts,
    RunHeader,
    SetupTimes,
    SideKey,
    join_row,
)
from tcpx_mpi.records.clock import RowClock
from tcpx_mpi.records.clock import row_clock as make_clock

FINISHED = "2025-03-01T12:00:01.000Z"


def child_environment() -> dict[str, str]:
    """The environment for a child process that imports this module."""
    inherited = os.environ.get("PYTHONPATH")
    paths = [str(Path(__file__).parent), *([inherited] if inherited else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def rank_info(rank: int, **changes: Any) -> RankInfo:
    """Rank `rank` of an invented host with two ranks."""
    info = RankInfo(
        rank=rank,
        host=f"host{rank // 2}",
        node=f"boot-{rank // 2}",
        pid=1000 + rank,
        device=rank % 2,
        device_name="host memory",
        nic=f"eth{1 + rank % 2}",
        nic_pci=f"0000:0{6 + rank % 2}:00.0",
        nic_speed_mbps=200_000,
        numa_node=0,
        cpus="0-7",
        progress_cpu=rank % 2,
        plugin_path="/opt/libnccl-net-softtcpx.so",
        plugin_sha256="0123456789abcdef" * 4,
        plugin_abi=7,
        plugin_name="softtcpx",
        memory="host",
    )
    return dataclasses.replace(info, **changes)


def run_header(world: int = 4, plan: Plan | None = None, **changes: Any) -> RunHeader:
    """The header of an invented run of `world` ranks."""
    header = RunHeader(
        run_id="0011223344556677",
        pattern="ring",
        start_time="2025-03-01T12:00:00.000Z",
        command=["tcpx-mpi", "run", "ring"],
        plan=plan if plan is not None else Plan(sizes=(1024, 2048, 4096), slots=(64, 32, 16)),
        settings=[("channels", "2", "default"), ("seed", "7", "command line --seed")],
        versions={"tcpx-mpi": "0.1.0", "Open MPI": "5.0.6"},
        environment={"NCCL_DEBUG": "INFO"},
        facts={"kernel": "6.1"},
        ranks=[rank_info(rank) for rank in range(world)],
        world=world,
        busbw_factor=1.0,
        time_divisor=1,
        plugin_path="/opt/libnccl-net-softtcpx.so",
        plugin_sha256="0123456789abcdef" * 4,
        plugin_abi=7,
        plugin_name="softtcpx",
        memory="host",
        unpack="in place",
        llc_bytes=32 << 20,
        mode="back-to-back",
        notes=["a note"],
    )
    return dataclasses.replace(header, **changes)


def baseline(name: str, **changes: Any) -> BaselineInfo:
    """The baseline "raw", its variant "raw_4", or "mpi"."""
    kind, _, streams = name.partition("_")
    info = BaselineInfo(
        name=name,
        kind=kind,
        streams=int(streams or 2) if kind == "raw" else 0,
        two_way=kind == "mpi",
        congestion_control="cubic",
        send_buffer_bytes=4 << 20 if kind == "raw" else 0,
        description=f"an invented {name}",
    )
    return dataclasses.replace(info, **changes)


def rank_row_with_baselines(rank: int, facts: RowFacts, **times: float) -> RankRow:
    """A rank's part of a row in two blocks beside peers that take so many times as long."""
    batches = np.array([8, facts.iterations - 8], dtype=np.int64)
    starts, late = np.array([10**12, 10**12 + 10**6], dtype=np.int64), np.array([False, True])

    def part(factor: float) -> RankRow:
        row = rank_row(rank, facts, batches=batches, batch_start=starts, late=late)
        row.samples["iteration"] = (row.samples["iteration"] * factor).astype(np.int64)
        return row

    own = part(1)
    own.sides = {SideKey.of_name(name): part(factor) for name, factor in times.items()}
    return own


def row_with_baselines(index: int = 0, world: int = 4, **times: float) -> Row:
    """A whole row beside peers that take so many times as long."""
    facts = row_facts(index)
    return join_row(
        facts, [rank_row_with_baselines(r, facts, **times) for r in range(world)], FINISHED
    )


def row_clock(offset_ns: int = 5 * 10**14, bound_ns: int = 20_000, drift: float = 0.0) -> RowClock:
    """Of clock 1 against clock 0, in a row of a second."""
    ends = [0, 10**9]
    knots = [Knot(10**12 + offset_ns + at, offset_ns + round(drift * at), bound_ns) for at in ends]
    trips = [[n, 1, k.at_ns - k.offset_ns - bound_ns, k.at_ns, k.at_ns - k.offset_ns + bound_ns]
             for n, k in enumerate(knots)]  # fmt: skip
    return make_clock({1: knots}, np.array(trips, np.int64), {}, {})


def setup_times(world: int = 4) -> SetupTimes:
    """One listen and two connects a rank."""
    rows = [(rank, "listen", -1, 0, -1, 1000 * (rank + 1)) for rank in range(world)]
    rows += [
        (rank, "connect", (rank + 1) % world, 0, channel, 50_000 + 1000 * rank + channel)
        for rank in range(world)
        for channel in range(2)
    ]
    return SetupTimes.from_rows(rows)


def row_facts(index: int = 0, **changes: Any) -> RowFacts:
    """Row `index` of the plan of `run_header`."""
    facts = RowFacts(
        index=index,
        cycle=0,
        size_bytes=1024 << index,
        count=1024 << index,
        chunk_bytes=524288,
        slots=64,
        iterations=20,
        warmup_iterations=2,
    )
    return dataclasses.replace(facts, **changes)


def rank_row(rank: int, facts: RowFacts, **changes: Any) -> RankRow:
    """A rank's part of a row: its iteration i takes 1000 + 100 rank + i ns, all checked."""
    payload = facts.size_bytes * facts.iterations * facts.agg
    part = RankRow(
        rank=rank,
        receives=True,
        checked=True,
        wrong=0,
        chunks=1,
        payload_bytes_sent=payload,
        payload_bytes_received=payload,
        prepare_ns=3000,
        check_ns=2000,
        cpu_user_ns=10_000,
        cpu_system_ns=5_000,
        cpu_others_ns=300,
        net_sent=payload + 100,
        net_received=payload + 100,
        tcp_retransmits=0,
        samples=_samples(rank, facts.iterations),
        warmup=_samples(rank, facts.warmup_iterations),
        batches=np.array([facts.iterations], dtype=np.int64),
        batch_start=np.array([10**12], dtype=np.int64),
        late=np.array([False]),
    )
    return dataclasses.replace(part, **changes)


def row(index: int = 0, world: int = 4, **changes: Any) -> Row:
    """A whole row; `changes` are to the joined row (its facts too)."""
    names = {item.name for item in dataclasses.fields(RowFacts)}
    facts = row_facts(index, **{name: changes.pop(name) for name in names & changes.keys()})
    joined = join_row(facts, [rank_row(rank, facts) for rank in range(world)], FINISHED)
    return dataclasses.replace(joined, **changes)


def _samples(rank: int, iterations: int) -> dict[str, Any]:
    iteration = 1000 + 100 * rank + np.arange(iterations, dtype=np.int64)
    start = 10**12 + np.concatenate([[0], np.cumsum(iteration)])[:iterations]
    values = {
        "iteration": iteration,
        "send": iteration - 200,
        "receive": iteration - 10,
        "start": start.astype(np.int64),
    }
    return {phase: values[phase] for phase in PHASES}


def header_beside(*names: str, **changes: Any) -> RunHeader:
    """The header of a run beside baselines of these names."""
    return run_header(baselines=[baseline(name) for name in names], **changes)


def beside(table: Row, name: str, **changes: Any) -> Row:
    """A row with another row of one of its baselines."""
    side = SideKey.of_name(name)
    changed = dataclasses.replace(table.sides[side], **changes)
    return dataclasses.replace(table, sides={**table.sides, side: changed})
