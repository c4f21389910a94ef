"""What `make sweep-gpu` and `sweep-parts` do: turns, files, choice, and the page's tables."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sweep
import sweep_variants
from attempts import Attempt
from broken_copy import SITECUSTOMIZE, patched
from gpus import Gpus
from sweep_tables import PARTS_SWEEP, SWEEP, parts_table, steps_table, streams_table, sweep_table
from sweep_variants import PARTS, RUNS, SENDS, UNPACK, all_variants

from tcpx_mpi.records import read_run
from tcpx_mpi.report import summarise_row

VARIANTS = all_variants()
REPOSITORY = Path(__file__).resolve().parents[2]


def sides(*names: str) -> list[sweep.Side]:
    """The runs that these variants are of, and the variants."""
    runs = dict.fromkeys(VARIANTS[name].run for name in names)
    return [sweep.Side(run, run) for run in runs] + [
        sweep.Side(name, VARIANTS[name].run, VARIANTS[name]) for name in names
    ]


class Machine:
    """Launches that take a second of its clock each, and give the figures that it is told."""

    def __init__(self, figures: dict[str, float], broken: str = "") -> None:
        self.figures, self.broken = figures, broken
        self.now = 0.0
        self.launched: list[str] = []
        self.kept: list[str] = []

    def launch(self, side: sweep.Side, hdf5: Path | None) -> dict[str, float]:
        self.now += 1
        self.launched.append(side.name)
        self.kept += [hdf5.name] if hdf5 else []
        if side.name == self.broken:
            raise sweep.Failed("exit 5: wrong bytes")
        names = PARTS[side.run].cases if side.run in PARTS else ("time",)
        if side.variant:
            names = tuple(side.variant.figure.split())
        return {name: self.figures[side.name] + len(self.launched) / 1000 for name in names}


def swept(folder: Path, machine: Machine, names: list[str], rounds: int = 3,
          until: float = 1e9) -> sweep.Sweep:  # fmt: skip
    facts = {"gpus": ["X1", "X1"], "cores": 32, "load": 1.0, "date": "2026-01-01"}
    made = sweep.Sweep(folder, sides(*names), until, machine.launch, lambda: machine.now, facts)
    made.run(rounds)
    return made


def document(folder: Path) -> dict[str, dict[str, Any]]:
    return json.loads((folder / "sweep.json").read_text())["launches"]


def test_all_take_turns_and_the_first_launch_of_a_run_keeps_its_file(tmp_path: Path) -> None:
    names = ["copies-4", "unpack-groups-of-8"]
    machine = Machine(dict.fromkeys(["pair-64M", UNPACK, *names], 7.0))
    swept(tmp_path, machine, names)
    turn = ["pair-64M", UNPACK, *names]
    assert machine.launched == [*turn, *turn[::-1], *turn]
    assert machine.kept == ["pair-64M.h5", "copies-4.h5"]
    found = document(tmp_path)
    assert found["copies-4"]["us"] == {"time": [7.003, 7.006, 7.011]}
    assert found["copies-4"]["digest"] == VARIANTS["copies-4"].digest
    assert set(found[UNPACK]["us"]) == set(PARTS[UNPACK].cases)
    assert str(found["copies-4"]["command"]).startswith("SOFTTCPX_COPIES=4 tcpx-mpi run pair ")


def test_what_fails_is_named_and_left_out_and_keeps_nobody_from_being_measured(
    tmp_path: Path,
) -> None:
    names = ["copies-4", "copies-16"]
    machine = Machine(dict.fromkeys(["pair-64M", *names], 7.0), broken="copies-4")
    made = swept(tmp_path, machine, names)
    assert machine.launched.count("copies-4") == 1
    assert machine.launched.count("copies-16") == 3
    assert made.failed == {"copies-4": "exit 5: wrong bytes"}
    assert json.loads((tmp_path / "sweep.json").read_text())["failed"] == made.failed
    assert "| | | failed: exit 5: wrong bytes | no |" in row_of("copies-4", tmp_path)


@pytest.mark.parametrize(("until", "rounds"), [(0.0, 1), (5.9, 1), (6.0, 2), (100.0, 3)])
def test_a_round_that_would_not_end_in_time_is_not_begun(
    until: float, rounds: int, tmp_path: Path
) -> None:
    names = ["copies-4", "copies-16"]
    machine = Machine(dict.fromkeys(["pair-64M", *names], 7.0))
    swept(tmp_path, machine, names, until=until)
    assert machine.now == 3 * rounds
    assert json.loads((tmp_path / "sweep.json").read_text())["rounds"] == rounds


def test_what_was_measured_is_there_after_each_round(tmp_path: Path) -> None:
    machine = Machine({"pair-64M": 7.0, "copies-4": 6.0})

    def interrupted(side: sweep.Side, hdf5: Path | None) -> dict[str, float]:
        if len(machine.launched) == 3:
            raise KeyboardInterrupt
        return machine.launch(side, hdf5)

    made = sweep.Sweep(tmp_path, sides("copies-4"), 1e9, interrupted, lambda: machine.now)
    with pytest.raises(KeyboardInterrupt):
        made.run(3)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]
    assert document(tmp_path)["pair-64M"]["us"] == {"time": [7.001]}


def test_the_quickest_that_only_sets_something_is_chosen_to_stand_beside_nccl(
    tmp_path: Path,
) -> None:
    names = ["copies-4", "copies-16", "pause", "without-unpack", "ring-pause"]
    figures = {"pair-64M": 9.0, "ring-64M": 3.0, "copies-4": 8.0, "copies-16": 7.0,
               "pause": 6.0, "without-unpack": 5.0, "ring-pause": 4.0}  # fmt: skip
    made = swept(tmp_path, Machine(figures), names)
    assert made.chosen("pair-64M").name == "copies-16"
    assert made.chosen("ring-64M").name == "ring-64M"  # nothing was quicker
    made = swept(tmp_path, Machine(figures, broken="copies-16"), names)
    assert made.chosen("pair-64M").name == "copies-4"


# Variants -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda each: each.name)
def test_a_variant_fits_the_sources(variant: Attempt) -> None:
    for patch in variant.patches:
        text = (REPOSITORY / patch.file).read_text()
        assert patched(text, patch) != text


def test_the_runs_and_cases_are_those_that_there_are() -> None:
    assert {variant.run for variant in VARIANTS.values()} == {*RUNS, *PARTS}
    assert {"pages_64MiB", "chunk_512KiB", "mss_64MiB", "pinned_8KiB"} < set(PARTS[UNPACK].cases)
    assert PARTS[SENDS].cases == ("sends_one_way", "sends_both_ways")


def test_settings_of_variants_are_those_of_softtcpx() -> None:
    page = (REPOSITORY / "docs" / "reference" / "softtcpx.md").read_text()
    known = set(re.findall(r"^\| `(SOFTTCPX_\w+)` \|", page, re.M))
    assert {name for each in VARIANTS.values() for name in each.environ} <= known


def test_a_pattern_is_of_variants_or_of_their_runs() -> None:
    kernel = sweep.matching(["unpack"])
    assert {variant.run for variant in kernel.values()} == {UNPACK}
    assert "without-fence" in kernel
    assert "without-unpack" not in kernel
    assert list(sweep.matching(["copies-4", "pingpong-*"])) == [
        "copies-4", "no-workers-pingpong", "spin-pingpong",
    ]  # fmt: skip


HEAD = "tried: a\npredicted: b\nkept: no\n"
DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("x", "tried: a\nkept: no\nrun: unpack\nfigure: mss_64MiB\n" + DIFF, "needs the keys"),
        ("x", HEAD + "run: unpack\nfigure: mss_64MiB\noptions: -n 1\n", "needs a diff"),
        ("x", HEAD + "run: unpack\nfigure: time\n" + DIFF, "are its cases"),
        ("x", HEAD + "run: unpack\nfigure: sends_one_way\n" + DIFF, "are its cases"),
        ("x", HEAD + "run: sends\nfigure: sends_one_way\n" + DIFF, "settings, no diff"),
        (
            "sends",
            HEAD + "run: sends\nfigure: sends_one_way\nenviron: A=1\n",
            "a run has that name",
        ),
        ("x", HEAD + "run: pair-64M\nfigure: mss_64MiB\noptions: -n 1\n", "the figure is time"),
        ("x", HEAD + "run: pair-64M\nfigure: time\n", "changes nothing"),
        ("x", HEAD + "run: pair-63M\nfigure: time\noptions: -n 1\n", "no such run"),
        ("pair-8K", HEAD + "run: pair-8K\nfigure: time\noptions: -n 1\n", "a run has that name"),
    ],
)
def test_a_senseless_variant_is_refused(name: str, text: str, refusal: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.patch").write_text(text)
    with pytest.raises(ValueError, match=refusal):
        all_variants(tmp_path)


# The table ----------------------------------------------------------------------------------------


def row_of(name: str, folder: Path) -> str:
    (row,) = (line for line in sweep_table(["all"], folder) if line.startswith(f"| `{name}` |"))
    return row


def test_the_table_says_what_came_out_beside_what_was_predicted(tmp_path: Path) -> None:
    names = ["copies-4", "without-unpack"]
    swept(tmp_path, Machine({"pair-64M": 10.0, "copies-4": 8.0, "without-unpack": 9.0}), names)
    lines = sweep_table(["all"], tmp_path)
    assert lines[0].startswith("`make sweep-gpu` on 2 X1, 32 cores, 2026-01-01, 3 launches each")
    row = row_of("copies-4", tmp_path)
    assert f"| {VARIANTS['copies-4'].predicted} | pair-64M |" in row
    assert (
        "| 10.01 (10 - 10.01) us | 8.005 (8.002 - 8.008) us | 0.800 (0.800 - 0.800) | no |" in row
    )
    assert row_of("without-unpack", tmp_path).endswith(" |  |")  # nothing to be kept
    assert "| not measured |" in row_of("ring-pause", tmp_path)
    (tmp_path / "once").mkdir()
    swept(tmp_path / "once", Machine({"pair-64M": 10.0, "copies-4": 8.0}), names[:1], rounds=1)
    assert "| 0.800, of one launch | no |" in row_of("copies-4", tmp_path / "once")
    # As many cells in every row.
    assert len({line.count("|") for line in lines[2:]}) == 1
    assert not any("| `unpack-" in line for line in lines)


def test_parts_have_a_table_of_their_own(tmp_path: Path) -> None:
    swept(tmp_path, Machine({UNPACK: 10.0, "without-fence": 8.0}), ["without-fence"])
    lines = parts_table(["all"], tmp_path)
    assert lines[0].startswith("`make sweep-parts` on 2 X1, 32 cores, 2026-01-01, 3 launches each")
    shown = {line.split("`")[1] for line in lines if line.startswith("| `")}
    assert shown == {name for name, variant in VARIANTS.items() if variant.run in PARTS}
    (row,) = (line for line in lines if "| `without-fence` | an" in line)
    assert "| chunk_512KiB | 10 (10 - 10.01) us | 8.003 (8.002 - 8.006) us |" in row


def test_the_table_says_how_runs_were_launched_that_have_other_settings_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["copies-4", "ring-pause"]
    swept(tmp_path, Machine(dict.fromkeys(["pair-64M", "ring-64M", *names], 8.0)), names)
    assert not any("other settings" in line for line in sweep_table(["all"], tmp_path))
    was = sweep.Side("ring-64M", "ring-64M").command()
    monkeypatch.setitem(RUNS, "ring-64M", (*RUNS["ring-64M"], "--chunk", "1M"))
    lines = sweep_table(["all"], tmp_path)
    assert lines[2].startswith("These runs had other settings then")
    assert lines[4:7] == ["```", f"ring-64M:     {was}", "```"]


@pytest.mark.parametrize(("folder", "runs"), [(SWEEP, tuple(RUNS)), (PARTS_SWEEP, tuple(PARTS))])
def test_the_evidence_has_outcomes_of_variants_that_there_are(
    folder: Path, runs: tuple[str, ...]
) -> None:
    known = {name for name, variant in VARIANTS.items() if variant.run in runs}
    assert document(folder).keys() <= known | set(runs)


def test_what_the_evidence_calls_chosen_is_what_ran_beside_nccl() -> None:
    launches = document(SWEEP)
    chosen = json.loads((SWEEP / "sweep.json").read_text())["chosen"]
    assert chosen.keys() == set(sweep.BESIDE_NCCL)
    for run, name in chosen.items():
        launched = shlex.split(str(launches[name]["command"]).replace(" --ranks 2", ""))
        command = read_run(str(SWEEP / f"{run}-chosen.h5")).header.command
        assert command[: len(launched)] == launched


def test_an_outcome_of_a_variant_that_has_changed_is_refused(tmp_path: Path) -> None:
    swept(tmp_path, Machine({"pair-64M": 10.0, "copies-4": 8.0}), ["copies-4"])
    file = tmp_path / "sweep.json"
    file.write_text(file.read_text().replace(VARIANTS["copies-4"].digest, "0" * 12))
    with pytest.raises(ValueError, match=r"copies-4: .* measure it anew"):
        sweep_table(["all"], tmp_path)


def test_without_results_the_page_shows_predictions(tmp_path: Path) -> None:
    lines = sweep_table(["all"], tmp_path)
    lines += parts_table(["all"], tmp_path)
    assert sum("| not measured |" in line for line in lines) >= len(VARIANTS)
    assert sum("`: not measured yet." in line for line in lines) == 2
    assert steps_table(["all"], tmp_path) == ["`bench_steps_cuda`: not measured yet."]
    assert streams_table(["all"], tmp_path) == ["`bench_streams`: not measured yet."]


def test_runs_are_shown_as_a_share_of_plain_tcp(tmp_path: Path) -> None:
    machine = Machine({"pair-64M": 2097.152, "copies-4": 8.0})  # 32 GB/s
    swept(tmp_path, machine, ["copies-4"])
    found = json.loads((tmp_path / "sweep.json").read_text())
    ways = [
        {"way": "one", "threads": 28, "right": True, "GBps_median": 64.0, "GBps": [60, 64, 66]},
        {"way": "both", "threads": 28, "right": True, "GBps_median": 40.0, "GBps": [40]},
    ]
    found["streams"] = {"congestion": "cubic", "ways": ways}
    (tmp_path / "sweep.json").write_text(json.dumps(found))
    congestion, _, _, _, one, both = streams_table(["all"], tmp_path)
    assert congestion == (
        "`make sweep-gpu` on 2 X1, 32 cores, 2026-01-01, congestion control cubic, "
        "and runs of the same hour:"
    )
    assert one.endswith("| 64 GB/s, 60 - 66 | `pair-64M` | 32 GB/s | 0.50 |")
    assert both.endswith("| `ring-64M` | | |")  # which was not run
    ways[0]["right"] = False
    (tmp_path / "sweep.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match="wrong bytes"):
        streams_table(["all"], tmp_path)


# On the stand-in ----------------------------------------------------------------------------------


@pytest.mark.stand_in
@pytest.mark.multirank
def test_a_variant_of_settings_is_measured_and_its_file_says_so(
    gpus: Gpus, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in gpus.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place)
    small = ("pair", "-b", "2M", "-e", "2M", "-n", "4", "-w", "1", "--check-memory", "16M",
             *gpus.sharing(2))  # fmt: skip
    monkeypatch.setitem(sweep_variants.RUNS, "pair-64M", small)
    settings = VARIANTS["copies-4"]
    side = sweep.Side("copies-4", "pair-64M", settings)
    figures = sweep.launched(side, place / "o.h5")
    found = read_run(str(place / "o.h5"))
    summary = summarise_row(found.header, found.rows[-1])
    assert figures["time"] == pytest.approx(summary.time_ns / 1e3, rel=1e-3)
    assert (summary.checked, summary.wrong) == (True, 0)
    told = {n: v for n, v in found.header.environment.items() if n.startswith("SOFTTCPX_")}
    assert told.items() >= settings.environ.items()


#: Of a package that says what it was told, in the place of tcpx-mpi.
MAIN = """
import json, os, sys
figures = {"time": float(os.environ["SOFTTCPX_COPIES"]) + len(sys.argv)}
json.dump({"results": [{"out_of_place": figures}]}, open(sys.argv[-1], "w"))
"""


def test_the_package_that_was_built_is_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the sources lie in the current folder."""
    package = tmp_path / "tcpx_mpi"
    package.mkdir()
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(MAIN)
    monkeypatch.chdir(REPOSITORY)
    side = sweep.Side("copies-4", "pair-64M", VARIANTS["copies-4"], tmp_path)
    words = ["tcpx-mpi", "run", *side.arguments(), "--hdf5", "none", "-J", "file"]
    assert sweep.launched(side, None) == {"time": 4.0 + len(words)}


