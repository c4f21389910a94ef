"""Warnings about ranks that were seen elsewhere than asked for."""

from __future__ import annotations

import dataclasses

import invented
import pytest

from tcpx_mpi.records import ObservedPlacement
from tcpx_mpi.report import footer_lines, summarise_row
from tcpx_mpi.report.placement import (
    line_rate_percent,
    placement_lines,
    stolen_lines,
    usage_lines,
)

HEADER = invented.run_header()  # rank r is bound to CPU r % 2
#: As asked for, and all bytes over the NIC.
GOOD = [
    ObservedPlacement(driver_cpus=str(rank % 2), driver_migrations=0, driver_preemptions=0,
          plugin_threads=2,
          plugin_cpus="4-5", plugin_migrations=1, nic_sent=600, nic_received=500, nic_packets=9,
          nic_drops=0, remote_bytes=1000, rtt_us=30)
    for rank in range(4)
]  # fmt: skip


def lines(changed: dict[int, dict[str, int | str]]) -> list[str]:
    seen = [dataclasses.replace(GOOD[rank], **changed.get(rank, {})) for rank in range(4)]
    summaries = [summarise_row(HEADER, invented.row(0, proof=seen))]
    found = placement_lines(HEADER, summaries)
    assert all(line in footer_lines(HEADER, summaries) for line in found)
    return found


def test_nothing_is_said_of_ranks_in_their_places() -> None:
    assert lines({}) == []


def test_nothing_is_said_where_nobody_looked() -> None:
    summaries = [summarise_row(HEADER, invented.row(0))]
    assert placement_lines(HEADER, summaries) == []
    assert usage_lines(HEADER, summaries) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"driver_cpus": "1,3"}, "its progress thread was seen on CPUs 1,3, not only on 1"),
        ({"plugin_cpus": "0-2"}, "threads of the plugin ran on CPU 1"),
        ({"nic_sent": 10, "nic_received": 20}, "NIC eth2 carried 30 B of the 1000 B"),
        ({"nic_sent": 440, "nic_received": 440}, "NIC eth2 carried 880 B of the 1000 B"),
        ({"nic_drops": 7}, "NIC eth2 dropped 7 packets"),
    ],
)
def test_a_rank_that_is_elsewhere_is_named(changes: dict[str, int | str], said: str) -> None:
    (line,) = lines({3: changes})
    assert line.startswith("# WARNING")
    assert "rank 3 on host" in line
    assert said in line


def test_a_rank_that_its_launcher_bound_to_one_cpu_is_told_how_not_to() -> None:
    seen = [dataclasses.replace(GOOD[rank], plugin_cpus=str(rank % 2)) for rank in range(4)]
    ranks = [dataclasses.replace(info, cpus="0-1") for info in HEADER.ranks]
    ranks[3] = dataclasses.replace(ranks[3], cpus="1")
    header = dataclasses.replace(HEADER, ranks=tuple(ranks))
    found = placement_lines(header, [summarise_row(header, invented.row(0, proof=seen))])
    assert ["use --cpus" in line for line in found] == [True, True, True, False]
    assert "bound to CPU 1 alone" in found[3]
    assert "`mpirun --bind-to none`" in found[3]


@pytest.mark.parametrize(
    ("wanted_s", "stolen_s", "said"),
    [
        (60.0, 7.5, "gave 12 % of the CPU time"),
        (60.0, 1.2, "gave 2 % of the CPU time"),
        (60.0, 1.1, ""),  # below a fiftieth
        (0.9, 0.5, ""),  # too little to tell
        (-1e-9, -1e-9, ""),  # nobody looked
    ],
)
def test_a_hypervisor_that_gave_cpus_to_others_is_a_warning_with_the_host(
    wanted_s: float, stolen_s: float, said: str
) -> None:
    # Two rows of half of it each, in which only the second node lost anything.
    parts = {
        "node_wanted_ns": round(wanted_s * 1e9 / 2),
        "node_stolen_ns": round(stolen_s * 1e9 / 2),
    }
    last = HEADER.ranks[-1]
    seen = [
        dataclasses.replace(GOOD[info.rank], **parts) if info.node == last.node
        else dataclasses.replace(GOOD[info.rank], **{**parts, "node_stolen_ns": 0})
        for info in HEADER.ranks
    ]  # fmt: skip
    summaries = [summarise_row(HEADER, invented.row(index, proof=seen)) for index in (0, 1)]
    found = stolen_lines(HEADER, summaries)
    assert len(found) == bool(said)
    for line in found:
        assert line.startswith(f"# WARNING              : {last.host}'s hypervisor {said}")
        assert line in footer_lines(HEADER, summaries)


def test_a_nic_is_not_blamed_for_what_it_cannot_know() -> None:
    assert lines({0: {"nic_sent": -1, "nic_received": -1}}) == []
    assert lines({0: {"remote_bytes": 0, "nic_sent": 0, "nic_received": 0, "nic_drops": 3}}) == []


def test_the_line_rate_is_that_of_the_busier_direction() -> None:
    info = invented.rank_info(0, nic_speed_mbps=8000)
    assert line_rate_percent(info, GOOD[0], elapsed_ns=1200) == pytest.approx(50.0)
    assert line_rate_percent(invented.rank_info(0, nic_speed_mbps=-1), GOOD[0], 1200) is None
    assert line_rate_percent(info, ObservedPlacement(), 1200) is None


def test_the_line_rate_is_of_the_time_until_the_last_rank_was_done() -> None:
    header = dataclasses.replace(
        HEADER,
        ranks=[invented.rank_info(info.rank, nic_speed_mbps=8000) for info in HEADER.ranks],
    )
    row = invented.row(0, proof=[GOOD[info.rank] for info in HEADER.ranks])
    row.samples["iteration"][0] = 1  # a sender: its bytes are in the kernel
    row.samples["iteration"][1:] = 100
    elapsed_ns = int(row.samples["iteration"].sum(axis=1).max())
    percent = line_rate_percent(header.ranks[0], GOOD[0], elapsed_ns)
    (line,) = usage_lines(header, [summarise_row(header, row)])
    assert f": at most {percent:.3g} % of 8 Gb/s" in line


def test_the_rank_that_was_preempted_most_is_named() -> None:
    seen = [dataclasses.replace(GOOD[rank], driver_preemptions=rank) for rank in range(4)]
    text = "\n".join(usage_lines(HEADER, [summarise_row(HEADER, invented.row(0, proof=seen))]))
    assert "6 times, to other work that was ready: most often rank 3 on host1" in text
    assert "of 200 Gb/s, by rank" in text
