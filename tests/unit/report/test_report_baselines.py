"""What table and JSON say of the baselines beside the plugin."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import invented
import numpy as np
import pytest
from invented import beside
from invented import header_beside as header
from invented import row_with_baselines as row
from judged import run_of, warnings

from tcpx_mpi.records import Row, RunHeader, SideKey
from tcpx_mpi.report import (
    header_lines,
    row_line,
    summarise_row,
    title_lines,
    to_json,
)
from tcpx_mpi.report.html import tables
from tcpx_mpi.stats.ratios import FLOOR_FROM_BYTES

#: The example of the format, key by key.
EXAMPLE = {"metric", "ratio", "ci_low", "ci_high", "blocks", "ours_gbps", "theirs_gbps"}
OURS = {"nwrong", "idle_share", "net_share", "cpu_s_per_GB", "void"}
VARIANTS = ("raw", "raw_1", "raw_4")


def test_the_bandwidths_beside_a_baseline_have_the_factors_of_the_row() -> None:
    plain, halved = (
        summarise_row(header("raw", algbw_factor=factor), row(raw=2.0)) for factor in (1.0, 0.5)
    )
    assert halved.busbw == pytest.approx(plain.busbw / 2)
    found, before = halved.ratios[SideKey("raw")], plain.ratios[SideKey("raw")]
    assert found.ratio == before.ratio
    assert (found.ours, found.theirs) == pytest.approx((before.ours / 2, before.theirs / 2))


# --- The table ----------------------------------------------------------------------------------


def columns(head: RunHeader, table: Row) -> dict[str, list[str]]:
    """Texts by title, of the columns behind cpu_s_per_GB."""
    titles = next(x for x in title_lines(head) if "#wrong" in x)[1:].split()
    texts = row_line(head, summarise_row(head, table)).split()
    assert len(titles) == len(texts)
    first = titles.index("cpu_s_per_GB") + 1
    found: dict[str, list[str]] = {}
    for title, text in zip(titles[first:], texts[first:], strict=True):
        found.setdefault(title, []).append(text)
    return found


def test_a_peer_has_its_ratio_and_interval_to_the_right() -> None:
    head = header("mpi")
    assert columns(head, row(mpi=3.0)) == {"ratio": ["3.000"], "low": ["3.000"], "high": ["3.000"]}
    assert "beside mpi" in title_lines(head)[1]


def test_a_peer_with_variants_has_the_best_of_them_and_its_streams_too() -> None:
    head = header(*VARIANTS, "mpi")
    found = columns(head, row(raw=1.5, raw_1=2.0, raw_4=1.2, mpi=3.0))
    assert found["ratio"] == ["1.500", "1.200", "3.000"]
    assert found["streams"] == ["4"]
    assert columns(head, row(raw=1.1, raw_1=2.0, raw_4=1.2, mpi=3.0))["streams"] == ["2"]
    titles = title_lines(head)[1]
    assert titles.index("beside raw") < titles.index("raw at its best") < titles.index("beside mpi")


def test_a_ratio_that_is_not_known_is_no_number() -> None:
    head = header(*VARIANTS)
    nobody = invented.row_with_baselines(0, raw=1.5, raw_1=2.0, raw_4=1.2)
    nobody.receives[:] = False
    assert set(columns(head, nobody)["ratio"]) == {"n/a"}
    assert columns(head, nobody)["streams"] == ["n/a"]


def test_bytes_left_scattered_are_beside_nothing() -> None:
    head = header("raw", unpack="none")
    assert columns(head, row(raw=1.5))["ratio"] == ["n/a"]


def test_the_header_says_how_every_peer_is_set() -> None:
    lines = [x for x in header_lines(header("raw_4", "mpi")) if x.startswith("# Peer ")]
    assert lines == [
        "# Peer raw_4: an invented raw_4, cubic, send buffer 4 MiB",
        "# Peer mpi: an invented mpi, cubic",
    ]
    unknown = invented.run_header(baselines=[invented.baseline("mpi", congestion_control="")])
    assert "# Peer mpi: an invented mpi, congestion control unknown" in header_lines(unknown)


def test_what_ran_in_place_is_beside_what_ran_in_place() -> None:
    whole = dataclasses.replace(row(nccl=3.0), algo="ring")
    # The plugin in place as fast as ever, NCCL half as fast as out of place.
    whole.sides[SideKey(place="in_place")] = row()
    whole.sides[SideKey("nccl", "in_place")] = row(nccl=6.0).sides[SideKey("nccl")]
    head = header("nccl", pattern="all_reduce")
    assert columns(head, whole)["ratio"] == ["3.000", "6.000"]
    assert "nccl in place" in title_lines(head)[1]
    assert against(head, whole)[0]["nccl_in_place"]["ratio"] == pytest.approx(6)
    assert "nccl in place" not in title_lines(header("nccl", pattern="alltoall"))[1]


# --- JSON ---------------------------------------------------------------------------------------


def busy(table: Row, name: str, share: float) -> Row:
    elapsed = float(table.sides[SideKey.of_name(name)].samples["iteration"].max(axis=0).sum())
    others = np.array([0, 0, math.ceil(share * elapsed), 0])
    return beside(table, name, cpu_others_ns=others)


def against(head: RunHeader, *rows: Row) -> list[dict[str, Any]]:
    """`against` of each result, as a reader gets it."""
    document = json.loads(json.dumps(to_json(run_of(rows, head)), allow_nan=False))
    return [result["against"] for result in document["results"]]


def test_json_has_the_keys_of_the_format_and_real_numbers() -> None:
    (found,) = against(header("raw"), busy(row(raw=2.0), "raw", 0.004))
    assert set(found) == {"raw"}
    raw = found["raw"]
    assert set(raw) == EXAMPLE | OURS
    assert (raw["metric"], raw["blocks"], raw["nwrong"]) == ("bus_bw", 2, 0)
    assert raw["ratio"] == raw["ci_low"] == raw["ci_high"] == 2.0
    # 1 KiB in (1150 + mean of the block's numbers) ns, over the median of both blocks.
    assert raw["ours_gbps"] == pytest.approx(1024 / (1150 + (3.5 + 13.5) / 2))
    assert raw["theirs_gbps"] == pytest.approx(raw["ours_gbps"] / 2)
    assert raw["idle_share"] == pytest.approx(0.004, rel=0.01)
    assert raw["net_share"] == pytest.approx((20 * 1024 + 100) / (20 * 1024))


def test_json_of_a_ping_pong_has_times() -> None:
    (found,) = against(header("raw", time_divisor=2), row(raw=2.0))
    assert set(found["raw"]) == {key.replace("_gbps", "_us") for key in EXAMPLE | OURS}
    assert found["raw"]["metric"] == "time"
    assert found["raw"]["ours_us"] == pytest.approx((1150 + (3.5 + 13.5) / 2) / 2e3)


def test_json_names_the_best_of_a_peers_variants() -> None:
    head = header(*VARIANTS, "mpi")
    (found,) = against(head, row(raw=1.5, raw_1=2.0, raw_4=1.2, mpi=3.0))
    assert set(found) == {*VARIANTS, "mpi", "raw_best"}
    best = dict(found["raw_best"])
    assert best.pop("variant") == "raw_4"
    assert best == found["raw_4"]


def test_json_says_null_for_what_is_not_known() -> None:
    unknown = beside(row(raw=2.0), "raw", cpu_others_ns=np.full(4, -1), net_sent=np.full(4, -1),
                     checked=np.zeros(4, dtype=bool))  # fmt: skip
    (found,) = against(header("raw"), unknown)
    raw = found["raw"]
    assert [raw[key] for key in ("idle_share", "net_share", "nwrong")] == [None] * 3


def test_json_has_no_peer_where_there_was_none_and_the_settings_of_those_that_were() -> None:
    assert against(header(), row()) == [{}]
    document = to_json(run_of([row(raw_4=2.0, mpi=3.0)], header("raw_4", "mpi")))
    assert document["tcpx_mpi"]["peers"] == [
        dataclasses.asdict(invented.baseline(name)) for name in ("raw_4", "mpi")
    ]


# --- In a process of its own --------------------------------------------------------------------


def apart(*names: str, floor_gbps: float = 0.0) -> RunHeader:
    """A header of baselines in processes of their own."""
    head = header(*names)
    head.baselines = [
        dataclasses.replace(each, own_process=True, floor_gbps=floor_gbps * (each.name == "nccl"))
        for each in head.baselines
    ]
    return head


def large_row(own_ns: int, **times: float) -> Row:
    """A row of the size from which a floor holds; `own_ns` is an iteration anywhere."""
    found = row(**times)
    for side, factor in (
        (found, 1.0),
        *((found.sides[SideKey.of_name(name)], times[name]) for name in times),
    ):
        side.size_bytes = FLOOR_FROM_BYTES
        side.samples["iteration"][:] = round(own_ns * factor)
    return found


def test_its_cpu_time_for_a_gigabyte_stands_beside_its_ratio() -> None:
    table = beside(
        row(nccl=2.0), "nccl", cpu_user_ns=np.array([300, 100]), cpu_system_ns=np.array([50, 50]),
        payload_bytes_received=np.array([1000, 1000]),
    )  # fmt: skip
    assert columns(apart("nccl"), table)["cpu_s_per_GB"] == ["0.25"]
    assert against(apart("nccl"), table)[0]["nccl"]["cpu_s_per_GB"] == 0.25


def test_of_variants_without_a_number_of_streams_the_best_is_named() -> None:
    found = columns(apart("nccl", "nccl_default"), row(nccl=2.0, nccl_default=1.5))
    assert found["ratio"] == ["2.000", "1.500"]
    assert found["variant"] == ["nccl_default"]


def test_a_ratio_to_what_was_weakened_is_void_everywhere_and_said_why() -> None:
    head = apart("nccl", "nccl_default", floor_gbps=29.0)
    table = large_row(round(FLOOR_FROM_BYTES / 14.5), nccl=1.0, nccl_default=1.5)
    found = columns(head, table)
    assert (found["ratio"], found["low"], found["high"]) == (["void"] * 2,) * 3
    assert found["variant"] == ["nccl"], "nobody is the best of what was weakened"
    why = "nccl reached 14.5 GB/s where it is known to exceed 29"
    assert f"no ratio at 64 MiB: {why}: something weakened it" in warnings([table], head)
    told = against(head, table)[0]["nccl"]
    assert (told["ratio"], told["ci_low"], told["void"]) == (None, None, why)
    assert told["theirs_gbps"] == pytest.approx(14.5, rel=1e-3)
    drawn = tables.ratios_table([summarise_row(head, table)])
    assert drawn is not None
    assert f"void: {why}" in drawn.lines[0].cells
    sound = large_row(round(FLOOR_FROM_BYTES / 43.5), nccl=1.0)
    assert columns(apart("nccl", floor_gbps=29.0), sound)["ratio"] == ["1.000"]
