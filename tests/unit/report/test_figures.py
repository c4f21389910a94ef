"""The figures of a row, wherever they are shown: each is that of the summary, in its unit."""

from __future__ import annotations

import dataclasses
import math

import invented
import pytest
from launch_files import invented_launches

from tcpx_mpi.records import Plan, RunHeader
from tcpx_mpi.report import fields, row_document, row_line, summarise_row, title_lines, to_json
from tcpx_mpi.report.launches import rows_over_launches
from tcpx_mpi.stats import Distribution, RowSummary
from tcpx_mpi.stats.one_way import OneWay
from tcpx_mpi.stats.open_loop import OpenLoop
from tcpx_mpi.stats.ratios import Ratio

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
    "overhead_ns": 17 * 10**9, "rate_per_s": 5e4, "one_way": OneWay(51e3, 52e3, 53000),
    "open_loop": OpenLoop(5e4, 54.0, SPREAD, 55000),
}  # fmt: skip
HEADER = invented.run_header(
    plan=Plan(sizes=(1024,), report_gbits=True, per_iter_timing=True, agg_iters=2)
)
ROW = invented.row(0)


#: By the names of CSV and JSON.
EXPECTED = {
    **SPREAD_US, "time_us": 2e3, "t_max_us": 3e3, "algbw": 4.0, "busbw": 5.0, "net_bw": 6.0,
    "mmsg_per_s": 7.0, "cpu_s_per_GB": 8.0, "payload_bytes_sent": 9, "payload_bytes_received": 10,
    "payload_bytes_checked": 11, "net_bytes_sent": 12, "net_bytes_received": 13,
    "tcp_retransmits": 14, "late_starts": 15, "prepare_and_check_s": 17.0,
    "one_way_there_us": 51.0, "one_way_back_us": 52.0, "one_way_bound_us": 53.0,
    "offered_mb_per_s": 51.2, "achieved_per_s": 54.0, "open_bound_us": 55.0,
    **{f"open_{name}": SPREAD_US[name] for name in ("p50_us", "p99_us", "p99_9_us")},
}  # fmt: skip


@pytest.fixture
def summary() -> RowSummary:
    return dataclasses.replace(summarise_row(HEADER, ROW), per_iteration=SPREAD, **FIGURES)


def test_every_figure_is_that_of_the_summary_in_csv_and_in_json(summary: RowSummary) -> None:
    made = {field.key: field.data(summary) for field in fields.FIGURES}
    assert {name: made[name] for name in EXPECTED} == EXPECTED
    document = row_document(HEADER, ROW, summary)
    assert document["out_of_place"] == {"time": 2e3, "alg_bw": 4.0, "bus_bw": 5.0, "nwrong": 0}
    told = {**document, **document["out_of_place_per_iter"]}
    both = told.keys() & made.keys()
    assert len(both) > 20
    assert {name: told[name] for name in both} == {name: made[name] for name in both}
    assert document["rate_per_s"] == 5e4
    assert document["time_us_by_rank"] == [time / 1e3 for time in summary.time_ns_by_rank]
    assert document["p50_us_by_rank"] == [
        [each.estimate / 1e3, each.low / 1e3, each.high / 1e3] for each in summary.median_ns_by_rank
    ]


def test_a_run_without_rates_and_directions_has_nothing_for_them() -> None:
    summary = summarise_row(HEADER, ROW)
    by_clock = [field.key for field in fields.JSON_BY_CLOCK]
    assert [name for name in by_clock if name not in EXPECTED] == ["rate_per_s"]
    document = row_document(HEADER, ROW, summary)
    assert {document[name] for name in by_clock} == {None, 0.0}
    assert document["rate_per_s"] == document["offered_mb_per_s"] == 0
    made = {field.key: field.data(summary) for field in fields.FIGURES}
    assert math.isnan(made["one_way_there_us"])
    assert math.isnan(made["open_p50_us"])


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
    found = columns(HEADER, summary)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.853, 0.44, 3.26), "0.85 [0.44 3.26]"),
        ((23.49, 2.82, 54.72), "23.5 [2.8 54.7]"),
        ((225.05, 130.82, 425.94), "225 [131 426]"),
    ],
)
def test_a_ratio_and_its_interval_have_as_many_decimals_as_their_column_has_room_for(
    values: tuple[float, float, float], text: str
) -> None:
    figures = dict(zip(("ratio", "ci_low", "ci_high"), values, strict=True))
    ratio = Ratio("mpi", "time", **figures, blocks=9, ours=1.0, theirs=1.0, wrong=0, idle_share=0.0,
                  net_share=1.0)  # fmt: skip
    field = fields._ratio_in_one("beside mpi", ["mpi"], 0)
    found = field.unit.text(ratio, field.columns, "n/a")
    assert (found, len(found) <= field.columns) == (text, True)
