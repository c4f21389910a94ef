"""What puts a ratio in doubt, judged from invented rows beside baselines."""

from __future__ import annotations

import dataclasses
import math

import invented
import judged
import numpy as np
import pytest
from invented import beside
from invented import header_beside as header
from invented import row_with_baselines as row

from tcpx_mpi.records import Row, Run, RunHeader, SideKey
from tcpx_mpi.report import report_lines, summarise_row, to_json
from tcpx_mpi.report.html.page import page_of


def warnings(*rows: Row, head: RunHeader | None = None) -> list[str]:
    return judged.warnings(
        rows, head if head is not None else header(*(side.name for side in rows[0].sides))
    )


def busy(table: Row, name: str, share: float) -> Row:
    elapsed = float(table.sides[SideKey.of_name(name)].samples["iteration"].max(axis=0).sum())
    others = np.array([0, 0, math.ceil(share * elapsed), 0])
    return beside(table, name, cpu_others_ns=others)


def test_peers_that_were_left_alone_are_no_warning() -> None:
    rows = [
        busy(busy(row(index, raw=1.5, mpi=3.0), "raw", 0.009), "mpi", 0.0) for index in range(3)
    ]
    assert warnings(*rows) == []
    text = (
        "ratio of this plugin to the peer, above 1 faster; median of 2 or more pairs of blocks, "
        "95 % interval"
    )
    head = header("raw", "mpi")
    assert judged.about("Beside peers", judged.judged(rows, head)) == [text]
    assert judged.about("Beside peers", judged.judged([row()], head)) == []


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
        ("mpi", "eth0,eth1", ("a", "b"), True),
        ("raw", "eth7", ("a", "b"), True),
        ("plugin", "eth7", ("a", "b"), True),
    ],
)
def test_a_ratio_of_two_networks_is_void_and_a_warning(
    kind: str, interfaces: str, hosts: tuple[str, str], warned: bool
) -> None:
    ranks = [
        dataclasses.replace(invented.rank_info(rank), node=host, nic="eth1")
        for rank, host in enumerate(hosts)
    ]
    head = header(kind)
    head.ranks = ranks
    head.baselines = [invented.baseline(kind, interfaces=interfaces)]
    table = row(**{kind: 1.5})
    found = [line for line in warnings(table, head=head) if " went over " in line]
    expected = f"peer {kind} went over {interfaces}, the plugin over eth1: no ratio; "
    assert [line.startswith(expected) for line in found] == [True] * warned
    run = Run("o.h5", head, invented.setup_times(), [table], True)
    ratio = summarise_row(head, table).ratios[SideKey(kind)]
    assert math.isnan(ratio.ratio) == warned
    assert bool(ratio.void) == warned
    assert (" void" in "\n".join(report_lines(run))) == warned
    (of_row,) = to_json(run)["results"]
    assert (of_row["against"][kind]["ratio"] is None) == warned
    assert bool(of_row["against"][kind]["void"]) == warned
    assert ("void: " in page_of(run)) == warned
    if warned and kind == "mpi":
        assert "btl_tcp_if_include eth1" in found[0]


def test_a_peer_that_took_a_short_cut_is_named() -> None:
    found = busy(row(raw=1.5), "raw", 0.0)
    payload = found.sides[SideKey("raw")].payload_bytes_sent
    assert warnings(found, beside(found, "raw", net_sent=payload - 1), found) == [
        "peer raw sent fewer bytes than its payload: a short cut"
    ]


@pytest.mark.parametrize(("kind", "accused"), [("raw", True), ("mpi", False), ("nccl", False)])
def test_a_collective_of_its_own_may_send_less_than_our_schedule(kind: str, accused: bool) -> None:
    found = busy(row(**{kind: 1.5}), kind, 0.0)
    payload = found.sides[SideKey.of_name(kind)].payload_bytes_sent
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
    payload = found.sides[SideKey("plugin")].payload_bytes_sent
    head = header("plugin")
    head.baselines = [dataclasses.replace(head.baselines[0], description=f"{name}, ABI v9, b.so")]
    few = beside(found, "plugin", net_sent=payload - 1)
    assert ["short cut" in line for line in warnings(few, head=head)] == [True] * accused


def test_wrong_bytes_of_a_peer_are_a_warning() -> None:
    found = busy(busy(row(raw=1.5, mpi=3.0), "raw", 0.0), "mpi", 0.0)
    wrong = beside(found, "mpi", wrong=np.array([0, 4, 0, 1]))
    assert warnings(found, wrong) == ["peer mpi delivered 5 wrong bytes"]


def test_a_peer_that_was_not_checked_is_named_unless_there_was_nothing_to_check() -> None:
    found = busy(row(raw=1.5), "raw", 0.0)
    unchecked = beside(found, "raw", checked=np.array([True, True, False, True]))
    assert warnings(unchecked) == ["not checked in every row, of the peers: raw"]
    empty = dataclasses.replace(unchecked, size_bytes=0)
    empty.checked[:] = False
    assert warnings(empty) == []


def waiting(cpu_ns: int, own_ns: int) -> list[str]:
    """The warnings of 20 iterations in which companions had so much CPU time."""
    table = row(nccl=2.0)
    for side, factor in ((table, 1), (table.sides[SideKey("nccl")], 2)):
        side.samples["iteration"][:] = own_ns * factor
    table.proof = [dataclasses.replace(each, waiting_cpu_ns=cpu_ns) for each in table.proof]
    return [text for text in warnings(table) if "waiting peers" in text]


def test_a_companion_that_did_not_sleep_is_a_warning_with_its_share() -> None:
    text = (
        "in the plugin's blocks processes of waiting peers had up to {} % of a CPU: the plugin was "
        "slowed"
    )
    second = 10**9 // 20
    assert waiting(15_000_000, second) == [text.format("1.5")]
    assert waiting(1_300_000_000, second) == [text.format("130")]
    assert waiting(9_900_000, second) == waiting(-1, second) == []


def test_a_row_too_short_to_fall_asleep_in_tells_nothing() -> None:
    assert waiting(1_000_000, 9_000_000 // 20) == []
