"""`tune` from the command line to its files, with launches that are invented but whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from launch_files import launch_file

from tcpx_mpi import cli
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.records import TURN_VARIABLE, read_run
from tcpx_mpi.run.series import FILE_VARIABLE
from tcpx_mpi.tune import race
from tcpx_mpi.tune.point import turn_of

RUN = ["tune", "ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "1K,2K,4K"]
#: So long that the number of rounds ends every tune.
WITHIN = ["--within", "100s"]
SPACE = "[environment]\nSOFTTCPX_SPIN_US = [5, 500]\n"
Captured = pytest.CaptureFixture[str]


class Mpirun:
    """Writes what a launch would, 2 % apart; 500 is twice as fast."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.codes: dict[int, int] = {}  # number of the launch from 1 -> how it ends
        self.fails: str | None = None
        self.sha256 = "0" * 64
        self.random = np.random.default_rng(1)
        monkeypatch.chdir(place)
        monkeypatch.setattr(race, "_MOST_OF_FINAL", 6)
        monkeypatch.setattr("tcpx_mpi.launch.mpirun.run_captured", self.captured)
        (place / "s.toml").write_text(SPACE)

    def captured(self, _: int, __: object, environ: Mapping[str, str], *___: object) -> object:
        mark = environ[TURN_VARIABLE]
        (value,) = [change.value for change in turn_of(mark, "").point] or [""]
        assert environ.get("SOFTTCPX_SPIN_US", "") == value
        self.made.append(value)
        if value == self.fails:
            return ExitCode.STALL, ""
        factor = 1000 * float(np.exp(self.random.normal(0, 0.02)))
        launch_file(
            Path(environ[FILE_VARIABLE]), len(self.made) % 60,
            factor / 2 if value == "500" else factor,
            environment={TURN_VARIABLE: mark}, plugin_sha256=self.sha256,
        )  # fmt: skip
        return self.codes.get(len(self.made), 0), "what a rank said\n"


@pytest.fixture
def mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mpirun:
    return Mpirun(tmp_path, monkeypatch)


def test_a_better_setting_is_found_written_and_every_launch_is_in_the_file(
    mpirun: Mpirun, tmp_path: Path, capsys: Captured
) -> None:
    files = ["--out", "t.h5", "--json", "t.json", "--write", "p.toml"]
    assert cli.main([*RUN, *WITHIN, "--space", "s.toml", *files]) == 0
    shown = capsys.readouterr()
    assert "# Recommended, 1 KiB to 4 KiB : SOFTTCPX_SPIN_US=500: " in shown.out
    assert shown.err.splitlines()[1] == "# launch 2, heat 1, round 1: today's settings"
    run = read_run("t.h5")
    assert len(run.all_launches) == run.launches_planned == len(mpirun.made)
    assert run.missing == []
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["compromise"] == {"run": {}, "environment": {"SOFTTCPX_SPIN_US": "500"}}
    assert document["launches"] == len(mpirun.made)
    assert cli.main(["env", "--profile", "p.toml"]) == 0
    assert "export SOFTTCPX_SPIN_US=500 " in capsys.readouterr().out
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "p.toml", "s.toml", "t.h5", "t.json",
    ]  # fmt: skip


def test_launches_of_several_settings_are_not_read_as_those_of_one_command(
    mpirun: Mpirun, capsys: Captured
) -> None:
    assert cli.main([*RUN, *WITHIN, "--space", "s.toml", "--out", "t.h5"]) == 0
    costs = ["--ranks", "2", "--fit", "t.h5"]
    capsys.readouterr()
    for words in (
        ["report", "t.h5"],
        ["report", "t.h5", "t.h5"],
        ["compare", "t.h5", "t.h5"],
        ["compare", "--spread", "t.h5", "a.h5", "b.h5"],
        ["gate", "t.h5", "g.toml"],
        ["gate", "--calibrate", "t.h5", "--output", "g.toml"],
        ["simulate", "ring", *costs],
    ):
        if "a.h5" in words:
            for name in ("a.h5", "b.h5"):
                launch_file(Path(name), 0, 1000)
        assert cli.main(words) == 2, words
        (line,) = capsys.readouterr().err.splitlines()
        assert "t.h5 has launches of `tcpx-mpi tune`, each with settings of its own" in line
    assert cli.main(["export", "t.h5", "--csv", "--table", "rows", "--output", "-"]) == 0


