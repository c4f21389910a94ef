"""The pages of several launches: `report --html` of a file of them, `compare --html` of two."""

from __future__ import annotations

import dataclasses
import re

import invented_runs
import numpy as np
import pytest
from launch_files import FACTORS, invented_launches
from test_report_html import Page

from tcpx_mpi.compare import Limits, compare_runs
from tcpx_mpi.records import Fault, Run
from tcpx_mpi.report.html.comparison import comparison_page
from tcpx_mpi.report.html.launches import (
    COLUMNS_SHOWN,
    launches_plot,
    launches_table,
    side_of,
)
from tcpx_mpi.report.html.page import page_of
from tcpx_mpi.report.html.ratio_plot import ROWS_SHOWN, ratio_plot

#: The slowest rank of the invented rows takes 1000 + 300 + 9.5 ns, the mean of four 1159.5.
TYPICAL_US = 1.1595


def page_of_two(first: Run, second: Run) -> Page:
    return Page(comparison_page(compare_runs(first, second, Limits())))


def in_turns(slower: float, launches: int = 10) -> tuple[Run, Run]:
    """Launches that vary by 1 %, B's so much slower, in the order ABBA."""
    random = np.random.default_rng(5)
    ours, theirs = (np.exp(random.normal(0, 0.01, launches)) for _ in range(2))
    places = [[0, 3], [1, 2]]
    numbers = [[4 * (n // 2) + side[n % 2] for n in range(launches)] for side in places]
    return (
        invented_launches(ours.tolist(), numbers[0], "A"),
        invented_launches((slower * theirs).tolist(), numbers[1], "B", facts={"kernel": "6.9"}),
    )


# --- One file of several --------------------------------------------------------------------------


def test_the_page_has_every_launch_and_how_they_vary() -> None:
    page = Page(page_of(invented_launches(FACTORS)))
    assert "Complete: 5 launches of 3 rows, and every timed byte" in page.text
    assert "5 launches size launches median us" in page.text
    for number, factor in enumerate(FACTORS, start=1):
        line = f"{number} 2025-03-01T12:00:{number - 1:02d}.000Z {TYPICAL_US * factor:.2f}"
        assert line in page.text, line
    assert "Farthest: launch 1, 0.333 x the median" in page.text
    assert "#launches" in {attributes.get("href") for _, attributes in page.elements}


def test_the_page_of_one_launch_has_no_part_for_several() -> None:
    page = Page(page_of(invented_runs.sound(rows=3)))
    assert "Time of each launch" not in page.text
    assert "#launches" not in {attributes.get("href") for _, attributes in page.elements}


def test_a_row_that_one_launch_lacks_is_no_dot_and_is_said() -> None:
    run = invented_launches(FACTORS)
    run.launches[1].rows.pop(0)
    assert launches_table([side_of(run)]).lines[2].cells[2] == "n/a"
    plot = launches_plot([side_of(run)])
    assert plot is not None
    assert "rows are drawn" not in plot.caption  # the others of that row are
    page = Page(page_of(run))
    assert "Doubtful Incomplete: 1 thing is missing" in page.text
    assert "launch 3: 1 of 3 rows: 1 KiB" in page.text
    run = invented_launches(FACTORS)
    run.rows.pop(0)  # of the first, in whose place the table has another's
    page = Page(page_of(run))
    assert "Doubtful Incomplete: 1 thing is missing" in page.text
    assert "1 of 3 rows: 1 KiB" in page.text


def test_a_later_launch_that_ended_early_makes_the_run_bad() -> None:
    run = invented_launches(FACTORS)
    run.launches[3].fault = Fault("stall", 6, {0: "stalled"})
    assert "Do not use Ended early: stall (exit code 6)." in Page(page_of(run)).text


def test_wrong_bytes_of_one_launch_make_the_run_bad() -> None:
    run = invented_launches(FACTORS)
    run.launches[3].rows[1].wrong[0] = 4
    page = Page(page_of(run))
    assert "Do not use 4 wrong bytes in 1 of 3 rows" in page.text


def many_rows(launches: int = 6, rows: int = 40) -> Run:
    runs = [invented_runs.sound(rows=rows) for _ in range(launches)]
    for number, run in enumerate(runs):
        run.header = dataclasses.replace(run.header, start_time=f"2025-03-01T12:{number:02d}:00Z")
    runs[0].launches, runs[0].launches_planned = runs[1:], launches
    return runs[0]


def test_of_many_rows_some_have_a_column_and_the_table_says_so() -> None:
    table = launches_table([side_of(many_rows(rows=20))])
    assert len(table.columns) == 2 + COLUMNS_SHOWN
    assert table.note == ("12 of 20 rows, the smallest, are shown; all are in the result file.")


def test_of_very_many_dots_some_rows_are_drawn_and_the_caption_says_so() -> None:
    side = side_of(many_rows(launches=3, rows=3))
    crowded = dataclasses.replace(
        side, times_ns={str(n): np.full(3, 10.0 + n) for n in range(1000)}
    )
    plot = launches_plot([crowded])
    assert plot is not None
    assert "500 of 1,000 rows are drawn" in plot.caption
    assert "All launches take the same time" in plot.caption


# --- Two files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slower", "word", "mark"),
    [(1.0, "Same", "same"), (1.1, "Worse", "worse"), (0.9, "Better", "better")],
)
def test_a_comparison_shows_verdict_intervals_launches_and_what_differs(
    slower: float, word: str, mark: str
) -> None:
    first, second = in_turns(slower)
    comparison = compare_runs(first, second, Limits())
    page = Page(comparison_page(comparison))
    assert page.text.count(f" {word} B is ") == 1
    for row in comparison.rows:
        ratio = row.shift.ratio
        figures = f"10+10 {ratio.estimate:.4f} {ratio.low:.4f} {ratio.high:.4f}"
        assert f"{figures} {row.shift.p_value:.4f} {mark}" in page.text
    assert "fact kernel 6.1 6.9" in page.text
    begun = re.findall(r"([AB] \d+) 2025-03-01T12:00:(\d\d)\.000Z [\d.]+", page.text)
    assert [int(second) for _, second in begun] == list(range(20))
    assert [name for name, _ in begun[:6]] == ["A 1", "B 1", "B 2", "A 2", "A 3", "B 3"]
    titles = [tag for tag, _ in page.elements].count("svg")
    assert titles == 2
    assert "Ratio of each row" in page.text
    assert "launches of A" in page.text
    assert "launches of B" in page.text


def test_single_launches_have_a_ratio_without_an_interval() -> None:
    page = page_of_two(invented_launches([1.0], [1]), invented_launches([1.2], [2]))
    assert "Inconclusive nothing was decided in 3 of 3 rows" in page.text
    assert "1+1 0.8336 n/a n/a n/a inconclusive one launch, and no recorded spread" in page.text
    assert "A row without a line had too few launches for an interval." in page.text


def test_what_only_one_file_has_is_in_no_picture_and_inconclusive() -> None:
    first, second = in_turns(1.0)
    for launch in second.all_launches:
        launch.rows.clear()
    page = page_of_two(first, second)
    assert " in one file only" in page.text
    assert page.text.count("only in one file") == 3
    assert "Ratio of each row" not in page.text
    assert "Time of each launch" in page.text


def test_of_many_rows_those_that_differ_most_are_drawn() -> None:
    first, second = many_rows(), many_rows()
    for launch in second.all_launches:
        for row in launch.rows[10:]:
            row.samples["iteration"] *= 2
    plot = ratio_plot(compare_runs(first, second, Limits()))
    assert plot is not None
    assert f"The {ROWS_SHOWN} of 40 rows that differ most are drawn." in plot.caption
    assert "1 MiB" in plot.svg
    assert "512 KiB" not in plot.svg


def test_names_of_files_and_rows_are_text_and_never_markup() -> None:
    first, second = in_turns(1.1)
    first.path = second.path = invented_runs.HOSTILE
    for run in (first, second):
        run.header.plugin_name = run.header.facts["x"] = invented_runs.HOSTILE
        for launch in run.all_launches:
            launch.header.start_time = invented_runs.HOSTILE
            for row in launch.rows:
                row.redop = invented_runs.HOSTILE
    second.header.facts["x"] += "2"
    page = page_of_two(first, second)
    assert "script" not in [tag for tag, _ in page.elements]
    assert page.text.count(invented_runs.HOSTILE) > 20
