"""docs/performance.md says what the result files in docs/evidence say, and nothing else."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import proof_cost
import pytest
from attempts import Attempt, all_attempts, attempt_called, outcomes, read_attempt
from broken_copy import patched
from gpu_tables import cores_of_ranks, gpu_runs_table, unpack_launches
from performance_page import (
    BLOCK,
    EVIDENCE,
    LIMITS,
    PAGE,
    README,
    REPORT,
    REPOSITORY,
    beside_raw,
    kept,
    launches_of,
    readme_rendered,
    rendered,
)

LONG_ENOUGH_NS = 5_000_000
#: A number with a unit of measurement, or a ratio with its range; of H200s it is none.
FIGURE = re.compile(
    r"(?<![A-Z\d])\d[\d.]* ?((GB/s|us|ns|ms|s|MB)\b|%)|\d\.\d+ \(\d\.\d+ - \d\.\d+\)"
)


def test_every_figure_is_made_from_the_evidence() -> None:
    assert rendered(PAGE.read_text()) == PAGE.read_text()


def test_no_figure_is_typed_by_hand() -> None:
    prose = re.sub(r"```.*?```", "", BLOCK.sub("", PAGE.read_text()), flags=re.DOTALL)
    assert FIGURE.findall(prose) == []


def test_a_changed_figure_is_seen() -> None:
    page = PAGE.read_text()
    match = BLOCK.search(page)
    assert match is not None
    assert rendered(match[0]) == match[0]
    changed = match[1] + match[0][len(match[1]) :].replace("1", "2", 1)
    assert rendered(changed) != changed


def test_the_cost_of_the_proof_is_measured_with_a_witness_that_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    proof_cost.main(pairs=3, iterations=4)
    said = capsys.readouterr().out
    found = re.fullmatch(
        r"with \d+\.\d\d ns/chunk, without \d+\.\d\d ns/chunk, cost -?\d+\.\d\d %, "
        r"witness (\d+\.\d) us a batch\n", said,
    )  # fmt: skip
    assert found, said
    assert float(found[1]) > 1  # files are read


def test_every_run_was_checked_and_right() -> None:
    for path in sorted(EVIDENCE.glob("*.h5")):
        run, summaries = kept(path)
        assert run.complete, path.name
        for row, summary in zip(run.rows, summaries, strict=True):
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
            for row in kept(path)[0].rows:
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


def test_the_proof_of_placement_costs_a_hundredth_of_a_chunk_at_most() -> None:
    measured = json.loads((EVIDENCE / "measured.json").read_text())
    parts = ("proof-in-the-loop", "proof-around-batches")
    assert sum(statistics.median(measured[name]["values"]) for name in parts) <= 1.0


@pytest.mark.parametrize("name", LIMITS)
def test_what_was_wanted_is_reached_beside_raw_at_equal_streams(name: str) -> None:
    equal, _ = beside_raw(launches_of(name))
    assert len(equal) >= 3
    assert statistics.median(each.ratio for each in equal) >= LIMITS[name]


@pytest.mark.parametrize("name", ["pingpong-8B"])
def test_ours_is_quicker_than_mpi_in_c(name: str) -> None:
    measured = json.loads((EVIDENCE / "measured.json").read_text())
    ours, theirs = (measured[f"{who}-{name}"]["values"] for who in ("beside-it", "mpi-in-C"))
    assert statistics.median(ours) < statistics.median(theirs)


@pytest.mark.parametrize("attempt", all_attempts().values(), ids=lambda each: each.name)
def test_an_attempt_still_fits(attempt: Attempt) -> None:
    for patch in attempt.patches:
        text = (REPOSITORY / patch.file).read_text()
        assert patched(text, patch) != text


def test_every_attempt_has_an_outcome_and_each_is_of_this_very_attempt() -> None:
    for attempt, found in outcomes():
        assert found["digest"] == attempt.digest, (
            f"measure it anew: make attempts ATTEMPTS={attempt.name}"
        )
        assert len(found["with"]) == len(found["without"]) >= 3
    assert {attempt.name for attempt, _ in outcomes()} >= all_attempts().keys()


def test_an_attempt_may_be_measured_on_another_run() -> None:
    own, other = attempt_called("post-first"), attempt_called("post-first@pair-64MiB")
    assert (own.run, other.run) == ("pingpong-8B", "pair-64MiB")
    assert (own.digest, own.patches, own.figure) == (other.digest, other.patches, other.figure)


@pytest.mark.parametrize(
    ("word", "refusal"),
    [
        ("posts-first", "no attempt posts-first; there are busy-poll, "),
        ("post-first@pair-2MiB", "no other run pair-2MiB; there are pair-1MiB, pair-64MiB, ring"),
        ("post-first@pingpong-8B", "no other run pingpong-8B"),
    ],
)
def test_an_attempt_or_a_run_that_is_none_is_refused(word: str, refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        attempt_called(word)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("tried: a\n", "needs the keys"),
        ("tried: a\npredicted: b\nkept: yes\nrun: ring-1MiB\nfigure: time\n", "changes nothing"),
        (
            "tried: a\npredicted: b\nkept: so\nrun: ring-1MiB\nfigure: time\nenviron: A=1\n",
            "no such",
        ),
    ],
)
def test_a_senseless_attempt_is_refused(text: str, refusal: str, tmp_path: Path) -> None:
    (tmp_path / "x.patch").write_text(text)
    with pytest.raises(ValueError, match=refusal):
        read_attempt(tmp_path / "x.patch")


def test_what_readme_shows_is_what_a_report_prints() -> None:
    readme = README.read_text()
    assert len(REPORT.findall(readme)) == 1
    assert readme_rendered(readme) == readme
    assert readme_rendered(readme.replace("# Plugin: ", "# Plugin: another ")) == readme


def test_every_run_on_gpus_was_checked_and_right_in_cuda_memory() -> None:
    files = [path for folder in ("", "shared", "two_h100")
             for path in sorted((EVIDENCE / "gpu" / folder).glob("*.h5"))]  # fmt: skip
    assert len({path.parent for path in files}) == 3
    for path in files:
        run, summaries = kept(path)
        assert (run.complete, run.header.memory, run.header.unpack) == (True, "cuda", "kernel")
        for summary in summaries:
            assert (summary.checked, summary.wrong) == (True, 0), path.name
            assert all(ratio.wrong == 0 for ratio in summary.against.values()), path.name
    for kind in ("on_one", "on_two_h100", "search_on_one", "search_on_two"):
        launches = unpack_launches(kind)
        assert len(launches) >= 3
        assert all(case["right"] for launch in launches for case in launch["cases"])


@pytest.mark.parametrize("folder", [EVIDENCE / "gpu", EVIDENCE / "gpu" / "two_h100"])
def test_a_rank_has_one_core_of_its_own_beside_the_workers_of_the_plugin(folder: Path) -> None:
    for path in sorted(folder.glob("*.h5")):
        run, _ = kept(path)
        own, others = cores_of_ranks(run)
        assert own.max() < 1.05, path.name  # read a little before and after the batches
        assert (others <= [seen.plugin_threads for seen in run.rows[-1].proof]).all(), path.name


def test_of_several_launches_on_gpus_the_middle_one_is_shown() -> None:
    (line,) = (x for x in gpu_runs_table(["pair-8K"]) if x.startswith("| `pair-8K`"))
    _, _, size, launches, time, *_ = (cell.strip() for cell in line.split("|"))
    shown, least, most = map(float, re.findall(r"[\d.]+", time))
    assert (size, launches) == ("8 KiB", "3")
    assert least < shown < most
