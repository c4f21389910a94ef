"""docs/performance.md says what the result files in docs/evidence say, and nothing else."""

from __future__ import annotations

import json
import re

import performance_page
from performance_page import BLOCK, EVIDENCE, LIMITS, PAGE, rendered

from tcpx_mpi.records import read_run
from tcpx_mpi.report import report_lines, summarise_row

LONG_ENOUGH_NS = 5_000_000
#: A number with a unit of measurement, or a ratio with its range.
FIGURE = re.compile(r"\d[\d.]* ?(GB/s|us|ns|ms|s|MB|%)\b|\d\.\d+ \(\d\.\d+ - \d\.\d+\)")


def test_every_figure_is_made_from_the_evidence() -> None:
    assert rendered(PAGE.read_text()) == PAGE.read_text()


def test_no_figure_is_typed_by_hand() -> None:
    prose = re.sub(r"```.*?```", "", BLOCK.sub("", PAGE.read_text()), flags=re.DOTALL)
    assert FIGURE.findall(prose) == []


def test_a_changed_figure_is_seen() -> None:
    page = PAGE.read_text()
    match = BLOCK.search(page)
    assert match is not None
    changed = page[: match.end(1)] + match[0][len(match[1]) :].replace("1", "2", 1)
    assert rendered(changed) != changed


def test_every_run_was_checked_and_right() -> None:
    for path in sorted(EVIDENCE.glob("*.h5")):
        run = read_run(str(path))
        assert run.complete, path.name
        for row in run.rows:
            summary = summarise_row(run.header, row)
            assert summary.checked, path.name
            assert summary.wrong == 0, path.name
            assert all(ratio.wrong == 0 for ratio in summary.against.values()), path.name
            for name, ratio in summary.against.items():
                # Shorter blocks say nothing: a thread that wakes at the end of each counts more.
                elapsed_ns = row.against[name].samples["iteration"].max(axis=0).sum()
                if elapsed_ns > LONG_ENOUGH_NS:
                    assert ratio.idle_share < 0.01, (path.name, name)


def test_the_runs_with_a_limit_are_long_enough_to_tell_an_idle_side() -> None:
    for name in LIMITS:
        for path in EVIDENCE.glob(f"{name}.*.h5"):
            for row in read_run(str(path)).rows:
                for peer in row.against.values():
                    assert peer.samples["iteration"].max(axis=0).sum() > LONG_ENOUGH_NS, path.name


def test_every_file_is_of_use_on_a_page() -> None:
    pages = PAGE.read_text() + (EVIDENCE / "README.md").read_text()
    for path in sorted(EVIDENCE.glob("*.h5")):
        assert path.name in pages or path.name.split(".")[0] in pages
    for name in json.loads((EVIDENCE / "measured.json").read_text()):
        assert name in pages


def test_raw_is_no_straw_man() -> None:
    measured = json.loads((EVIDENCE / "measured.json").read_text())
    ours, theirs = (sorted(measured[name]["values"]) for name in ("raw-in-cache", "iperf3"))
    assert ours[len(ours) // 2] >= 0.9 * theirs[len(theirs) // 2]


def test_the_limits_are_of_runs_that_exist() -> None:
    assert all(list(EVIDENCE.glob(f"{name}.*.h5")) for name in LIMITS)
    assert performance_page.TABLES.keys() >= {"ratios", "measured"}


def test_what_readme_shows_is_what_a_report_prints() -> None:
    readme = (EVIDENCE.parents[1] / "README.md").read_text()
    (command, shown) = re.findall(r"```\n\$ tcpx-mpi report (\S+)\n(.*?)\n```", readme, re.DOTALL)[
        0
    ]
    lines = report_lines(read_run(str(EVIDENCE / command.removeprefix("docs/evidence/"))))
    # The name of the file is as it was given.
    printed = [line.rstrip() for line in lines if not line.startswith("# Written")]
    assert [line for line in shown.splitlines() if not line.startswith("# Written")] == printed
