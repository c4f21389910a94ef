"""What stands below the table, and the whole report of a file."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import invented
import numpy as np
import pytest

from tcpx_mpi.records import Fault, Row, RunHeader, RunWriter, read_run
from tcpx_mpi.report import (
    footer_lines,
    header_lines,
    passes_minimum_bandwidth,
    report_lines,
    row_line,
    setup_lines,
    summarise_row,
    title_lines,
)


def footer(rows: list[Row], header: RunHeader | None = None, **more: Any) -> list[str]:
    header = header if header is not None else invented.run_header()
    return footer_lines(header, [summarise_row(header, row) for row in rows], **more)


def about(title: str, lines: list[str]) -> list[str]:
    """The texts of the lines with this title."""
    start = f"# {title:<20} : "
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def timed(bandwidth: float) -> Row:
    """A row of one rank with this bandwidth in GB/s."""
    row = invented.row(0, world=1, size_bytes=1_000_000, count=1_000_000)
    row.samples["iteration"][:] = round(1_000_000 / bandwidth)
    return row


def test_the_first_two_lines_are_those_of_nccl_tests() -> None:
    lines = footer([timed(100), timed(50)])
    assert lines[:2] == ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 75 "]
    assert lines[-2:] == ["# Collective test concluded: ring", "#"]
    assert all(line.startswith("#") and "\n" not in line for line in lines)


def test_wrong_bytes_fail_and_are_named() -> None:
    row = invented.row(
        0,
        wrong=np.array([0, 3, 0, 0], dtype=np.int64),
        faults=["rank 1: 3 wrong bytes, the first from rank 0 at offset 17"],
    )
    lines = footer([row])
    assert lines[0] == "# Out of bounds values : 3 FAILED"
    assert about("Wrong bytes", lines) == row.faults


def test_wrong_bytes_in_a_row_that_was_not_all_checked_fail_too() -> None:
    row = invented.row(
        0,
        checked=np.array([True, True, False, True]),
        wrong=np.array([0, 3, -1, 0], dtype=np.int64),
    )
    assert footer([row])[0] == "# Out of bounds values : 3 FAILED"


def test_a_bandwidth_of_unchecked_bytes_says_so_with_the_share_that_was_checked() -> None:
    rows = [invented.row(0), invented.row(1, checked=np.array([True, False, True, True]))]
    lines = footer(rows)
    assert about("WARNING", lines) == [
        "bandwidth of unchecked bytes in 1 of 2 rows (2 KiB): it proves nothing; use -c 1"
    ]
    checked = 100 * (4 + 3 * 2) / (4 + 4 * 2)
    assert about("Checked", lines)[0].startswith(f"{checked:.4g} % of the timed bytes")


def test_an_ablation_claims_no_bandwidth_and_says_that_it_is_one() -> None:
    header = dataclasses.replace(invented.run_header(), memory="emulated", unpack="none")
    row = invented.row(0, checked=np.zeros(4, dtype=np.bool_))
    assert math.isfinite(summarise_row(invented.run_header(), row).net_bw)
    summary = summarise_row(header, row)
    assert math.isnan(summary.busbw)
    assert math.isnan(summary.net_bw)
    lines = footer([row], header)
    text = "bytes are left scattered, so none is checked and no bandwidth is told (--unpack none)"
    assert about("Ablation", lines) == [text]
    assert about("WARNING", lines) == []


def test_a_run_with_faults_on_purpose_says_so() -> None:
    header = invented.run_header(facts={"traps": "SOFTTCPX_TRAP_SLOW_US=200 (rank 1)"})
    (text,) = about("WARNING", footer([invented.row(0)], header))
    assert text == (
        "faults on purpose (SOFTTCPX_TRAP_SLOW_US=200 (rank 1)): these figures are not those of a "
        "sound plugin"
    )
    assert about("WARNING", footer([invented.row(0)])) == []


def test_a_row_of_zero_bytes_is_no_reason_to_warn() -> None:
    rows = [invented.row(0, size_bytes=0, count=0)]
    assert about("WARNING", footer(rows)) == []


def test_the_cost_of_the_check_is_relative_to_the_measured_time() -> None:
    row = invented.row(0, world=1)
    row.samples["iteration"][:] = 500
    # 20 iterations of 500 ns; 3000 ns to prepare and 2000 ns to check.
    assert about("Checked", footer([row])) == [
        "100 % of the timed bytes, at a cost of 0.50 x the measured time"
    ]


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
    lines = footer([row], header=invented.run_header(**changes))
    found = [line for line in lines if line.startswith("# Bursts")]
    assert bool(found) is told
    assert all("at 1 KiB (a gap of 0.2 us) most iterations came with" in line for line in found)
    spread = summarise_row(invented.run_header(**changes), row).per_iteration
    assert math.isnan(spread.p50) is told
    assert math.isnan(spread.p50_high) is told
    assert spread.max > 0


@pytest.mark.parametrize(("late", "told"), [(900, True), (200, False)])
def test_ranks_that_take_turns_in_being_late_are_told_from_slow_ones(late: int, told: bool) -> None:
    row = invented.row(0, world=2)
    row.samples["iteration"] = np.array(10 * [[100, late], [late, 100]]).T[:, :20] * 100
    lines = footer([row], header=invented.run_header(world=2))
    found = [line for line in lines if line.startswith("# Swings")]
    assert bool(found) is told
    assert all("at 1 KiB (1.8 x) `p50` is above `time`" in line for line in found)


def test_almost_all_is_never_printed_as_100_percent() -> None:
    row = invented.row(0, world=2, checked=np.array([True, False]))
    row.payload_bytes_received[:] = [10**12, 1]
    assert about("Checked", footer([row]))[0].startswith("99.99 %")


def test_the_slowest_rank_is_named_with_its_place() -> None:
    rows = [invented.row(index) for index in range(3)]
    assert about("Slowest rank", footer(rows)) == [
        "rank 3 on host1 (device 1, NIC eth2) in 3 of 3 rows, "
        "at most 1.13 x the median rank (at 1 KiB)"
    ]


def test_the_tools_own_part_is_that_of_all_chunks_and_one_stamp_of_an_iteration() -> None:
    """An iteration of 1059.5 ns is four round trips, in each of which a rank has one chunk."""
    facts = {"own_chunk_ns": "100", "own_clock_ns": "27.1"}
    header = invented.run_header(time_divisor=2, facts=facts)
    assert about("Below resolution", footer([invented.row(0, world=2, agg=4)], header)) == [
        "the tool's own loop and clock have more than a tenth of the time at 1 KiB (12 %)"
    ]


def test_network_bytes_below_the_payload_are_a_warning() -> None:
    row = invented.row(0)
    assert about("Network bytes", footer([row])) == [
        "100.5 % of the payload sent, 100.5 % received (TCP_INFO), 0 retransmits"
    ]
    row.net_received[:] = 20 * 1024
    row.net_received[2] -= 1
    lines = footer([row])
    assert about("Network bytes", lines)[0].startswith("100.5 % of the payload sent, 99.99 % rec")
    assert "short cut" in about("WARNING", lines)[0]


def test_a_plugin_whose_sockets_cannot_be_seen_is_not_accused() -> None:
    row = invented.row(0)
    row.net_received[:] = 1
    head = invented.run_header(plugin_name="Libfabric")
    lines = footer([row], head)
    assert about("Network bytes", lines)[0].endswith(
        "Libfabric moves the rest where no socket of it is seen"
    )
    assert not any("short cut" in line for line in about("WARNING", lines))


def test_network_bytes_that_nobody_read_are_not_available() -> None:
    row = invented.row(0)
    row.net_sent[0] = -1
    assert about("Network bytes", footer([row]))[0].startswith("n/a")


def test_unknown_retransmits_are_left_out() -> None:
    row = invented.row(0)
    row.tcp_retransmits[1] = -1
    assert "retransmits" not in about("Network bytes", footer([row]))[0]


def test_more_connections_than_a_nic_is_good_for_are_a_warning_with_what_to_do() -> None:
    facts = {"connections_a_nic": "9", "busiest_nic": "eth1 of hostA"}
    header = invented.run_header(facts=facts)
    (warning,) = about("WARNING", footer([invented.row()], header))
    assert "9 data connections on eth1 of hostA, more than the 8" in warning
    assert "use fewer --channels" in warning
    on_gpus = dataclasses.replace(header, memory="cuda")
    assert "data connections" not in "\n".join(footer_lines(on_gpus, []))
    header.facts["connections_a_nic"] = "8"
    assert about("WARNING", footer([invented.row()], header)) == []


def test_late_starts_are_told_only_if_there_are_any() -> None:
    row = invented.row(0)
    assert about("Late starts", footer([row])) == []
    row.late[2] = True
    assert about("Late starts", footer([row])) == [
        "1 of 4 at an agreed instant: a rank got its CPU later"
    ]


def test_no_rows_have_no_average() -> None:
    assert footer([])[1] == "# Avg bus bandwidth    : n/a "


def test_faults_missing_parts_and_files_have_a_line_each() -> None:
    lines = footer(
        [],
        fault=Fault("stall", 6, {}),
        missing=["a row", "a rank"],
        files=["o.0.h5", "o.json.1"],
    )
    assert about("Ended early", lines) == ["stall (exit code 6)"]
    assert about("Missing", lines) == ["a row", "a rank"]
    assert about("Written", lines) == ["o.0.h5", "o.json.1"]


@pytest.mark.parametrize(
    ("limit", "bandwidth", "passes"),
    [
        (None, 1.0, None),
        ("100", 90.0, True),
        ("100", 89.9, False),
        ("100", math.nan, False),
        ("nan", 100.0, False),
        ("fast", 100.0, False),
        ("", 100.0, False),
    ],
)
def test_the_minimum_bandwidth_passes_at_nine_tenths_and_fails_closed(
    limit: str | None, bandwidth: float, passes: bool | None
) -> None:
    environment = {} if limit is None else {"NCCL_TESTS_MIN_BW": limit}
    header = invented.run_header(environment=environment)
    assert passes_minimum_bandwidth(header, bandwidth) is passes


@pytest.mark.parametrize(("bandwidth", "verdict"), [(100, "100 OK"), (80, "80 FAILED")])
def test_the_minimum_bandwidth_has_its_verdict_in_the_second_line(
    bandwidth: float, verdict: str
) -> None:
    header = invented.run_header(environment={"NCCL_TESTS_MIN_BW": "100"})
    assert footer([timed(bandwidth)], header)[1] == f"# Avg bus bandwidth    : {verdict}"


def test_the_report_of_a_file_is_what_was_printed_live(tmp_path: Path) -> None:
    header, setup = invented.run_header(), invented.setup_times()
    rows = [invented.row(index) for index in range(3)]
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(header)
    writer.write_setup(setup)
    for row in rows:
        writer.append_row(row)
    writer.finish()
    summaries = [summarise_row(header, row) for row in rows]
    live = [*header_lines(header), *setup_lines(setup), *title_lines(header)]
    live += [row_line(header, summary) for summary in summaries]
    live += footer_lines(header, summaries, files=[writer.path])
    assert report_lines(read_run(writer.path)) == live


def test_the_report_of_an_unfinished_file_says_what_is_missing(tmp_path: Path) -> None:
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.append_row(invented.row(0))
    writer.close()
    lines = report_lines(read_run(writer.path))
    assert about("Missing", lines) == [
        "the end of the run: its writer was killed, or is still running",
        "2 of 3 rows: 2 KiB, 4 KiB",
    ]
    assert sum(not line.startswith("#") for line in lines) == 1