def test_what_ends_badly_or_never_is_a_failed_launch() -> None:
    environ = {"PATH": "/bin:/usr/bin"}
    assert sweep._said(["sh", "-c", "echo yes"], environ) == "yes\n"
    with pytest.raises(sweep.Failed, match="exit 3: no"):
        sweep._said(["sh", "-c", "echo no >&2; exit 3"], environ)
    # With a child that would hold a pipe, too.
    with pytest.raises(sweep.Failed, match=r"still running after 0\.5 s"):
        sweep._said(["sh", "-c", "sleep 1000 & wait"], environ, limit_s=0.5)


def test_the_kernel_is_timed_in_a_row_where_that_was_measured(tmp_path: Path) -> None:
    cases = [
        {"case": "chunk_512KiB", "alone": {"unpack_us_median": 7.0},
         "in_a_row": {"unpack_us_median": 5.0}},
        {"case": "pages_64MiB", "alone": {"unpack_us_median": 41.0}},
    ]  # fmt: skip
    side = sweep.Side(UNPACK, UNPACK, built=said_by(tmp_path, json.dumps({"cases": cases})))
    assert sweep.launched(side, None) == {"chunk_512KiB": 5.0, "pages_64MiB": 41.0}


def test_sends_alone_are_launched_with_their_settings(tmp_path: Path) -> None:
    program = tmp_path / "bench"
    said = '{"cases": [{"case": "sends_one_way", "us_a_GiB_median": 40000}]}'
    program.write_text(f"#!/bin/sh\n[ $# = 1 ] && [ $SOFTTCPX_ZERO_COPY = 0 ] && echo '{said}'\n")
    program.chmod(0o755)
    variant = VARIANTS["without-zero-copy-sends"]
    side = sweep.Side("without-zero-copy-sends", SENDS, variant, program)
    assert sweep.launched(side, None) == {"sends_one_way": 40000.0}
    assert side.command() == "SOFTTCPX_ZERO_COPY=0 bench_sends_cuda 9"


