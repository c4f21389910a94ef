"""The text of the table: what scripts written for nccl-tests read, and our columns beside it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import invented
import numpy as np
import pytest

from tcpx_mpi.records import Plan, Row, RunHeader
from tcpx_mpi.report import (
    header_lines,
    rank_line,
    row_line,
    setup_lines,
    summarise_row,
    title_lines,
)
from tcpx_mpi.report.brief import brief_lines

#: The heading and a row of nccl-tests 2.19.6 (figures invented).
NCCL_TESTS_TITLES = (
    "#       size         count      type   redop    root"
    "     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
    "#        (B)    (elements)                          "
    "     (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         ",
)
NCCL_TESTS_ROW = (
    "    67108864      16777216     float     sum      -1"
    "  1234.56   54.36  101.92       0  1234.56   54.36  101.92    N/A"
)
NCCL_TESTS_RANK = re.compile(
    r"#  Rank +(\d+) Group +(\d+) Pid +(\d+) on +(\S+) device +(\d+) "
    r"\[([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\] (.+)"
)
NCCL_TESTS_CONFIG = re.compile(
    r"# nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: (\d+)\((\w+)\) "
    r"warmup iters: (\d+) iters: (\d+) agg iters: (\d+) validation: (\d+) graph: (\d+) "
    r"unalign: (\d+)"
)


def line_of(row: Row, **plan: Any) -> str:
    header = header_with(**plan)
    return row_line(header, summarise_row(header, row))


def header_with(**plan: Any) -> RunHeader:
    return invented.run_header(plan=dataclasses.replace(Plan(sizes=(1024, 2048, 4096)), **plan))


def timed(total_ns: int, **changes: Any) -> Row:
    """A row of one rank in which every iteration takes `total_ns`."""
    row = invented.row(0, world=1, **changes)
    row.samples["iteration"][:] = total_ns
    return row


def test_a_row_begins_with_the_13_fields_of_nccl_tests() -> None:
    fields = line_of(invented.row(0)).split()
    size, count, kind, redop, root, time, algbw, busbw, wrong = fields[:9]
    assert (int(size), int(count), kind, redop, int(root)) == (1024, 1024, "uint8", "none", -1)
    assert (float(time), float(algbw), float(busbw), int(wrong)) == (1.16, 0.88, 0.88, 0)
    assert fields[9:13] == ["N/A"] * 4
    # The median of 1300 .. 1319 is between the 6th and the 15th of them.
    assert fields[13:20] == ["1.31", "@3", "1.31", "1.31", "1.31", "n/a", "n/a"]
    # (20 x 1024 + 100) bytes a rank in 20 iterations of 1159.5 ns; 15 us of CPU for 20 KiB.
    assert fields[20:] == [f"{20_580 / 23_190:.2f}", f"{15_000 / 20_480:.4g}"]


def test_the_standard_columns_are_as_wide_as_those_of_nccl_tests() -> None:
    row = timed(1_234_560, size_bytes=67108864, count=16777216, type_name="float", redop="sum")
    header = invented.run_header(busbw_factor=1.875)
    line = row_line(header, summarise_row(header, row))
    # 52 characters before the sides, 33 a side.
    assert line[:85] == NCCL_TESTS_ROW[:85]
    assert line[85:118] == "      N/A     N/A     N/A     N/A"


def test_the_titles_over_the_standard_columns_are_those_of_nccl_tests() -> None:
    lines = title_lines(invented.run_header())
    assert all(line.startswith("#") for line in lines)
    for line, expected in zip(lines[-2:], NCCL_TESTS_TITLES, strict=True):
        assert line.startswith(expected.rstrip())
    assert lines[-3].index("out-of-place") == 63
    assert lines[-3].index("in-place", 80) == 98


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"agg_iters": 2},
        {"report_gbits": True},
        {"per_iter_timing": True},
        {"report_cputime": True},
        {"report_timestamps": True},
        {
            "agg_iters": 2,
            "report_gbits": True,
            "per_iter_timing": True,
            "report_cputime": True,
            "report_timestamps": True,
        },
    ],
)
def test_every_column_has_a_title_that_ends_where_its_field_ends(plan: dict[str, Any]) -> None:
    titles = title_lines(header_with(**plan))[-2]
    line = line_of(invented.row(0), **plan)
    title_ends = [match.end() for match in re.finditer(r"[^\s#]\S*|#wrong", titles)]
    assert title_ends == [match.end() for match in re.finditer(r"\S+", line)]


def test_optional_columns_stand_to_the_right_in_order() -> None:
    header = header_with(
        agg_iters=2,
        report_gbits=True,
        per_iter_timing=True,
        report_cputime=True,
        report_timestamps=True,
    )
    titles = title_lines(header)[-2].split()[14:]
    assert titles == [
        "t_max",
        "@rank",
        "p50",
        "p50_low",
        "p50_high",
        "p95",
        "p99",
        "net_bw",
        "cpu_s_per_GB",
        "Mmsg/s",
        "algbw",
        "busbw",
        "i_min",
        "i_max",
        "i_avg",
        "i_stdev",
        "i_cv%",
        "cputime",
        "timestamp",
    ]
    row = invented.row(0, agg=2)
    fields = dict(
        zip(titles, row_line(header, summarise_row(header, row)).split()[13:], strict=True)
    )
    assert fields["busbw"] == f"{8 * 1024 / 579.75:.2f}"
    assert fields["Mmsg/s"] == f"{1e3 / 579.75:.2f}"
    assert (fields["i_min"], fields["i_max"]) == ("0.65", "0.66")
    assert fields["cputime"] == f"{15.0 / 40:.2f}"
    assert fields["timestamp"] == invented.FINISHED


def test_enough_iterations_have_percentiles() -> None:
    row = invented.row(0, iterations=300)
    fields = line_of(row).split()
    assert (fields[15], *fields[18:20]) == ("1.45", "1.58", "1.60")


def test_skipped_iterations_are_not_in_the_percentiles() -> None:
    row = invented.row(0, iterations=300)
    fields = line_of(row, per_iter_skip=100).split()
    assert (fields[15], *fields[18:20]) == ("1.50", "1.59", "n/a")


@pytest.mark.parametrize(
    "changes",
    [
        {"checked": np.zeros(4, dtype=bool), "wrong": np.full(4, -1, dtype=np.int64)},
        {"checked": np.array([True, True, True, False])},
        {"size_bytes": 0, "count": 0},
    ],
)
def test_wrong_is_not_available_where_nothing_or_not_all_was_checked(
    changes: dict[str, Any],
) -> None:
    assert line_of(invented.row(0, **changes)).split()[8] == "N/A"


def test_wrong_bytes_are_counted_in_the_row() -> None:
    row = invented.row(0, wrong=np.array([0, 1_000_000_000_000, 2, 0], dtype=np.int64))
    assert line_of(row).split()[8] == "1000000000002"


def test_an_unknown_time_is_not_available_in_every_figure() -> None:
    row = invented.row(0, receives=np.zeros(4, dtype=bool))
    fields = line_of(row).split()
    assert fields[5:9] == ["N/A"] * 4
    assert fields[13:19] == ["n/a"] * 6


@pytest.mark.parametrize(("average", "time"), [(0, "1.01"), (1, "1.16"), (2, "1.01"), (3, "1.31")])
def test_the_average_option_decides_the_time_column(average: int, time: str) -> None:
    assert line_of(invented.row(0), average=average).split()[5] == time


def test_every_line_above_the_rows_is_a_comment_of_one_line() -> None:
    lines = [
        *header_lines(invented.run_header()),
        *setup_lines(invented.setup_times()),
        *title_lines(invented.run_header()),
    ]
    assert all(line.startswith("#") and "\n" not in line for line in lines)


def test_the_configuration_line_is_that_of_nccl_tests() -> None:
    plan = Plan(sizes=(1024, 2048, 4096), iters=30, warmup_iters=3, agg_iters=4, check=0)
    lines = header_lines(invented.run_header(plan=plan))
    found = [match for line in lines if (match := NCCL_TESTS_CONFIG.fullmatch(line))]
    assert [match.groups() for match in found] == [
        ("1", "1", "1024", "4096", "2", "factor", "3", "30", "4", "0", "0", "0")
    ]


@pytest.mark.parametrize(
    ("sizes", "step"),
    [
        ((33554432,), "1048576(bytes)"),
        ((0, 8, 16), "8(bytes)"),
        ((1, 2), "2(factor)"),
        ((3, 9, 27), "3(factor)"),
        ((1, 2, 5), "0(list)"),
        ((8, 4), "0(list)"),
        ((4, 4), "0(list)"),
    ],
)
def test_the_step_is_read_off_the_sizes(sizes: tuple[int, ...], step: str) -> None:
    assert f" step: {step} " in header_lines(invented.run_header(plan=Plan(sizes=sizes)))[2]


def test_the_header_says_that_emulated_memory_is_no_gpu() -> None:
    header = invented.run_header(memory="emulated", unpack="kernel")
    assert header_lines(header)[4].endswith(
        " memory emulated, unpack kernel by the CPU in host memory"
    )


def test_the_header_says_plugin_mode_slots_and_changed_settings() -> None:
    text = "\n".join(header_lines(invented.run_header()))
    assert (
        "# Plugin: /opt/libnccl-net-softtcpx.so sha256 0123456789ab ABI v7 name softtcpx "
        "memory host\n"
    ) in text
    assert "# Timing: back-to-back: " in text
    assert "# Engine: chunk 512 KiB, 2 channels, window send 12 receive 16\n" in text
    assert (
        "# Buffers: 64 slots for 1 KiB, 32 for 2 KiB, 16 for 4 KiB; last-level cache 32 MiB\n"
    ) in text
    assert "# Setting: seed = 7 (command line --seed)\n" in text
    assert "channels = " not in text
    assert "# Note: a note\n" in text


def test_the_header_says_how_many_receives_a_request_has() -> None:
    header = invented.run_header()
    header.plan = dataclasses.replace(header.plan, multi_recv=4)
    assert " window send 12 receive 16, 4 receives a request\n" in "\n".join(header_lines(header))


def test_the_header_says_what_the_plugin_warned_of_and_what_its_sockets_are() -> None:
    facts = {
        "plugin_warned": "SNDBUF=banana is no whole number\nthe kernel refuses nosuch (rank 1)",
        "congestion_control": "bbr",
        "data_sockets": "1",
    }
    lines = header_lines(invented.run_header(facts=facts))
    assert lines[5:8] == [
        "# Plugin warning: SNDBUF=banana is no whole number",
        "# Plugin warning: the kernel refuses nosuch (rank 1)",
        "# Sockets: congestion control bbr, 1 data socket a connection",
    ]
    lines = header_lines(invented.run_header(facts={"congestion_control": "unknown"}))
    assert not any("Sockets:" in line or "warning" in line for line in lines)


def test_both_headers_say_what_a_setting_turns_off() -> None:
    line = "SOFTTCPX_WORKERS=2 turns derived settings off: channels 2, by the cores 14"
    header = invented.run_header(facts={"turned_off": line}, notes=[])
    assert f"# Settings: {line}" in header_lines(header)
    assert any(line in each for each in brief_lines(header, "", 120))


def test_equal_slots_are_one_span_and_unknown_ones_are_said_so() -> None:
    plan = Plan(sizes=(1024, 2048, 4096), slots=(9, 9, 2))
    lines = header_lines(invented.run_header(plan=plan, llc_bytes=0))
    assert "# Buffers: 9 slots for 1 KiB to 2 KiB, 2 for 4 KiB; last-level cache unknown" in lines
    lines = header_lines(invented.run_header(plan=Plan(sizes=(1024,))))
    assert "# Buffers: slots unknown; last-level cache 32 MiB" in lines


def test_a_rank_line_is_that_of_nccl_tests_with_the_place_after_the_name() -> None:
    match = NCCL_TESTS_RANK.fullmatch(rank_line(invented.rank_info(3)))
    assert match is not None
    assert match.groups()[:6] == ("3", "0", "1003", "host1", "1", "0000:07:00")
    assert match.group(7) == (
        "host memory, NIC eth2 200000 Mb/s, NUMA node 0, CPUs 0-7, progress CPU 1"
    )
    assert rank_line(invented.rank_info(0, pid=123456, host="hostname")).startswith(
        "#  Rank  0 Group  0 Pid 123456 on   hostname device  0 [0000:06:00] host memory"
    )


def test_a_rank_line_shows_the_place_that_was_given() -> None:
    info = invented.rank_info(
        3, gpu=5, gpu_pci="0000:61:00.0", plugin_cpus="8-35,112-139", memory_node=1
    )
    match = NCCL_TESTS_RANK.fullmatch(rank_line(info))
    assert match is not None
    assert match.group(7) == (
        "host memory, NIC eth2 200000 Mb/s, by GPU 5 [0000:61:00.0], NUMA node 0, CPUs 0-7, "
        "progress CPU 1, plugin CPUs 8-35,112-139, memory on node 1"
    )


@pytest.mark.parametrize("pci", ["", "/sys/devices/virtual/net/lo", "unknown"])
def test_a_rank_without_a_pci_address_keeps_the_form_of_one(pci: str) -> None:
    info = invented.rank_info(0, nic_pci=pci, nic_speed_mbps=-1, numa_node=-1, progress_cpu=-1)
    match = NCCL_TESTS_RANK.fullmatch(rank_line(info))
    assert match is not None
    assert match.group(6) == "0000:00:00"
    assert match.group(7) == "host memory, NIC eth1, NUMA node unknown, CPUs 0-7"


def test_the_set_up_table_has_median_and_maximum_with_its_rank() -> None:
    lines = setup_lines(invented.setup_times())
    assert lines[1] == "## set-up"
    assert lines[2].split() == ["##", "phase", "count", "median(us)", "max(us)", "@rank"]
    assert lines[3].split() == ["##", "listen", "4", "2.50", "4.00", "@3"]
    assert lines[4].split() == ["##", "connect", "8", "51.50", "53.00", "@3"]
