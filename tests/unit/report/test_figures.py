"""The figures of a row, wherever they are shown: each is that of the summary, in its unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import invented
import pytest
from launch_files import invented_launches

from tcpx_mpi.exchange import tidy
from tcpx_mpi.records import Plan, RunHeader
from tcpx_mpi.report import row_document, row_line, summarise_row, title_lines, to_json
from tcpx_mpi.report.launches import rows_over_launches
from tcpx_mpi.stats import Distribution, RowSummary

NAMES = [field.name for field in dataclasses.fields(Distribution)]
#: No two figures are alike.
SPREAD = Distribution(**{name: 1000.0 * number for number, name in enumerate(NAMES, start=2)})
SPREAD_US = {
    f"{'avg' if name == 'mean' else name}_us": float(number)
    for number, name in enumerate(NAMES, start=2)
    if name not in ("count", "cv")
} | {"cv_pct": 100 * SPREAD.cv}
FIGURES = {
    "time_ns": 2e6, "t_max_ns": 3e6, "algbw": 4.0, "busbw": 5.0, "net_bw": 6.0, "mmsg_per_s": 7.0,
    "cpu_s_per_gb": 8.0, "payload_sent": 9, "payload_received": 10, "payload_received_checked": 11,
    "net_sent": 12, "net_received": 13, "tcp_retransmits": 14, "late_starts": 15,
    "overhead_ns": 17 * 10**9,
}  # fmt: skip
HEADER = invented.run_header(
    plan=Plan(sizes=(1024,), report_gbits=True, per_iter_timing=True, agg_iters=2)
)
ROW = invented.row(0)


def of(found: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: found[name] for name in names}


@pytest.fixture
def summary() -> RowSummary:
    return dataclasses.replace(summarise_row(HEADER, ROW), per_iteration=SPREAD, **FIGURES)


def test_every_figure_of_the_document_is_that_of_the_summary(summary: RowSummary) -> None:
    document = row_document(HEADER, ROW, summary)
    assert of(document["out_of_place_per_iter"], SPREAD_US) == SPREAD_US
    side = {"time": 2e3, "alg_bw": 4.0, "bus_bw": 5.0, "nwrong": 0}
    assert document["out_of_place"] == side
    expected = {
        "t_max_us": 3e3, "mmsg_per_s": 7.0, "net_bw": 6.0, "cpu_s_per_GB": 8.0,
        "payload_bytes_sent": 9, "payload_bytes_received": 10, "net_bytes_sent": 12,
        "net_bytes_received": 13, "tcp_retransmits": 14, "late_starts": 15,
        "prepare_and_check_s": 17.0,
        "time_us_by_rank": [time / 1e3 for time in summary.time_ns_by_rank],
        "p50_us_by_rank": [
            [each.estimate / 1e3, each.low / 1e3, each.high / 1e3]
            for each in summary.median_ns_by_rank
        ],
    }  # fmt: skip
    assert of(document, expected) == expected


def test_every_figure_of_a_table_is_that_of_the_summary(summary: RowSummary) -> None:
    made = {name: make(ROW, summary) for name, (_, make) in tidy._FIGURES.items()}
    expected = {
        **SPREAD_US, "time_us": 2e3, "t_max_us": 3e3, "algbw": 4.0, "busbw": 5.0, "net_bw": 6.0,
        "mmsg_per_s": 7.0, "cpu_s_per_GB": 8.0, "payload_bytes_sent": 9,
        "payload_bytes_received": 10, "payload_bytes_checked": 11, "net_bytes_sent": 12,
        "net_bytes_received": 13, "tcp_retransmits": 14, "late_starts": 15,
        "prepare_and_check_s": 17.0,
    }  # fmt: skip
    assert of(made, expected) == expected


def test_launches_of_the_document_are_in_microseconds_and_percent() -> None:
    factors = [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.1, 3.8, 4.6, 5.5]
    run = invented_launches(factors, mode="synchronised")
    (over, *_), (result, *_) = rows_over_launches(run), to_json(run)["results"]
    assert result["launches"] == {
        "count": 10,
        "times_us": [time / 1e3 for time in over.times_ns],
        "median_us": over.median_ns.estimate / 1e3,
        "low_us": over.median_ns.low / 1e3,
        "high_us": over.median_ns.high / 1e3,
        "within_pct": 100 * over.variation.within,
        "between_pct": 100 * over.variation.between,
    }


def columns(header: RunHeader, summary: RowSummary) -> dict[str, list[float | str]]:
    """What stands below each title of the text table, from left to right."""
    titles = next(line for line in title_lines(header) if "#wrong" in line)[1:].split()
    found: dict[str, list[float | str]] = {}
    for title, text in zip(titles, row_line(header, summary).split(), strict=True):
        try:
            found.setdefault(title, []).append(float(text))
        except ValueError:
            found.setdefault(title, []).append(text)
    return found


def test_every_figure_of_a_line_is_that_of_the_summary(summary: RowSummary) -> None:
    spread = {name.removesuffix("_us"): [us] for name, us in SPREAD_US.items()}
    shown = ("p50", "p50_low", "p50_high", "p95", "p99")
    per_iteration = {f"i_{name}": spread[name] for name in ("min", "max", "avg", "stdev")}
    expected = {
        "time": [2e3, "N/A"], "t_max": [3e3], "algbw": [4.0, "N/A", 32.0],
        "busbw": [5.0, "N/A", 40.0], "net_bw": [6.0], "cpu_s_per_GB": [8.0], "Mmsg/s": [7.0],
        **{name: spread[name] for name in shown}, **per_iteration, "i_cv%": spread["cv_pct"],
    }  # fmt: skip
    assert of(columns(HEADER, summary), expected) == expected
