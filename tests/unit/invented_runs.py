"""Whole invented runs: a sound one, one with every trouble, and a long one."""

from __future__ import annotations

import dataclasses
from typing import Any

import invented
import numpy as np

from tcpx_mpi.records import Fault, Plan, Run, SetupTimes

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