def test_a_benchmark_that_fails_is_told_and_has_no_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Built:
        def __init__(self, code: int) -> None:
            self.code = code

        def program(self, name: str) -> Path:
            return said_by(tmp_path, '{"ways": [1]}', self.code)

    assert sweep._document(Built(0), "bench_streams", "14") == {"ways": [1]}
    assert sweep._document(Built(1), "bench_streams", "14") == {}
    assert capsys.readouterr().err.startswith("bench_streams: exit 1: ")


def test_the_kernel_alone_is_swept_without_the_ceiling_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"steps": [1], "cases": [{"case": "page_4KiB", "alone": {"unpack_us_median": 4.0}}]}
    built = said_by(tmp_path, json.dumps(said))
    asked: list[str] = []

    class Built:
        def __init__(self, _: Path) -> None:
            pass

        def sides(self, variants: dict[str, Attempt]) -> list[sweep.Side]:
            return [sweep.Side(name, UNPACK, built=built) for name in (UNPACK, *variants)]

        def program(self, name: str) -> Path:
            asked.append(name)
            return built

    monkeypatch.setattr(sweep, "Workshop", Built)
    monkeypatch.setattr(sweep, "machine_facts", dict)
    assert sweep.main([str(tmp_path), "--only", "unpack", "--rounds", "1"]) == 0
    assert asked == ["bench_steps_cuda"]
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert found["steps"] == [1]
    assert "streams" not in found
    assert found["launches"]["without-fence"]["us"] == {"page_4KiB": [4.0]}


def said_by(folder: Path, text: str, code: int = 0) -> Path:
    """A program that prints `text`."""
    (folder / "text").write_text(text)
    program = folder / "program"
    program.write_text(f"#!/bin/sh\ncat {folder / 'text'}\nexit {code}\n")
    program.chmod(0o755)
    return program


def test_the_kernel_alone_needs_no_second_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Begun(Exception):
        pass

    def begin(_: Path) -> None:
        raise Begun

    monkeypatch.setattr(sweep, "this_machine", lambda: SimpleNamespace(gpus=("one",)))
    monkeypatch.setattr(sweep, "Workshop", begin)
    with pytest.raises(Begun):
        sweep.main([str(tmp_path), "--only", "unpack"])
    assert sweep.main([str(tmp_path), "--only", "unpack-*", "copies-4"]) == 2
    assert "found 1 GPUs, 2 are needed" in capsys.readouterr().err


def test_the_sweep_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["x", "--only", "nothing-*"]) == 2
    assert "no variant or run is called nothing-*" in capsys.readouterr().err
    for words in ([], ["x", "--prove"], ["x", "--rounds", "0"]):
        with pytest.raises(SystemExit) as refused:
            sweep.main(words)
        assert refused.value.code == 2
