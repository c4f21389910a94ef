"""The page of `report --html`: what it says, whom it never trusts, what it leaves out."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import invented
import invented_runs
import numpy as np
import pytest
from judged import summaries_of

from tcpx_mpi import cli
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.records import RunWriter, SideKey
from tcpx_mpi.report import summarise_row
from tcpx_mpi.report.html import plots, tables, write_html
from tcpx_mpi.report.html.ceilings import line_rate
from tcpx_mpi.report.html.page import page_of

Captured = pytest.CaptureFixture[str]
VOID = {"meta", "link", "br", "path", "use", "rect", "line", "polyline"}


class Page(HTMLParser):
    """A page taken apart: its elements, ids and texts. Fails on a tag that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.marked: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag not in VOID:
            self.open.append((tag, found.get("class", "")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        for tag, mark in self.open:
            if tag == "tr" and mark and data.strip():
                self.marked.setdefault(mark, []).append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def sound() -> Page:
    return Page(page_of(invented_runs.sound()))


@pytest.fixture(scope="module")
def troubled() -> Page:
    return Page(page_of(invented_runs.troubled()))


# --- The page as a document -----------------------------------------------------------------------


def test_the_page_asks_for_nothing_outside_of_itself(sound: Page) -> None:
    for tag, attributes in sound.elements:
        assert tag not in ("script", "iframe", "img", "object")
        for name in ("src", "href", "xlink:href", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:,"))
    style = "".join(text for text in sound.texts if "--ground" in text)
    assert style
    assert "@import" not in style
    assert "http" not in style


def test_ids_are_unique_and_every_reference_has_one(sound: Page) -> None:
    ids = [attributes["id"] for _, attributes in sound.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in sound.elements:
        for value in attributes.values():
            for target in re.findall(r"url\(#([^)]+)\)", value):
                assert target in ids
        for name in ("href", "xlink:href"):
            if attributes.get(name, "").startswith("#"):
                assert attributes[name][1:] in ids
        for target in attributes.get("aria-labelledby", "").split():
            assert target in ids


def test_every_plot_has_a_title_and_a_description_and_every_heading_cell_a_scope(
    sound: Page,
) -> None:
    plots_found = [attributes for tag, attributes in sound.elements if tag == "svg"]
    tags = [tag for tag, _ in sound.elements]
    assert len(plots_found) == 7  # bandwidth, time, four sizes, set-up
    assert all(len(attributes["aria-labelledby"].split()) == 2 for attributes in plots_found)
    assert tags.count("desc") == len(plots_found)
    scopes = [attributes.get("scope") for tag, attributes in sound.elements if tag == "th"]
    assert set(scopes) == {"col", "row"}


def test_plots_draw_in_the_colours_of_the_page_only(sound: Page) -> None:
    styles = [a["style"] for tag, a in sound.elements if "style" in a]
    assert any("var(--series-1)" in style for style in styles)
    assert not [style for style in styles if re.search(r"#[0-9a-f]{6}", style)]


def test_the_same_run_gives_the_same_page() -> None:
    assert page_of(invented_runs.sound(rows=3)) == page_of(invented_runs.sound(rows=3))


# --- The verdict ----------------------------------------------------------------------------------


def test_a_sound_run_is_called_so(sound: Page) -> None:
    assert "Sound Complete: 15 rows, and every timed byte was checked and right." in sound.text
    assert not set(sound.marked) & {"bad", "doubtful"}


def test_wrong_and_unchecked_bytes_stand_out_above_all_and_in_their_rows(troubled: Page) -> None:
    assert (
        "Do not use 3 wrong bytes in 1 of 3 rows: no figure here counts until that is explained. "
        "Ended early: stall (exit code 6). Unchecked bytes in 1 of 3 rows"
    ) in troubled.text
    assert "3 WRONG" in troubled.marked["bad"]
    assert "2 KiB" in troubled.marked["bad"]
    assert "not checked" in troubled.marked["doubtful"]
    assert "4 KiB" in troubled.marked["doubtful"]


# --- What is on it --------------------------------------------------------------------------------


def test_the_slowest_rank_is_named_with_its_place(sound: Page) -> None:
    words = "rank 3 on host1 (device 1, NIC eth2), in 15 of 15 rows, at most 1.3 x the median rank"
    assert words in sound.text
    assert sound.marked["slowest"][0] == "rank 3 on host1 (device 1, NIC eth2)"
    assert sound.marked["slowest"][1:3] == ["15", "1.298"]


def test_set_up_times_settings_and_placement_are_there(sound: Page) -> None:
    for words in (
        "listen us, 4 calls", "connect us, 8 calls", "4.00 *", "53.00 *",  # us: listen, connect
        "command line --seed", "1 settings left at their default", "Open MPI", "5.0.6",
        "NCCL_DEBUG", "kernel", "0000:07:00.0", "tcpx-mpi run ring", "a note", "0123456789abcdef",
    ):  # fmt: skip
        assert words in sound.text, words


def test_the_page_of_a_partial_run_says_what_is_missing(troubled: Page) -> None:
    assert "Incomplete: " in troubled.text
    for words in ("1 of 4 rows: 8 KiB", "an answer of rank 3", "the end of the run: stall"):
        assert words in troubled.text


def test_a_run_without_rows_has_a_page() -> None:
    page = Page(page_of(invented_runs.empty()))
    for words in ("Not a single row was measured.", "nothing to draw", "no set-up times", "0 rows"):
        assert words in page.text


def test_names_from_outside_are_text_and_never_markup(troubled: Page) -> None:
    tags = [tag for tag, _ in troubled.elements]
    assert tags.count("b") == 1  # the verdict's
    assert "script" not in tags
    # Everywhere: pattern, host, NIC, CPUs, settings, facts, notes, faults, paths.
    assert troubled.text.count(invented_runs.HOSTILE) > 40


# --- What is left out -----------------------------------------------------------------------------


def test_of_too_many_rows_the_wrong_and_the_slowest_are_shown_and_the_page_says_so() -> None:
    run = invented_runs.long(rows=3000)
    run.rows[2000].size_bytes = run.rows[1].size_bytes  # a second row of that size, far slower
    run.rows[2000].samples["iteration"][:] *= 50
    run.rows[2500].checked[0] = False
    table = tables.rows_table(summaries_of(run), "o.h5")
    shown = [int(line.cells[0]) for line in table.lines]
    assert len(shown) == tables.ROWS_SHOWN
    assert shown == sorted(shown)
    assert {0, 1, 2, 2000, 2500, 2993} <= set(shown)
    assert "1,000 of 3,000 rows are shown" in table.note
    assert "tcpx-mpi report o.h5" in table.note


def test_wrong_rows_that_fill_the_table_leave_no_room_for_others() -> None:
    run = invented_runs.long(rows=1500)
    for row in run.rows[300:]:
        row.wrong[0] = 1
    table = tables.rows_table(summaries_of(run), "o.h5")
    assert len(table.lines) == tables.ROWS_SHOWN
    assert {line.mark for line in table.lines} == {"bad"}


@pytest.mark.parametrize(
    ("changes", "titles", "cells"),
    [
        ([{"type_name": "half"}, {}], ["type"], [("half",), ("float",), ("half",), ("float",)]),
        ([{"redop": "max"}, {}], ["redop"], [("max",), ("sum",), ("max",), ("sum",)]),
        ([{"root": 2}, {}], ["root"], [("2",), ("0",), ("2",), ("0",)]),
        (
            [{"type_name": "half", "redop": "max", "root": 3}, {}],
            ["type", "redop", "root"],
            [("half", "max", "3"), ("float", "sum", "0")] * 2,
        ),
        ([{}, {}], ["cycle"], [("0",), ("0",), ("1",), ("1",)]),
    ],
)
def test_rows_that_are_measured_again_have_columns_of_what_tells_them_apart(
    changes: list[dict[str, Any]], titles: list[str], cells: list[tuple[str, ...]]
) -> None:
    usual = {"type_name": "float", "redop": "sum", "root": 0}
    run = invented_runs.sound(rows=4)
    rows = [
        dataclasses.replace(row, cycle=index // 2, **{**usual, **changes[index % 2]})
        for index, row in enumerate(run.rows)
    ]
    run = dataclasses.replace(run, rows=rows)
    table = tables.rows_table(summaries_of(run), "o.h5")
    end = 1 + len(titles)
    assert [column.title for column in table.columns[: end + 1]] == ["row", *titles, "size"]
    assert [line.cells[1:end] for line in table.lines] == cells
    page = page_of(run)
    for title in titles:
        assert re.search(rf"<th[^>]*>\s*{title}\b", page)


def test_rows_of_one_cycle_have_no_column_of_what_tells_them_apart() -> None:
    run = invented_runs.sound(rows=2)
    rows = [dataclasses.replace(row, root=index) for index, row in enumerate(run.rows)]
    table = tables.rows_table(summaries_of(dataclasses.replace(run, rows=rows)), "o.h5")
    assert [column.title for column in table.columns[:2]] == ["row", "size"]


def test_a_rank_says_at_which_of_several_rows_of_a_size_it_was_worst() -> None:
    run = invented_runs.sound(rows=3)
    rows = [
        dataclasses.replace(row, size_bytes=1024, type_name=name)
        for row, name in zip(run.rows, ("half", "float", "float"), strict=True)
    ]
    rows[0].samples["iteration"][3] *= 3
    rows[2].samples["iteration"][1] *= 4
    run = dataclasses.replace(run, rows=rows)
    table = tables.ranks_table(run.header, summaries_of(run))
    assert table is not None
    worst = {line.cells[0].split()[1]: line.cells[-1] for line in table.lines}
    assert (worst["3"], worst["1"]) == ("1 KiB half", "1 KiB float (row 3)")
    assert "x the median rank (at 1 KiB half)" in Page(page_of(run)).text


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_a_rank_has_its_median_over_rows_and_its_worst_row() -> None:
    run = invented_runs.sound(rows=3)
    for row, time_ns in zip(run.rows, (1000, 4000, 2000), strict=True):
        row.samples["iteration"][:] = 1000
        row.samples["iteration"][3] = time_ns
    table = tables.ranks_table(run.header, summaries_of(run))
    assert table is not None
    (line,) = (line for line in table.lines if line.cells[0].startswith("rank 3"))
    assert line.cells[1:] == ("2", "2.000", "4.000", "2 KiB")


def test_many_ranks_are_cut_to_the_slowest_and_the_page_says_so() -> None:
    run = invented_runs.sound(world=600, rows=1)
    page = Page(page_of(run)).text
    assert "500 of 600 ranks that receive, the slowest first, are shown" in page
    assert "Of 600 ranks that receive the 32 slowest are drawn." in page
    assert "Of 600 ranks the 256 slowest are drawn." in page
    table = tables.ranks_table(run.header, summaries_of(run))
    assert table is not None
    assert table.lines[0].cells[0].startswith("rank 3 ")


# --- Numbers of the plots -------------------------------------------------------------------------


def test_a_line_over_sizes_is_the_median_over_cycles_between_least_and_most() -> None:
    run = invented_runs.sound(rows=2)
    rows = [dataclasses.replace(run.rows[i % 2], index=i, cycle=i // 2) for i in range(6)]
    summaries = [summarise_row(run.header, row) for row in rows]
    values = {0: 5.0, 2: 1.0, 4: 2.0, 1: 7.0, 3: 7.0, 5: float("nan")}
    line = plots.line_over_sizes("x", summaries, lambda s: values[s.index])
    assert line.sizes == [1024, 2048]
    assert (line.low, line.middle, line.high) == ([1.0, 7.0], [2.0, 7.0], [5.0, 7.0])


def test_a_line_rate_is_that_of_the_rank_with_the_least_and_only_between_nodes() -> None:
    header = invented.run_header(4)  # two nodes, each rank with a NIC of 200 Gb/s
    assert line_rate(header).gb_per_s == 25.0
    shared = [dataclasses.replace(info, nic="eth1") for info in header.ranks]
    rate = line_rate(dataclasses.replace(header, ranks=shared))
    assert rate.gb_per_s == 12.5
    assert "shared by 2 ranks" in rate.text
    unknown = [*header.ranks[:3], dataclasses.replace(header.ranks[3], nic_speed_mbps=-1)]
    assert np.isnan(line_rate(dataclasses.replace(header, ranks=unknown)).gb_per_s)
    alone = line_rate(invented.run_header(2))
    assert np.isnan(alone.gb_per_s)
    assert "one node" in alone.text


def test_a_ceiling_far_above_is_told_and_not_drawn() -> None:
    run, short = invented_runs.sound(rows=15), invented_runs.sound(rows=4)  # to 10, and 0.8 GB/s
    near = plots.bandwidth_plot(run.header, summaries_of(run), line_rate(run.header))
    low = plots.bandwidth_plot(run.header, summaries_of(short), line_rate(run.header))
    assert near is not None
    assert low is not None
    assert ">NIC line rate<" in near.svg
    assert ">NIC line rate<" not in low.svg
    assert "25.00 GB/s a rank" in low.caption
    assert "above this picture" in low.caption


def test_bandwidths_of_wrong_and_unchecked_bytes_are_marked_in_the_plot() -> None:
    run = invented_runs.troubled()
    plot = plots.bandwidth_plot(run.header, summaries_of(run), line_rate(run.header))
    assert plot is not None
    assert ">wrong bytes<" in plot.svg
    assert ">unchecked<" in plot.svg
    run = invented_runs.sound(rows=3)
    plot = plots.bandwidth_plot(run.header, summaries_of(run), line_rate(run.header))
    assert plot is not None
    assert ">wrong bytes<" not in plot.svg
    assert ">unchecked<" not in plot.svg


def test_peers_are_drawn_and_compared_row_by_row() -> None:
    run = invented_runs.beside_baselines()
    summaries = summaries_of(run)
    plot = plots.bandwidth_plot(run.header, summaries, line_rate(run.header))
    assert plot is not None
    for label in ("raw", "raw at its best", "mpi"):
        assert f">{label}<" in plot.svg
    assert ">raw_4<" not in plot.svg  # a variant: only the best of them is drawn
    table = tables.ratios_table(summaries)
    assert table is not None
    first = {line.cells[1]: (line.cells[2], line.cells[4]) for line in table.lines[:3]}
    assert first == {"raw": ("0.8", "slower"), "raw_4": ("0.5", "slower"), "mpi": ("2", "faster")}
    assert {line.mark for line in table.lines} == {"", "bad"}
    assert table.lines[-1].cells[-1] == "7"  # wrong bytes of a peer
    page = Page(page_of(run)).text
    assert "Ratio to each peer" in page
    assert "plain TCP sockets" in page


def test_an_interval_with_1_in_it_decides_nothing() -> None:
    run = invented_runs.beside_baselines()
    for row in run.rows:
        raw = row.sides[SideKey("raw")]
        raw.samples["iteration"][:] = row.samples["iteration"]
        raw.samples["iteration"][:, ::2] += 100
        raw.samples["iteration"][:, 1::2] -= 100
    table = tables.ratios_table(summaries_of(run))
    assert table is not None
    assert {line.cells[4] for line in table.lines if line.cells[1] == "raw"} == {"undecided"}


def test_a_run_without_peers_has_no_table_of_them(sound: Page) -> None:
    assert "Ratio to each peer" not in sound.text


# --- The command ----------------------------------------------------------------------------------


def written(path: Path, rows: int = 3) -> str:
    writer = RunWriter(str(path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    for index in range(rows):
        writer.append_row(invented.row(index))
    writer.finish() if rows == 3 else writer.close()
    return writer.path


def test_report_writes_the_page_and_prints_the_table_too(tmp_path: Path, capsys: Captured) -> None:
    file, page = written(tmp_path), tmp_path / "o.html"
    assert cli.main(["report", file]) == 0
    table = capsys.readouterr().out
    assert cli.main(["report", file, "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"{table}# wrote {page}\n"
    assert "Complete: 3 rows" in Page(page.read_text()).text


def test_a_partial_file_has_a_page_and_the_exit_code_of_the_text(
    tmp_path: Path, capsys: Captured
) -> None:
    file, page = written(tmp_path, rows=1), tmp_path / "o.html"
    assert cli.main(["report", file, "--html", str(page)]) == ExitCode.PARTIAL_RESULT
    assert "2 of 3 rows: 2 KiB, 4 KiB" in capsys.readouterr().err
    assert "2 of 3 rows: 2 KiB, 4 KiB" in Page(page.read_text()).text


def refusal(capsys: Captured, *argv: str, code: ExitCode) -> str:
    assert cli.main(argv) == code
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    return errors


def test_a_page_that_exists_is_kept(tmp_path: Path, capsys: Captured) -> None:
    file, page = written(tmp_path), tmp_path / "o.html"
    page.write_text("mine")
    text = refusal(capsys, "report", file, "--html", str(page), code=ExitCode.USAGE)
    assert f"{page} exists" in text
    assert page.read_text() == "mine"


@pytest.mark.parametrize("where", ["no/such/o.html", "."])
def test_a_page_that_cannot_be_made_is_refused(
    tmp_path: Path, capsys: Captured, where: str
) -> None:
    file = written(tmp_path)
    text = refusal(capsys, "report", file, "--html", str(tmp_path / where), code=ExitCode.USAGE)
    assert "--html" in text
    assert [path.name for path in tmp_path.iterdir()] == ["o.h5"]


def test_a_file_that_is_no_run_leaves_no_page(tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "o.html"
    refusal(capsys, "report", "/no/such.h5", "--html", str(page), code=ExitCode.USAGE)
    assert not page.exists()


@pytest.mark.parametrize("library", ["jinja2", "matplotlib"])
def test_a_missing_library_names_the_extra(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    page = str(tmp_path / "o.html")
    text = refusal(capsys, "report", "o.h5", "--html", page, code=ExitCode.PLUGIN_MISSING)
    assert f"needs {library}" in text
    assert "tcpx-mpi[analysis]" in text


LIMITED = """
import resource, sys
from tcpx_mpi import cli
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
sys.exit(cli.main(["report", sys.argv[1], "--html", sys.argv[2]]))
"""


def test_a_disk_that_is_full_leaves_no_half_of_a_page(tmp_path: Path) -> None:
    file, page = written(tmp_path), tmp_path / "o.html"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, file, str(page)],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == ExitCode.OUTPUT_FAILED, done.stderr
    assert "cannot write" in done.stderr
    assert done.stdout == ""
    assert not page.exists()


def test_bytes_that_were_never_utf_8_are_shown_as_escapes(tmp_path: Path) -> None:
    run = invented_runs.sound(rows=1, notes=["odd \udcff"])
    write_html(run, str(tmp_path / "o.html"))
    assert "odd \\udcff" in (tmp_path / "o.html").read_text()


def test_report_without_a_page_loads_neither_jinja2_nor_matplotlib(tmp_path: Path) -> None:
    code = (
        f"import sys; from tcpx_mpi import cli; cli.main(['report', {written(tmp_path)!r}]);"
        "print('LOADED', *({'jinja2', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED"
