"""What reports say of a baseline in a process of its own: its cost, sleep, and what voids it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import invented
import numpy as np
import pytest

from tcpx_mpi.records import Row, Run, RunHeader
from tcpx_mpi.report import footer_lines, row_line, summarise_row, title_lines, to_json
from tcpx_mpi.report.html import tables
from tcpx_mpi.stats.ratios import FLOOR_FROM_BYTES

WORLD = 2


def header(*names: str, floor_gbps: float = 0.0) -> RunHeader:
    baselines = [
        invented.baseline(name, own_process=True, floor_gbps=floor_gbps if name == "nccl" else 0.0)
        for name in names
    ]
    return invented.run_header(WORLD, baselines=baselines)


def row(size: int = 1024, own_ns: int = 0, **times: float) -> Row:
    """A row beside baselines that take so many times as long; `own_ns`: an iteration anywhere."""
    found = invented.row_beside(0, WORLD, **times)
    for side, factor in ((found, 1.0), *((found.against[name], times[name]) for name in times)):
        side.size_bytes = size
        if own_ns:
            side.samples["iteration"][:] = round(own_ns * factor)
    return found


def columns(head: RunHeader, table: Row) -> list[tuple[str, str]]:
    """Title and text of the columns of baselines."""
    titles = next(x for x in title_lines(head) if "#wrong" in x)[1:].split()
    texts = row_line(head, summarise_row(head, table)).split()
    first = titles.index("cpu_s_per_GB") + 1
    return list(zip(titles[first:], texts[first:], strict=True))


def warnings(head: RunHeader, *rows: Row) -> list[str]:
    start = "# WARNING              : "
    lines = footer_lines(head, [summarise_row(head, each) for each in rows])
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def as_json(head: RunHeader, table: Row) -> dict[str, Any]:
    run = Run("o.h5", head, invented.setup_times(WORLD), [table], complete=True)
    document = json.loads(json.dumps(to_json(run), allow_nan=False))
    found: dict[str, Any] = document["results"][0]["against"]
    return found


def test_its_cpu_time_for_a_gigabyte_stands_beside_its_ratio() -> None:
    table = row(nccl=2.0)
    theirs = dataclasses.replace(
        table.against["nccl"],
        cpu_user_ns=np.array([300, 100]),
        cpu_system_ns=np.array([50, 50]),
        payload_bytes_received=np.array([1000, 1000]),
    )
    table = dataclasses.replace(table, against={"nccl": theirs})
    assert columns(header("nccl"), table) == [
        ("ratio", "2.000"), ("low", "2.000"), ("high", "2.000"), ("cpu_s_per_GB", "0.25"),
    ]  # fmt: skip
    assert as_json(header("nccl"), table)["nccl"]["cpu_s_per_GB"] == 0.25


def test_of_variants_without_a_number_of_streams_the_best_is_named() -> None:
    found = columns(header("nccl", "nccl_default"), row(nccl=2.0, nccl_default=1.5))
    assert found[-4:] == [
        ("ratio", "1.500"), ("low", "1.500"), ("high", "1.500"), ("variant", "nccl_default"),
    ]  # fmt: skip


# --- Void -----------------------------------------------------------------------------------------

#: Half of 29 GB/s, and a third of it: both below what is known.
SLOW_NS = round(FLOOR_FROM_BYTES / 14.5)


def test_a_ratio_to_what_was_weakened_is_void_everywhere_and_said_why() -> None:
    head = header("nccl", "nccl_default", floor_gbps=29.0)
    table = row(FLOOR_FROM_BYTES, SLOW_NS, nccl=1.0, nccl_default=1.5)
    texts = [text for title, text in columns(head, table) if title != "cpu_s_per_GB"]
    assert texts == ["void"] * 6 + ["nccl"], "nobody is the best of what was weakened"
    why = "nccl reached 14.5 GB/s where it is known to exceed 29"
    assert f"no ratio at 64 MiB: {why}: something weakened it" in warnings(head, table)
    found = as_json(head, table)["nccl"]
    assert (found["ratio"], found["ci_low"], found["void"]) == (None, None, why)
    assert found["theirs_gbps"] == pytest.approx(14.5, rel=1e-3)
    drawn = tables.ratios_table([summarise_row(head, table)])
    assert drawn is not None
    assert f"void: {why}" in drawn.lines[0].cells


def test_a_ratio_to_what_was_not_is_one() -> None:
    head = header("nccl", floor_gbps=29.0)
    table = row(FLOOR_FROM_BYTES, SLOW_NS // 3, nccl=1.0)
    assert columns(head, table)[0] == ("ratio", "1.000")
    assert not [text for text in warnings(head, table) if "weakened" in text]


# --- Asleep ---------------------------------------------------------------------------------------


def waiting(cpu_ns: int, own_ns: int) -> Row:
    """A row of 20 iterations in which companions had so much CPU time."""
    table = row(own_ns=own_ns, nccl=2.0)
    table.proof = [dataclasses.replace(each, waiting_cpu_ns=cpu_ns) for each in table.proof]
    return table


def test_a_companion_that_did_not_sleep_is_a_warning_with_its_share() -> None:
    text = (
        "in the plugin's blocks processes of waiting peers had up to {} % of a CPU: the plugin was "
        "slowed"
    )
    second = 10**9 // 20
    assert text.format("1.5") in warnings(header("nccl"), waiting(15_000_000, second))
    assert text.format("130") in warnings(header("nccl"), waiting(1_300_000_000, second))
    for quiet in (waiting(9_900_000, second), waiting(-1, second)):
        assert not [line for line in warnings(header("nccl"), quiet) if "waiting peers" in line]


def test_a_row_too_short_to_fall_asleep_in_tells_nothing() -> None:
    short = waiting(1_000_000, 9_000_000 // 20)
    assert not [line for line in warnings(header("nccl"), short) if "waiting peers" in line]
