"""What table, footer and JSON say of the baselines beside the plugin."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import invented
import numpy as np
import pytest

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.records import Row, Run, RunHeader
from tcpx_mpi.report import (
    footer_lines,
    header_lines,
    row_line,
    summarise_row,
    title_lines,
    to_json,
)
from tcpx_mpi.run.recorder import _verdict

#: The example of the format, key by key.
EXAMPLE = {"metric", "ratio", "ci_low", "ci_high", "blocks", "ours_gbps", "theirs_gbps"}
OURS = {"nwrong", "idle_share", "net_share", "cpu_s_per_GB", "void"}
VARIANTS = ("raw", "raw_1", "raw_4")


def header(*names: str, **changes: Any) -> RunHeader:
    return invented.run_header(baselines=[invented.baseline(name) for name in names], **changes)


def row(index: int = 0, **times: float) -> Row:
    return invented.row_beside(index, **times)


def beside(table: Row, name: str, **changes: Any) -> Row:
    """The same with another baseline's row."""
    baselines = {**table.against, name: dataclasses.replace(table.against[name], **changes)}
    return dataclasses.replace(table, against=baselines)


def run_of(head: RunHeader, *rows: Row) -> Run:
    return Run("o.h5", head, invented.setup_times(), list(rows), complete=True)


def test_the_bandwidths_beside_a_baseline_have_the_factors_of_the_row() -> None:
    plain, halved = (
        summarise_row(header("raw", algbw_factor=factor), row(raw=2.0)) for factor in (1.0, 0.5)
    )
    assert halved.busbw == pytest.approx(plain.busbw / 2)
    found, before = halved.against["raw"], plain.against["raw"]
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
    nobody = invented.row_beside(0, raw=1.5, raw_1=2.0, raw_4=1.2)
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


# --- The footer ---------------------------------------------------------------------------------


def warnings(*rows: Row, head: RunHeader | None = None) -> list[str]:
    head = head if head is not None else header(*rows[0].against)
    lines = footer_lines(head, [summarise_row(head, each) for each in rows])
    start = "# WARNING              : "
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def busy(table: Row, name: str, share: float) -> Row:
    elapsed = float(table.against[name].samples["iteration"].max(axis=0).sum())
    others = np.array([0, 0, math.ceil(share * elapsed), 0])
    return beside(table, name, cpu_others_ns=others)


def test_peers_that_were_left_alone_are_no_warning() -> None:
    rows = [
        busy(busy(row(index, raw=1.5, mpi=3.0), "raw", 0.009), "mpi", 0.0) for index in range(3)
    ]
    assert warnings(*rows) == []
    line = (
        "# Beside peers         : ratio of this plugin to the peer, above 1 faster; median of 2 or "
        "more pairs of blocks, 95 % interval"
    )
    head = header("raw", "mpi")
    assert line in footer_lines(head, [summarise_row(head, rows[0])])
    assert "Beside peers" not in "\n".join(footer_lines(head, [summarise_row(head, row())]))


def test_an_idle_side_that_was_not_idle_is_named_with_its_share() -> None:
    quiet = busy(busy(row(raw=1.5, mpi=3.0), "raw", 0.0), "mpi", 0.0)
    assert warnings(quiet, busy(quiet, "mpi", 0.0123)) == [
        "in the blocks of mpi the idle side and the rest of a rank had up to 1.2 % of a CPU: the "
        "peer was slowed"
    ]


def test_an_unknown_idle_share_hides_no_known_one() -> None:
    known = busy(row(raw=1.5), "raw", 0.5)
    unknown = beside(row(raw=1.5), "raw", cpu_others_ns=np.full(4, -1))
    for rows in ((known, unknown), (unknown, known)):
        assert len(warnings(*rows)) == 1
    assert warnings(unknown) == []


@pytest.mark.parametrize(
    ("kind", "interfaces", "hosts", "warned"),
    [
        ("mpi", "eth7", ("a", "b"), True),
        ("mpi", "eth7", ("a", "a"), False),  # all by loopback
        ("mpi", "", ("a", "b"), False),  # unknown
        ("mpi", "eth1", ("a", "b"), False),
        ("raw", "eth7", ("a", "b"), False),
    ],
)
def test_mpi_that_went_another_way_between_nodes_is_a_warning(
    kind: str, interfaces: str, hosts: tuple[str, str], warned: bool
) -> None:
    ranks = [
        dataclasses.replace(invented.rank_info(rank), node=host, nic="eth1")
        for rank, host in enumerate(hosts)
    ]
    head = header(kind)
    head.ranks = ranks
    head.baselines = [invented.baseline(kind, interfaces=interfaces)]
    found = warnings(row(**{kind: 1.5}), head=head)
    expected = f"peer mpi went over {interfaces}, the plugin over eth1: "
    assert [line.startswith(expected) for line in found] == [True] * warned


