"""Comparing two files: verdicts with known answers, exit codes, refusals, text, JSON and page."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import invented
import numpy as np
import pytest
from launch_files import invented_launches, joined, launch_file
from variants import variant

from tcpx_mpi import cli
from tcpx_mpi.compare import (
    Limits,
    Verdict,
    compare_runs,
    comparison_document,
    comparison_lines,
    refusals,
    refusals_of_spread,
    taken_in_turns,
)
from tcpx_mpi.compare.rows import launch_times
from tcpx_mpi.compare.verdict import _by_spread, verdict_of
from tcpx_mpi.records import Average, Plan, Run
from tcpx_mpi.records.schema import READABLE_VERSIONS
from tcpx_mpi.stats import Interval
from tcpx_mpi.stats.launches import Shift

RUNS = Path(__file__).resolve().parents[2] / "fixtures" / "runs"
Captured = pytest.CaptureFixture[str]


def spread_out(seed: int, count: int = 10, slower: float = 1.0, by: float = 0.01) -> list[float]:
    """Factors of launches that vary by 1 %."""
    random = np.random.default_rng(seed)
    return [float(each) for each in 1000 * slower * np.exp(random.normal(0, by, count))]


def two(ours: Sequence[float], theirs: Sequence[float], **b: Any) -> tuple[Run, Run]:
    """Launches of A, and after them launches of B."""
    numbers = range(20, 20 + len(theirs))
    return invented_launches(ours, name="A"), invented_launches(theirs, numbers, "B", **b)


def two_files(
    place: Path, ours: Sequence[float], theirs: Sequence[float], **b: Any
) -> tuple[str, str]:
    first = joined(place, len(ours), ours, "A")
    numbers = range(20, 20 + len(theirs))
    return first, joined(place, len(theirs), theirs, "B", numbers, **b)


def verdict(ours: Sequence[float], theirs: Sequence[float]) -> Verdict:
    return compare_runs(*two(ours, theirs), Limits()).verdict


# --- Verdicts -------------------------------------------------------------------------------------


def test_the_same_thing_is_the_same() -> None:
    assert verdict(spread_out(1), spread_out(2)) is Verdict.SAME


@pytest.mark.parametrize(
    ("slower", "expected"), [(1.05, Verdict.WORSE), (1 / 1.05, Verdict.BETTER)]
)
def test_a_difference_of_five_percent_is_found(slower: float, expected: Verdict) -> None:
    assert verdict(spread_out(1), spread_out(2, slower=slower)) is expected


def test_a_certain_difference_within_the_tolerance_is_none() -> None:
    files = two(spread_out(1, by=0.0001), spread_out(2, slower=1.005, by=0.0001))
    found = compare_runs(*files, Limits())
    assert found.verdict is Verdict.SAME
    assert {row.reason for row in found.rows} == {"a difference within --tolerance"}
    assert compare_runs(*files, Limits(0.004)).verdict is Verdict.WORSE


def test_what_varies_widely_is_not_called_the_same() -> None:
    files = two(spread_out(1, by=0.3), spread_out(2, by=0.3))
    found = compare_runs(*files, Limits())
    assert found.verdict is Verdict.INCONCLUSIVE
    assert all("--resolution" in row.reason for row in found.rows)


@pytest.mark.parametrize(("ours", "theirs"), [(3, 3), (2, 5), (1, 9)])
def test_too_few_launches_decide_nothing_however_they_differ(ours: int, theirs: int) -> None:
    assert verdict([1000.0] * ours, [5000.0] * theirs) is Verdict.INCONCLUSIVE


def test_one_slow_row_of_three_is_enough_and_more_rows_need_more_certainty() -> None:
    first, second = two(spread_out(1), spread_out(2))
    for launch in second.all_launches:
        launch.rows[2].samples["iteration"] = launch.rows[2].samples["iteration"] * 11 // 10
    found = compare_runs(first, second, Limits())
    assert [row.verdict for row in found.rows] == [Verdict.SAME, Verdict.SAME, Verdict.WORSE]
    assert found.verdict is Verdict.WORSE
    assert found.confidence == pytest.approx(1 - 0.05 / 3)


def test_a_slow_receiver_is_not_fast_by_the_messages_that_waited_for_it() -> None:
    first, second = two(spread_out(1), spread_out(2))
    for launch in second.all_launches:
        # It wakes late, and finds there what its sender has sent meanwhile.
        for row in launch.rows:
            times = row.samples["iteration"]
            waited = 3 * times.sum(axis=1)
            times[:] = 1
            times[:, 0] = waited
    assert {row.verdict for row in compare_runs(first, second, Limits()).rows} == {Verdict.WORSE}


def test_a_row_that_one_file_lacks_is_no_pass() -> None:
    first, second = two(spread_out(1), spread_out(2))
    for launch in second.all_launches:
        launch.rows.pop()
    found = compare_runs(first, second, Limits())
    assert {row.verdict for row in found.rows} == {Verdict.SAME}
    assert found.verdict is Verdict.INCONCLUSIVE
    assert [str(key) for key in found.unmatched] == ["4 KiB"]
    for launch in second.all_launches:
        launch.rows.clear()
    assert compare_runs(first, second, Limits()).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("words", "expected"),
    [("same better", "better"), ("better inconclusive same", "inconclusive"),
     ("better inconclusive worse", "worse")],
)  # fmt: skip
def test_a_verdict_is_that_of_the_row_that_asks_for_most_care(words: str, expected: str) -> None:
    found = compare_runs(*two(spread_out(1), spread_out(2)), Limits())
    rows = [
        dataclasses.replace(row, verdict=Verdict(word))
        for row, word in zip(found.rows, words.split(), strict=False)
    ]
    assert dataclasses.replace(found, rows=rows).verdict.value == expected


@pytest.mark.parametrize(
    ("low", "ratio", "high", "expected"),
    [
        (0.90, 0.97, 1.04, Verdict.INCONCLUSIVE),
        (0.96, 0.99, 1.06, Verdict.INCONCLUSIVE),
        (0.991, 0.995, 0.999, Verdict.SAME),  # within the tolerance
        (1.001, 1.005, 1.009, Verdict.SAME),
    ],
)
def test_an_interval_is_held_against_both_limits_on_both_sides(
    low: float, ratio: float, high: float, expected: Verdict
) -> None:
    shift = Shift(Interval(ratio, low, high), 0.5, "ranks")
    assert verdict_of(shift, (9, 9), Limits(), "more --runs")[0] is expected


def test_a_launch_without_a_time_is_no_pass() -> None:
    first, second = two(spread_out(1), spread_out(2))
    second.launches[3].rows[0].samples["iteration"][:] = -1
    found = compare_runs(first, second, Limits())
    assert found.rows[0].verdict is Verdict.INCONCLUSIVE
    assert math.isnan(found.rows[0].shift.ratio.estimate)


def test_launches_that_took_turns_are_compared_in_pairs() -> None:
    drift = np.linspace(1000, 1300, 10)
    runs = (
        invented_launches(drift.tolist(), [0, 3, 4, 7, 8, 11, 12, 15, 16, 19]),
        invented_launches((1.03 * drift).tolist(), [1, 2, 5, 6, 9, 10, 13, 14, 17, 18]),
    )
    assert taken_in_turns(*runs)
    found = compare_runs(*runs, Limits())
    assert found.verdict is Verdict.WORSE
    assert {row.shift.test for row in found.rows} == {"pairs"}
    other = invented_launches((1.03 * drift).tolist(), range(20, 30))
    assert not taken_in_turns(runs[0], other)
    swapped = invented_launches([1.0] * 10, [2, 1, 5, 6, 9, 10, 13, 14, 17, 18])
    assert not taken_in_turns(runs[0], swapped)
    assert compare_runs(runs[0], other, Limits()).verdict is not Verdict.WORSE


# --- One launch a side ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "expected", "reason"),
    [
        (1010.0, Verdict.INCONCLUSIVE, "within the recorded spread"),
        (2000.0, Verdict.WORSE, "beyond the recorded spread"),
        (500.0, Verdict.BETTER, "beyond the recorded spread"),
    ],
)
def test_single_launches_are_judged_by_the_recorded_spread(
    factor: float, expected: Verdict, reason: str
) -> None:
    first = invented_launches([1000.0], [1])
    second = invented_launches([factor], [2])
    machine = invented_launches(spread_out(1, by=0.02))
    found = compare_runs(first, second, Limits(), machine)
    assert found.verdict is expected
    assert all(reason in row.reason for row in found.rows)
    unknown = compare_runs(first, second, Limits())
    assert unknown.verdict is Verdict.INCONCLUSIVE
    assert all("no recorded spread" in row.reason for row in unknown.rows)
    few = invented_launches(spread_out(1, 9))
    assert compare_runs(first, second, Limits(), few).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(0.985, Verdict.WORSE), (0.995, Verdict.INCONCLUSIVE), (1.005, Verdict.INCONCLUSIVE),
     (1.015, Verdict.BETTER)],
)  # fmt: skip
def test_a_single_launch_within_the_tolerance_is_no_verdict_on_a_quiet_machine(
    ratio: float, expected: Verdict
) -> None:
    assert _by_spread(ratio, 1.001, Limits())[0] is expected


def test_the_spread_may_be_that_of_the_other_side() -> None:
    many = invented_launches(spread_out(1))
    one = invented_launches([2000.0], [2])
    assert compare_runs(many, one, Limits()).verdict is Verdict.WORSE
    assert compare_runs(one, many, Limits()).verdict is Verdict.BETTER


# --- What is not comparable -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pattern": "mesh"}, "other pattern: ring, mesh"),
        ({"memory": "emulated"}, "other memory: host, emulated"),
        ({"unpack": "none"}, "other way to unpack: in place, none"),
        ({"mode": "synchronised"}, "other timing: back-to-back, synchronised"),
        ({"plan": Plan((1024,), agg_iters=2)}, "other messages an iteration (-m): 1, 2"),
        ({"plan": Plan((1024,), average=3)}, "other time over the ranks (-a): 1, 3"),
    ],
)
def test_runs_of_another_kind_are_not_comparable(changes: dict[str, Any], text: str) -> None:
    assert refusals(*two([1.0] * 4, [1.0] * 4, **changes)) == [text]


def test_what_is_not_comparable_is_refused_unless_told(tmp_path: Path, capsys: Captured) -> None:
    files = two_files(tmp_path, [1.0] * 6, [1.0] * 6, pattern="mesh")
    assert cli.main(["compare", *files]) == 2
    assert "not comparable: other pattern: ring, mesh; --anyway" in capsys.readouterr().err
    assert cli.main(["compare", *files, "--anyway"]) == 0
    assert "# warning: not comparable: other pattern: ring, mesh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [("wrong", 5, "has wrong bytes at 2 KiB"), ("checked", 0, "did not check its bytes at 2 KiB")],
)
def test_wrong_and_unchecked_bytes_are_refused(column: str, value: int, text: str) -> None:
    first, second = two([1.0] * 4, [1.0] * 4)
    assert refusals(first, second) == []
    getattr(second.launches[2].rows[1], column)[2] = value
    assert refusals(first, second) == [f"B.h5 {text}"]
    second.launches_planned = 6
    assert refusals_of_spread(first, second) == ["B.h5 lacks 2 of 6 launches", f"B.h5 {text}"]


def test_of_empty_messages_no_byte_has_to_be_checked() -> None:
    first, second = two([1.0] * 4, [1.0] * 4)
    for launch in second.all_launches:
        launch.rows[0].size_bytes = 0
        launch.rows[0].checked[:] = False
    assert refusals(first, second) == []


def test_partial_files_and_mixed_launches_are_refused() -> None:
    whole = invented_launches([1.0] * 4)
    partial = invented_launches([1.0] * 4, name="P")
    partial.launches_planned = 6
    assert refusals(whole, partial) == ["P.h5 lacks 2 of 6 launches"]
    whole.launches[1].header.memory = "emulated"
    assert refusals(whole, invented_launches([1.0] * 4)) == [
        "launches of all.h5 differ in their memory: host, emulated"
    ]


def test_the_spread_of_something_else_is_refused_unless_told(
    tmp_path: Path, capsys: Captured
) -> None:
    files = two_files(tmp_path, [1000.0], [2000.0])
    for name, changes, text in (
        ("mesh", {"pattern": "mesh"}, "--spread with another pattern: ring, mesh"),
        ("emulated", {"memory": "emulated"}, "--spread with another memory: host, emulated"),
    ):
        spread = joined(tmp_path, 10, spread_out(3), name, range(40, 50), **changes)
        assert cli.main(["compare", *files, "--spread", spread]) == 2
        assert text in capsys.readouterr().err
        assert cli.main(["compare", *files, "--spread", spread, "--anyway"]) == 10
        assert text in capsys.readouterr().err


def test_an_imported_pattern_without_an_in_place_side_is_checked() -> None:
    for outside, inside, text in ((0, -1, []), (-1, -1, ["did not"]), (0, 3, ["wrong bytes"])):
        first, second = two([1.0] * 4, [1.0] * 4)
        for launch in first.all_launches:
            for row in launch.rows:
                row.averages = [
                    Average(side, 1.0, 1.0, 1.0, wrong)
                    for side, wrong in (("out_of_place", outside), ("in_place", inside))
                ]
        found = refusals(first, second)
        assert bool(found) == bool(text)
        assert all(part in found[0] for part in text)


def test_a_missing_file_and_bad_limits_are_usage_errors(tmp_path: Path, capsys: Captured) -> None:
    first, second = two_files(tmp_path, [1.0] * 6, [1.0] * 6)
    assert cli.main(["compare", first, str(tmp_path / "no.h5")]) == 2
    for bad in (["--tolerance", "-1"], ["--tolerance", "0.2"], ["--resolution", "nan"]):
        assert cli.main(["compare", first, second, *bad]) == 2
        assert "the first not above the second" in capsys.readouterr().err.splitlines()[-1]


# --- What is printed and written ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slower", "code", "word"),
    [variant(1.0, 0, "same"), (1.1, 10, "worse"), variant(0.9, 14, "better")],
)
def test_text_json_and_page_say_the_same_and_so_does_the_exit_code(
    tmp_path: Path, capsys: Captured, slower: float, code: int, word: str
) -> None:
    files = two_files(
        tmp_path,
        spread_out(1),
        spread_out(2, slower=slower),
        settings=[("channels", "4", "default"), ("hdf5_path", "B.h5", "default")],
        facts={"kernel": "6.1", "congestion_control": "<bbr>"},
    )
    out = ["--json", str(tmp_path / "c.json"), "--html", str(tmp_path / "c.html")]
    assert cli.main(["compare", *files, *out]) == code
    text = capsys.readouterr().out
    assert f"# verdict: {word}: " in text
    assert "# differs: setting channels: 2 | 4" in text
    assert "# differs: fact congestion_control: - | <bbr>" in text
    assert "hdf5_path" not in text
    document = json.loads((tmp_path / "c.json").read_text())
    assert (document["verdict"], document["exit_code"]) == (word, code)
    assert [row["verdict"] for row in document["rows"]] == [word] * 3
    assert document["rows"][0]["ratio"] == pytest.approx(1 / slower, rel=0.02)
    assert len(document["rows"][0]["first_us"]) == 10
    page = (tmp_path / "c.html").read_text()
    assert word.capitalize() in page
    assert "&lt;bbr&gt;" in page
    assert "<bbr>" not in page


def test_a_line_has_the_medians_and_the_number_of_launches() -> None:
    first, second = two([1.0, 3.0, 2.0, 5.0, 4.0], [6.0])
    lines = comparison_lines(compare_runs(first, second, Limits()))
    assert "softtcpx, 5 launches, " in lines[0]
    assert "softtcpx, 1 launch, " in lines[1]
    row = next(line for line in lines if line.startswith("  ")).split()
    # The slowest rank of an invented launch takes 1159.5 ns.
    assert row[2:5] == ["3.48", "6.96", "5+1"]


def test_a_row_of_the_document_has_the_numbers_of_the_comparison() -> None:
    runs = invented_launches([1000.0]), invented_launches([2000.0], [1])
    found = compare_runs(*runs, Limits(), invented_launches(spread_out(1)))
    assert comparison_document(found)["rows"][0]["recorded_spread"] == found.rows[0].spread > 1
    found = compare_runs(*two(spread_out(1), spread_out(2)), Limits())
    row, ratio = found.rows[0], found.rows[0].shift.ratio
    expected = {
        "first_us": (row.first_ns / 1e3).tolist(),
        "second_us": (row.second_ns / 1e3).tolist(),
        "ratio": ratio.estimate,
        "ci_low": ratio.low,
        "ci_high": ratio.high,
        "recorded_spread": None,
    }
    assert comparison_document(found)["rows"][0].items() >= expected.items()


def test_a_page_that_exists_is_kept_and_nothing_is_compared(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "c.html").write_text("precious")
    first, second = two_files(tmp_path, [1.0] * 6, [1.0] * 6)
    assert cli.main(["compare", first, second, "--html", str(tmp_path / "c.html")]) == 2
    assert capsys.readouterr().out == ""
    assert (tmp_path / "c.html").read_text() == "precious"


def test_places_that_differ_are_named_by_rank(tmp_path: Path, capsys: Captured) -> None:
    ranks = [invented.rank_info(rank) for rank in range(3)] + [invented.rank_info(3, nic="eth9")]
    files = two_files(tmp_path, [1.0] * 6, [1.0] * 6, ranks=ranks)
    assert cli.main(["compare", *files]) == 0
    assert "# differs: rank 3 nic: eth2 | eth9\n" in capsys.readouterr().out


def test_what_launches_measure_of_themselves_is_no_circumstance_but_their_clock_is_one() -> None:
    quiet = {"own_clock_ns": "22.1", "own_chunk_ns": "80.0", "clock_source": "tsc"}
    runs = [
        invented_launches([1.0], facts={**quiet, **other})
        for other in ({}, {"own_clock_ns": "160.7", "own_chunk_ns": "900.0"})
    ]
    assert compare_runs(runs[0], runs[1], Limits()).differences == []
    other = invented_launches([1.0], facts={**quiet, "clock_source": "hpet"})
    (found,) = compare_runs(runs[0], other, Limits()).differences
    assert (found.name, found.first, found.second) == ("clock_source", "tsc", "hpet")


def test_what_a_launch_has_of_its_own_in_its_environment_is_no_circumstance() -> None:
    own = ("TCPX_MPI_SETUP_TABLE", "OMPI_MCA_btl_sm_backing_directory")
    runs = [
        invented_launches([1.0], environment={**dict.fromkeys(own, place), "NCCL_DEBUG": "INFO"})
        for place in ("/tmp/tcpx-mpi-a", "/tmp/tcpx-mpi-b")
    ]
    assert compare_runs(runs[0], runs[1], Limits()).differences == []


@pytest.mark.parametrize("version", READABLE_VERSIONS)
def test_files_of_every_schema_version_are_compared(
    tmp_path: Path, capsys: Captured, version: int
) -> None:
    old = RUNS / f"schema-{version}.h5"
    with h5py.File(old) as file:
        assert file.attrs["schema_version"] == version
    new = launch_file(tmp_path / "new.h5", 1)
    assert cli.main(["compare", str(old), new]) == 11
    assert capsys.readouterr().out.count(" 1.0000 ") == 3
    with h5py.File(new) as file:
        assert file.attrs["schema_version"] == READABLE_VERSIONS[-1], (
            "keep a file of it in fixtures"
        )


@pytest.mark.parametrize("version", READABLE_VERSIONS)
def test_files_of_every_schema_version_are_reported_judged_and_exported(
    tmp_path: Path, capsys: Captured, version: int
) -> None:
    old = str(RUNS / f"schema-{version}.h5")
    assert cli.main(["report", old, "--html", str(tmp_path / "o.html")]) == 0
    assert "# Out of bounds values : 0 OK" in capsys.readouterr().out
    (tmp_path / "g.toml").write_text(
        '[gate]\nplugin = "softtcpx"\nranks = 4\nprovenance = "by hand"\n'
        '[[limit]]\npattern = "ring"\nmemory = "host"\nsize = "2K"\nbusbw_min = 1e-6\n'
    )
    assert cli.main(["gate", old, str(tmp_path / "g.toml")]) == 0
    assert cli.main(["export", old, "--csv", "--output", str(tmp_path / "o.csv")]) == 0
    assert "0,1024," in (tmp_path / "o.csv").read_text()


def test_rows_in_which_suspects_met_again_are_no_samples_of_a_row() -> None:
    rows = [invented.row(0)]
    for index in (3, 4):
        met = invented.row(index, size_bytes=1024, count=1024, pairs="0>1 2>3")
        met.samples["iteration"] = met.samples["iteration"] * 9
        rows.append(met)
    header, setup = invented.run_header(), invented.setup_times()
    with_them, without = (Run("", header, setup, part, True) for part in (rows, rows[:1]))
    (times,), (expected,) = launch_times(with_them).values(), launch_times(without).values()
    assert times == expected
