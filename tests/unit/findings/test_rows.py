"""What a reader is told of a run's rows, judge by judge; how it is shown is `report`'s question."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import invented
import numpy as np
import pytest
from judged import about, judged, run_of, summaries_of, warnings

from tcpx_mpi.findings import Severity
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.findings.verdict import in_words
from tcpx_mpi.records import IN_PLACE, Fault, Row, SideKey
from tcpx_mpi.units import format_size


def test_wrong_bytes_are_told_in_the_words_of_who_found_them() -> None:
    row = invented.row(0, wrong=np.array([0, 3, 0, 0]), faults=["rank 1: 3 wrong bytes"])
    assert about("Wrong bytes", judged([row])) == row.faults


def test_a_bandwidth_of_unchecked_bytes_says_so_with_the_share_that_was_checked() -> None:
    rows = [invented.row(0), invented.row(1, checked=np.array([True, False, True, True]))]
    assert warnings(rows) == [
        "bandwidth of unchecked bytes in 1 of 2 rows (2 KiB): it proves nothing; use -c 1"
    ]
    checked = 100 * (4 + 3 * 2) / (4 + 4 * 2)
    assert about("Checked", judged(rows))[0].startswith(f"{checked:.4g} % of the timed bytes")
    assert warnings([invented.row(0, size_bytes=0, count=0)]) == []


def test_one_row_is_no_rows() -> None:
    row = invented.row(0, checked=np.array([True, False, True, True]), ended_by="max-time")
    said = " ".join(finding.text for finding in judged([row]))
    assert said.count("1 of 1 row") == 3
    assert "rows" not in said


def test_an_ablation_claims_no_bandwidth_and_says_that_it_is_one() -> None:
    header = dataclasses.replace(invented.run_header(), memory="emulated", unpack="none")
    row = invented.row(0, checked=np.zeros(4, dtype=np.bool_))
    assert math.isfinite(summaries_of(run_of([row]))[0].net_bw)
    (summary,) = summaries_of(run_of([row], header))
    assert math.isnan(summary.busbw)
    assert math.isnan(summary.net_bw)
    text = "bytes are left scattered, so none is checked and there is no bandwidth (--unpack none)"
    assert about("Ablation", judged([row], header)) == [text]
    assert warnings([row], header) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"traps": "SOFTTCPX_TRAP_SLOW_US=200 (rank 1)"},
            "faults on purpose (SOFTTCPX_TRAP_SLOW_US=200 (rank 1)): these figures are not those "
            "of a sound plugin",
        ),
        (
            {"connections_a_nic": "9", "busiest_nic": "eth1 of hostA"},
            "9 data connections on eth1 of hostA, more than the 8 that a NIC of an A3 machine is "
            "good for: use fewer --channels, NCCL_NSOCKS_PERTHREAD or ranks a NIC",
        ),
        ({"connections_a_nic": "8", "busiest_nic": "eth1 of hostA"}, ""),
    ],
)
def test_what_the_header_knows_is_warned_of(facts: dict[str, str], said: str) -> None:
    header = invented.run_header(facts=facts)
    assert warnings([invented.row(0)], header) == [said] * bool(said)
    on_gpus = dataclasses.replace(header, memory="cuda")
    assert not any("data connections" in text for text in warnings([], on_gpus))


def test_the_cost_of_the_check_is_relative_to_the_measured_time() -> None:
    row = invented.row(0, world=1)
    row.samples["iteration"][:] = 500
    # 20 iterations of 500 ns; 3000 ns to prepare and 2000 ns to check.
    assert about("Checked", judged([row])) == [
        "100 % of the timed bytes, at a cost of 0.50 x the measured time"
    ]
    row = invented.row(0, world=2, checked=np.array([True, False]))
    row.payload_bytes_received[:] = [10**12, 1]
    assert about("Checked", judged([row]))[0].startswith("99.99 %")  # almost all is not all


@pytest.mark.parametrize(
    ("times", "changes", "told"),
    [
        ([500_000] + 19 * [200], {}, True),  # what waited for its receiver
        ([500_000] + 19 * [200], {"mode": "synchronised"}, False),  # each iteration by itself
        ([500_000] + 19 * [200], {"time_divisor": 2}, False),
        (20 * [200], {}, False),  # as quick as that
        ([2_000_000] + 19 * [15_000], {}, False),  # one that lost its CPU
    ],
)
def test_percentiles_of_bursts_are_told_from_times(
    times: list[int], changes: dict[str, Any], told: bool
) -> None:
    row = invented.row()
    row.samples["iteration"] = np.tile(np.array(times, dtype=np.int64), (4, 1))
    run = run_of([row], invented.run_header(**changes))
    found = about("Bursts", judged(run.rows, run.header))
    assert bool(found) is told
    assert all("at 1 KiB (a gap of 0.2 us) most iterations came with" in text for text in found)
    spread = summaries_of(run)[0].per_iteration
    assert math.isnan(spread.p50) is told
    assert math.isnan(spread.p50_high) is told
    assert spread.max > 0


def test_bursts_of_the_row_in_place_are_told_as_such_and_have_no_spike() -> None:
    row, in_place = invented.row(), invented.row()
    times = np.array([500_000] + 19 * [200], dtype=np.int64)
    in_place.samples["iteration"] = np.tile(times, (4, 1))
    row.sides[SideKey(place=IN_PLACE)] = in_place
    run = run_of([row], invented.run_header())
    found = judged(run.rows, run.header)
    assert [text[:41] for text in about("Bursts", found)] == [
        "at 1 KiB in place (a gap of 0.2 us) most "
    ]
    assert about("Spike", found) == []
    side = summaries_of(run)[0].in_place
    assert side is not None
    assert math.isnan(side.per_iteration.p50)


def one_way_row(first_ns: int, others_ns: int, sent_ns: int) -> Row:
    """Rank 1 receives from rank 0, whose sends are over in so long each, back to back."""
    made = invented.row(world=2, iterations=20)
    made.receives = np.array([False, True])
    made.payload_bytes_sent = np.array([20 * 1024, 0])
    took = np.array([[sent_ns] * 20, [first_ns] + 19 * [others_ns]], dtype=np.int64)
    made.samples["iteration"], made.samples["send"] = took, took.copy()
    made.samples["start"] = 10**12 + np.cumsum(took, axis=1) - took
    return made


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ((500_000, 7_000, 5_000), "Bursts"),  # all 20 were sent when the first had come
        ((500_000, 7_000, 60_000), "Spike"),  # 8 of 20 were
        ((60_000, 10_000, 2_000), ""),  # sent in 40 us, and the mean is no more than 1.5 x
        ((90_000, 7_000, 2_000), "waited"),
    ],
)
def test_what_had_been_sent_before_its_receiver_began_tells_nothing_of_a_message(
    times: tuple[int, int, int], told: str
) -> None:
    found = judged([one_way_row(*times)], invented.run_header(world=2))
    bursts, spikes = about("Bursts", found), about("Spike", found)
    assert (bool(bursts), bool(spikes)) == (told == "Bursts", told in ("Spike", "waited"))
    assert all(("without it time" in text) is (told == "Spike") for text in spikes)
    waited = "the others had been sent before they began, so their time alone is not known"
    assert all((waited in text) is (told == "waited") for text in spikes)


def test_ranks_whose_clocks_were_not_compared_say_nothing_of_who_was_first() -> None:
    ranks = [invented.rank_info(rank, clock=rank) for rank in range(2)]
    header = invented.run_header(world=2, ranks=ranks)
    row = one_way_row(500_000, 7_000, 5_000)
    assert about("Bursts", judged([row], header)) == []
    row.clock = invented.row_clock()
    row.samples["start"][1] += 5 * 10**14
    assert len(about("Bursts", judged([row], header))) == 1


@pytest.mark.parametrize(("first", "told"), [(10_000_000, False), (200, True)])
def test_gaps_of_a_row_that_came_in_bursts_make_no_step(first: int, told: bool) -> None:
    row = invented.row(iterations=200)
    times = np.array([first] + 99 * [200] + 100 * [800], dtype=np.int64)
    row.samples["iteration"] = np.tile(times, (4, 1))
    found = judged([row])
    assert (bool(about("Step", found)), bool(about("Bursts", found))) == (told, not told)


def test_bursts_of_a_run_by_the_clock_are_not_met_by_what_it_excludes() -> None:
    row = one_way_row(500_000, 200, 100)
    told = [
        about("Bursts", judged([row], invented.run_header(world=2, mode=mode)))[0]
        for mode in ("back-to-back", "open loop")
    ]
    assert ["-z 1" in text for text in told] == [True, False]


def test_what_was_timed_in_place_is_in_every_sum() -> None:
    row, in_place = invented.row(), invented.row()
    in_place.late = np.ones_like(in_place.late)
    alone = judged([row])
    row.sides[SideKey(place=IN_PLACE)] = in_place
    assert about("Late starts", alone) == []
    assert about("Late starts", judged([row]))[0].startswith("4 of 8 at an agreed instant")
    by_tcp = [about("Network bytes", each)[0] for each in (alone, judged([row]))]
    assert by_tcp[0] == by_tcp[1]
    bytes_of = [
        next(in_words(invented.run_header(), summaries_of(run_of([each])))).text
        for each in (invented.row(), row)
    ]
    received = int(row.payload_bytes_received.sum())
    assert bytes_of == [
        f"right: all {format_size(total)} that were timed are checked"
        for total in (received, 2 * received)
    ]


def test_the_fastest_row_may_be_one_in_place() -> None:
    rows = [invented.row(0), invented.row(1)]
    rows[0].sides[SideKey(place=IN_PLACE)] = quick = invented.row(0)
    quick.samples["iteration"] = quick.samples["iteration"] // 100
    _, speed = in_words(invented.run_header(), summaries_of(run_of(rows)))
    assert ", most at 1 KiB (" in speed.text


def test_a_row_in_which_nothing_travels_claims_nothing() -> None:
    none = np.zeros(4, np.int64)
    row = invented.row(
        receives=none > 0, payload_bytes_sent=none, payload_bytes_received=none, checked=none > 0
    )
    found = judged([row, invented.row(1)])
    assert about("WARNING", found) == []
    assert about("Network bytes", judged([row])) == []


def test_rows_of_one_size_have_names_that_tell_them_apart() -> None:
    rows = [invented.row(index, size_bytes=4096) for index in range(3)]
    rows[1].redop = rows[2].redop = "max"
    rows[2].root = 3
    names = row_names(summaries_of(run_of([*rows, invented.row(3, size_bytes=8)])))
    assert names == ["4 KiB none root -1", "4 KiB max root -1", "4 KiB max root 3", "8 B"]
    assert row_names(summaries_of(run_of([invented.row(), invented.row()]))) == [
        "1 KiB (row 1)", "1 KiB (row 2)"
    ]  # fmt: skip


@pytest.mark.parametrize(("late", "told"), [(900, True), (200, False)])
def test_ranks_that_take_turns_in_being_late_are_told_from_slow_ones(late: int, told: bool) -> None:
    row = invented.row(0, world=2)
    row.samples["iteration"] = np.array(10 * [[100, late], [late, 100]]).T[:, :20] * 100
    found = about("Swings", judged([row], invented.run_header(world=2)))
    assert bool(found) is told
    assert all("at 1 KiB (1.8 x) `p50` is above `time`" in text for text in found)


def test_the_slowest_rank_is_named_with_its_place() -> None:
    assert about("Slowest rank", judged([invented.row(index) for index in range(3)])) == [
        "rank 3 on host1 (device 1, NIC eth2) in 3 of 3 rows, "
        "at most 1.13 x the median rank (at 1 KiB)"
    ]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ([{}, {}, {}], "1 KiB (row 2)"),
        ([{}, {"type_name": "half"}, {"type_name": "half"}], "1 KiB half (row 2)"),
        ([{"redop": "sum"}, {"redop": "max"}, {"redop": "min"}], "1 KiB max"),
        ([{"root": 0}, {"root": 1}, {"root": 2}], "1 KiB root 1"),
        ([{}, {"size_bytes": 2048}, {}], "2 KiB"),
    ],
)
def test_the_slowest_rank_is_said_at_a_row_by_what_tells_it_from_others_of_its_size(
    changes: list[dict[str, Any]], name: str
) -> None:
    rows = [
        dataclasses.replace(invented.row(index), **{"size_bytes": 1024, **change})
        for index, change in enumerate(changes)
    ]
    rows[1].samples["iteration"][3] *= 2
    (text,) = about("Slowest rank", judged(rows))
    assert text.endswith(f" x the median rank (at {name})")


def test_the_tools_own_part_is_that_of_all_chunks_and_one_stamp_of_an_iteration() -> None:
    """An iteration of 1059.5 ns is four round trips, in each of which a rank has one chunk."""
    facts = {"own_chunk_ns": "100", "own_clock_ns": "27.1"}
    header = invented.run_header(time_divisor=2, facts=facts)
    assert about("Below resolution", judged([invented.row(0, world=2, agg=4)], header)) == [
        "the tool's own loop and clock have more than a tenth of the time at 1 KiB (12 %)"
    ]


def test_network_bytes_below_the_payload_are_a_warning_where_all_of_them_can_be_seen() -> None:
    row = invented.row(0)
    assert about("Network bytes", judged([row])) == [
        "100.5 % of the payload sent, 100.5 % received (TCP_INFO), 0 retransmits"
    ]
    row.tcp_retransmits[1] = -1
    row.net_received[:] = 20 * 1024
    row.net_received[2] -= 1
    (text,) = about("Network bytes", judged([row]))
    assert text == "100.5 % of the payload sent, 99.99 % received (TCP_INFO)"
    assert "short cut" in warnings([row])[0]
    elsewhere = invented.run_header(plugin_name="Libfabric")
    assert about("Network bytes", judged([row], elsewhere)) == [
        f"{text}; Libfabric moves the rest where no socket of it is seen"
    ]
    assert not any("short cut" in text for text in warnings([row], elsewhere))
    row.net_sent[0] = -1
    assert about("Network bytes", judged([row]))[0].startswith("n/a")


def test_late_starts_are_told_only_if_there_are_any() -> None:
    row = invented.row(0)
    assert about("Late starts", judged([row])) == []
    row.late[2] = True
    assert about("Late starts", judged([row])) == [
        "1 of 4 at an agreed instant: a rank got its CPU later; "
        "rank 2 on host1 (device 0, NIC eth1) missed 1"
    ]


def test_how_the_run_ended_and_what_it_lacks_are_findings() -> None:
    found = judged([], fault=Fault("stall", 6, {}), missing=["a row", "a rank"])
    ended = [(each.severity, each.title, each.text) for each in found[-3:]]
    assert ended == [
        (Severity.BAD, "Ended early", "stall (exit code 6)"),
        (Severity.DOUBTFUL, "Missing", "a row"),
        (Severity.DOUBTFUL, "Missing", "a rank"),
    ]
