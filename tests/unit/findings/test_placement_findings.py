"""Ranks that were seen elsewhere than asked for, and what NICs and CPUs did."""

from __future__ import annotations

import dataclasses

import invented
import pytest
from judged import run_of, summaries_of

from tcpx_mpi.findings.placement import line_rate_percent, placement, stolen, usage
from tcpx_mpi.records import ObservedPlacement, RunHeader
from tcpx_mpi.report.lines import words_of

HEADER = invented.run_header()  # rank r is bound to CPU r % 2
#: As asked for, and all bytes over the NIC.
GOOD = [
    ObservedPlacement(driver_cpus=str(rank % 2), driver_migrations=0, driver_preemptions=0,
          plugin_threads=2,
          plugin_cpus="4-5", plugin_migrations=1, nic_sent=600, nic_received=500, nic_packets=9,
          nic_drops=0, remote_bytes=1000, rtt_us=30)
    for rank in range(4)
]  # fmt: skip


def seen(proof: list[ObservedPlacement], header: RunHeader = HEADER) -> list[str]:
    """Who was elsewhere."""
    summaries = summaries_of(run_of([invented.row(0, proof=proof)], header))
    return [words_of(finding) for finding in placement(header, summaries)]


def elsewhere(changed: dict[int, dict[str, int | str]]) -> list[str]:
    return seen([dataclasses.replace(GOOD[rank], **changed.get(rank, {})) for rank in range(4)])


def test_nothing_is_said_of_ranks_in_their_places_or_where_nobody_looked() -> None:
    assert elsewhere({}) == seen([]) == []
    assert list(usage(HEADER, summaries_of(run_of([invented.row(0)])))) == []


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
    (text,) = elsewhere({3: changes})
    assert text.startswith(f"rank 3 on host1 (device 1, NIC eth2): {said}")


def test_a_rank_that_its_launcher_bound_to_one_cpu_is_told_how_not_to() -> None:
    proof = [dataclasses.replace(GOOD[rank], plugin_cpus=str(rank % 2)) for rank in range(4)]
    ranks = [dataclasses.replace(info, cpus="0-1") for info in HEADER.ranks]
    ranks[3] = dataclasses.replace(ranks[3], cpus="1")
    header = dataclasses.replace(HEADER, ranks=tuple(ranks))
    found = seen(proof, header)
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
    proof = [
        dataclasses.replace(GOOD[info.rank], **parts) if info.node == last.node
        else dataclasses.replace(GOOD[info.rank], **{**parts, "node_stolen_ns": 0})
        for info in HEADER.ranks
    ]  # fmt: skip
    run = run_of([invented.row(index, proof=proof) for index in (0, 1)])
    found = list(stolen(HEADER, summaries_of(run)))
    assert len(found) == bool(said)
    assert all(each.text.startswith(f"{last.host}'s hypervisor {said}") for each in found)


def test_a_nic_is_not_blamed_for_what_it_cannot_know() -> None:
    assert elsewhere({0: {"nic_sent": -1, "nic_received": -1}}) == []
    assert (
        elsewhere({0: {"remote_bytes": 0, "nic_sent": 0, "nic_received": 0, "nic_drops": 3}}) == []
    )


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
    (rate,) = usage(header, summaries_of(run_of([row], header)))
    assert rate.text.startswith(f"at most {percent:.3g} % of 8 Gb/s")


def test_the_rank_that_was_preempted_most_is_named() -> None:
    proof = [dataclasses.replace(GOOD[rank], driver_preemptions=rank) for rank in range(4)]
    rate, left = usage(HEADER, summaries_of(run_of([invented.row(0, proof=proof)])))
    assert "6 times, to other work that was ready: most often rank 3 on host1" in left.text
    assert "of 200 Gb/s, by rank" in rate.text
