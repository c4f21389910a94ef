"""Whole invented runs: a sound one, one with every trouble, and a long one."""

from __future__ import annotations

import dataclasses
from typing import Any

import invented
import numpy as np

from tcpx_mpi.records import BaselineInfo, Fault, Plan, Run, SetupTimes, SideKey

#: Names that would break a page that trusted them.
HOSTILE = "<b>node</b>&amp;\"'$x_1$</script><script>alert(1)</script>"


def sound(world: int = 4, rows: int = 15, **header: Any) -> Run:
    """Complete, checked and right: sizes from 1 KiB by factors of 2, rank 3 a little slow."""
    plan = Plan(sizes=tuple(1024 << index for index in range(rows)))
    measured = []
    for index in range(rows):
        row = invented.row(index, world=world, iterations=300)
        # A bandwidth that rises with the size, and waves so that ranks and iterations differ.
        waves = 1 + 0.2 * np.sin(np.arange(300) + np.arange(world)[:, None])
        slow = 1 + 0.3 * (np.arange(world) == 3)[:, None]
        base_ns = 9_000 + row.size_bytes / 11
        row.samples["iteration"][:] = (base_ns * slow * waves).astype(np.int64)
        measured.append(row)
    return Run(
        path="o.h5",
        header=invented.run_header(world, plan, **header),
        setup=invented.setup_times(world),
        rows=measured,
        complete=True,
        end_time="2025-03-01T12:00:09.000Z",
    )


def troubled() -> Run:
    """Wrong bytes in row 1, row 2 unchecked, ended early, and every text of it hostile."""
    run = sound(rows=3)
    run.rows[1].wrong[2] = 3
    run.rows[1].faults.append(f"rank 2: 3 wrong bytes, the first from {HOSTILE}")
    run.rows[2].checked[0] = False
    header = run.header
    ranks = [
        dataclasses.replace(info, host=HOSTILE, nic=HOSTILE, cpus=HOSTILE, device_name=HOSTILE)
        for info in header.ranks
    ]
    header = dataclasses.replace(
        header,
        plan=dataclasses.replace(header.plan, sizes=(1024, 2048, 4096, 8192)),
        pattern=HOSTILE,
        run_id=HOSTILE,
        start_time=HOSTILE,
        mode=HOSTILE,
        plugin_name=HOSTILE,
        plugin_path=f"/opt/{HOSTILE}" + "/a-long-folder" * 20,
        memory=HOSTILE,
        unpack=HOSTILE,
        command=["tcpx-mpi", "run", HOSTILE],
        settings=[(HOSTILE, HOSTILE * 4, HOSTILE), (HOSTILE, HOSTILE, "default")],
        versions={HOSTILE: HOSTILE, "tcpx-mpi": HOSTILE},
        environment={HOSTILE: HOSTILE * 9},
        facts={HOSTILE: HOSTILE},
        notes=[HOSTILE],
        ranks=ranks,
    )
    fault = Fault("stall", 6, {1: HOSTILE}, (3,), "2025-03-01T12:00:05.000Z")
    return dataclasses.replace(run, path=HOSTILE, header=header, complete=False, fault=fault)


def beside_baselines() -> Run:
    """Baselines of 1.25, 2 and half of the plugin's bandwidth; the last ends in wrong bytes."""
    run = sound(rows=5)
    factors = {"raw": 0.8, "raw_4": 0.5, "mpi": 2.0}
    for row in run.rows:
        # Ten blocks of 30 iterations.
        row.batches = np.full(10, 30, dtype=np.int64)
        row.batch_start = np.full((4, 10), 10**12, dtype=np.int64)
        row.late = np.zeros((4, 10), dtype=np.bool_)
        for name, factor in factors.items():
            times = {phase: (ns * factor).astype(np.int64) for phase, ns in row.samples.items()}
            row.sides[SideKey.of_name(name)] = dataclasses.replace(row, samples=times, sides={})
    wrong = run.rows[-1].sides[SideKey("mpi")]
    run.rows[-1].sides[SideKey("mpi")] = dataclasses.replace(wrong, wrong=np.array([0, 7, 0, 0]))
    baselines = [
        BaselineInfo(name, name[:3], 2, True, "cubic", 4 << 20, "plain TCP sockets")
        for name in factors
    ]
    return dataclasses.replace(run, header=dataclasses.replace(run.header, baselines=baselines))


def several(launches: int = 10, rows: int = 15, slower: float = 1.0) -> Run:
    """Launches that vary by 2 %, the last one by half; each began a minute after the one before."""
    random = np.random.default_rng(launches)
    made = []
    for number, factor in enumerate(slower * np.exp(random.normal(0, 0.02, launches))):
        start = f"2025-03-01T12:{2 * number + (slower != 1):02d}:00.000Z"
        run = sound(rows=rows, run_id=f"{number:012x}", start_time=start)
        for row in run.rows:
            by = factor * np.exp(random.normal(0, 0.01))
            row.samples["iteration"] = (row.samples["iteration"] * by).astype(np.int64)
        made.append(run)
    for row in made[-1].rows:
        row.samples["iteration"] = row.samples["iteration"] * 3 // 2
    made[0].launches, made[0].launches_planned = made[1:], launches
    return made[0]


def empty() -> Run:
    """Killed before its first row and before its set-up times."""
    return dataclasses.replace(sound(), rows=[], setup=SetupTimes.joined([]), complete=False)


def long(rows: int = 10_000, world: int = 2) -> Run:
    """Very many rows of different sizes; one of the last is wrong, and one is far too slow."""
    measured = []
    for index in range(rows):
        row = invented.row(index, world=world, size_bytes=1 + index * 1009, count=1 + index * 1009)
        measured.append(row)
    measured[-7].wrong[1] = 5
    measured[-7].faults.append("rank 1: 5 wrong bytes")
    plan = Plan(sizes=tuple(row.size_bytes for row in measured))
    run = sound(world)
    header = dataclasses.replace(run.header, plan=plan)
    return dataclasses.replace(run, header=header, rows=measured)


def fleet(
    nodes: int = 16, slow: tuple[str, str] = ("node03", "eth3"), by: float = 1.6
) -> list[Run]:
    """Runs of `pair` over two nodes of 4 ranks, every node with every other; one NIC is slow."""
    random = np.random.default_rng(nodes)
    runs = []
    for a in range(nodes):
        for b in range(a + 1, nodes):
            run = sound(world=8, rows=1, pattern="pair")
            ranks = [
                dataclasses.replace(
                    info, host=f"node{(a, b)[rank // 4]:02d}", node=f"boot-{(a, b)[rank // 4]}",
                    nic=f"eth{1 + rank % 4}",
                )
                for rank, info in enumerate(run.header.ranks)
            ]  # fmt: skip
            (row,) = run.rows
            row.receives[:] = np.arange(8) >= 4
            for rank in range(4):
                ends = {(ranks[end].host, ranks[end].nic) for end in (rank, rank + 4)}
                ns = 50_000 * float(np.exp(random.normal(0, 0.01))) * (by if slow in ends else 1)
                row.samples["iteration"][rank + 4] = int(ns)
            header = dataclasses.replace(run.header, ranks=ranks)
            runs.append(dataclasses.replace(run, path=f"{a:02d}-{b:02d}.h5", header=header))
    return runs