def test_equal_settings_write_no_profile(mpirun: Mpirun, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "s.toml").write_text("[environment]\nSOFTTCPX_SPIN_US = [5, 6]\n")
    out = ["--out", "t.h5", "--write", "p.toml"]
    assert cli.main([*RUN, *WITHIN, "--space", "s.toml", *out]) == 0
    shown = capsys.readouterr().out
    assert ": no better than the default (nearest: SOFTTCPX_SPIN_US=" in shown
    assert "# not written: p.toml, as nothing is recommended for all sizes" in shown
    assert not (tmp_path / "p.toml").exists()


@pytest.mark.variant
def test_an_interrupted_tune_keeps_its_launches_and_goes_on_with_them(
    mpirun: Mpirun, capsys: Captured
) -> None:
    mpirun.codes = {6: ExitCode.INTERRUPTED}
    space = ["--space", "s.toml"]
    assert cli.main([*RUN, *WITHIN, *space, "--out", "t.h5"]) == 130
    assert "# kept: t.h5, for --resume" in capsys.readouterr().err
    before = len(read_run("t.h5").all_launches)
    mpirun.made.clear()
    mpirun.codes.clear()
    resume = ["--resume", "t.h5", "--out", "more.h5"]
    assert cli.main([*RUN, *WITHIN, *space, *resume]) == 0
    assert "SOFTTCPX_SPIN_US=500: " in capsys.readouterr().out
    assert len(read_run("more.h5").all_launches) == before + len(mpirun.made)
    assert len(read_run("t.h5").all_launches) == before, "it is kept as it was"


def test_another_plugin_than_then_is_refused_and_no_file_is_left(
    mpirun: Mpirun, tmp_path: Path, capsys: Captured
) -> None:
    mpirun.codes = {6: ExitCode.INTERRUPTED}
    cli.main([*RUN, *WITHIN, "--space", "s.toml", "--out", "t.h5"])
    mpirun.sha256, mpirun.codes = "f" * 64, {}
    resume = ["--resume", "t.h5", "--out", "more.h5"]
    assert cli.main([*RUN, *WITHIN, "--space", "s.toml", *resume]) == 2
    assert "--resume t.h5: its launches have another plugin sha256" in capsys.readouterr().err
    assert not (tmp_path / "more.h5").exists()


def test_today_s_settings_that_fail_end_it_with_their_code(
    mpirun: Mpirun, capsys: Captured
) -> None:
    mpirun.codes = {2: ExitCode.WRONG_BYTES}
    assert cli.main([*RUN, *WITHIN, "--space", "s.toml", "--out", "t.h5"]) == 5
    assert capsys.readouterr().out == "what a rank said\n"


def test_a_setting_that_fails_is_out_with_its_code(mpirun: Mpirun, capsys: Captured) -> None:
    mpirun.fails = "5"
    assert cli.main([*RUN, *WITHIN, "--space", "s.toml", "--out", "t.h5"]) == 0
    shown = capsys.readouterr()
    assert "# out: SOFTTCPX_SPIN_US=5: exit code 6" in shown.err
    assert "# Launch failed" in shown.out
    assert mpirun.made.count("5") == 1


def test_a_budget_for_less_than_two_launches_is_one_line_and_leaves_nothing(
    mpirun: Mpirun, tmp_path: Path, capsys: Captured
) -> None:
    command = [*RUN, "--space", "s.toml", "--out", "t.h5", "--within", "1ms"]
    assert cli.main(command) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if not x.startswith("# launch")]
    assert "--within (0.001 s) is less than two launches, and one took" in line
    assert [each.name for each in tmp_path.iterdir()] == ["s.toml"]


def test_the_kind_s_space_leaves_out_what_a_run_would_refuse(
    mpirun: Mpirun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tcpx_mpi.cli.tune import _command_of, _points

    monkeypatch.setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288")
    common = RUN[1:]
    settings = _command_of(common, ()).settings
    from invented import run_header

    names = {str(change) for point in _points(None, run_header(), common, settings)
             for change in point}  # fmt: skip
    assert "chunk 256K" in names
    assert "chunk 1M" not in names
