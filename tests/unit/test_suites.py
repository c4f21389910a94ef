"""The suites of `make test SUITE=NAME`."""

from __future__ import annotations

from pathlib import Path

import pytest
import suites
from suites import SUITES, TESTS


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_runs_what_is_there(name: str) -> None:
    command = suites.command_of(SUITES[name])
    paths = [part for part in command if part.startswith(str(TESTS))]
    assert paths
    assert all(Path(path).exists() for path in paths)
    assert not any("*" in part for part in command)


def test_a_suite_without_its_programs_says_in_one_line_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(suites, "SBIN", ())
    assert suites.main(["slurm"]) == 2
    _, errors = capsys.readouterr()
    assert errors.startswith("SUITE=slurm needs slurmctld and munged: apt-get install ")
    assert errors.count("\n") == 1


def test_one_of_several_programs_is_enough(tmp_path: Path) -> None:
    assert suites.missing(SUITES["browser"], str(tmp_path)) == [SUITES["browser"].needs[0]]
    browser = tmp_path / "google-chrome"
    browser.touch(mode=0o755)
    assert suites.missing(SUITES["browser"], str(tmp_path)) == []


def test_a_suite_that_is_none_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert suites.main(["units"]) == 2
    assert "none of unit, native, mpi" in capsys.readouterr().err