def test_a_peer_that_took_a_short_cut_is_named() -> None:
    found = busy(row(raw=1.5), "raw", 0.0)
    payload = found.against["raw"].payload_bytes_sent
    assert warnings(found, beside(found, "raw", net_sent=payload - 1), found) == [
        "peer raw sent fewer bytes than its payload: a short cut"
    ]


def test_what_ran_in_place_is_beside_what_ran_in_place() -> None:
    whole = dataclasses.replace(row(nccl=3.0), algo="ring")
    # The plugin in place as fast as ever, NCCL half as fast as out of place.
    whole.against["in_place"] = row()
    whole.against["nccl_in_place"] = row(nccl=6.0).against["nccl"]
    head = header("nccl", pattern="all_reduce")
    assert columns(head, whole)["ratio"] == ["3.000", "6.000"]
    assert "nccl in place" in title_lines(head)[1]
    assert against(head, whole)[0]["nccl_in_place"]["ratio"] == pytest.approx(6)
    assert "nccl in place" not in title_lines(header("nccl", pattern="alltoall"))[1]


@pytest.mark.parametrize(("kind", "accused"), [("raw", True), ("mpi", False), ("nccl", False)])
def test_a_collective_of_its_own_may_send_less_than_our_schedule(kind: str, accused: bool) -> None:
    found = busy(row(**{kind: 1.5}), kind, 0.0)
    payload = found.against[kind].payload_bytes_sent
    head = header(kind, pattern="all_reduce")
    less = beside(found, kind, net_sent=payload * 2 // 3)
    assert ["short cut" in line for line in warnings(less, head=head)] == [True] * accused
    none = beside(found, kind, net_sent=payload // 100)
    assert ["short cut" in line for line in warnings(none, head=head)] == [True]


@pytest.mark.parametrize(("name", "accused"), [("softtcpx_v9", True), ("Libfabric", False)])
def test_another_plugin_is_accused_of_a_short_cut_where_all_of_it_can_be_seen(
    name: str, accused: bool
) -> None:
    found = busy(row(plugin=1.5), "plugin", 0.0)
    payload = found.against["plugin"].payload_bytes_sent
    head = header("plugin")
    head.baselines = [dataclasses.replace(head.baselines[0], description=f"{name}, ABI v9, b.so")]
    few = beside(found, "plugin", net_sent=payload - 1)
    assert ["short cut" in line for line in warnings(few, head=head)] == [True] * accused


def test_wrong_bytes_of_a_peer_are_a_warning_and_fail_the_run() -> None:
    found = busy(busy(row(raw=1.5, mpi=3.0), "raw", 0.0), "mpi", 0.0)
    wrong = beside(found, "mpi", wrong=np.array([0, 4, 0, 1]))
    assert warnings(found, wrong) == ["peer mpi delivered 5 wrong bytes"]
    head = header("raw", "mpi")
    for table, verdict in ((found, ExitCode.OK), (wrong, ExitCode.WRONG_BYTES)):
        run = run_of(head, table)
        summaries = [summarise_row(head, table)]
        assert _verdict(run, summaries) == verdict
        told = ["peer mpi delivered 5 wrong bytes"] if verdict else []
        assert to_json(run)["errors"] == told


def test_a_peer_that_was_not_checked_is_named_unless_there_was_nothing_to_check() -> None:
    found = busy(row(raw=1.5), "raw", 0.0)
    unchecked = beside(found, "raw", checked=np.array([True, True, False, True]))
    assert warnings(unchecked) == ["not checked in every row, of the peers: raw"]
    empty = dataclasses.replace(unchecked, size_bytes=0)
    empty.checked[:] = False
    assert warnings(empty) == []


# --- JSON ---------------------------------------------------------------------------------------


def against(head: RunHeader, *rows: Row) -> list[dict[str, Any]]:
    """`against` of each result, as a reader gets it."""
    document = json.loads(json.dumps(to_json(run_of(head, *rows)), allow_nan=False))
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
    document = to_json(run_of(header("raw_4", "mpi"), row(raw_4=2.0, mpi=3.0)))
    assert document["tcpx_mpi"]["peers"] == [
        dataclasses.asdict(invented.baseline(name)) for name in ("raw_4", "mpi")
    ]
