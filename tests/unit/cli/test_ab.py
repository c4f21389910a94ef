"""`ab` before anything is launched: what it takes, what it refuses, in which order it launches."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tcpx_mpi import cli
from tcpx_mpi.run.series import Series, run_in_turns

Captured = pytest.CaptureFixture[str]


class Invented:
    """A series that writes down when it was launched, and fails at its `fails_at`-th launch."""

    printed = "what the failed one printed\n"

    def __init__(self, name: str, log: list[str], fails_at: int = 0) -> None:
        self.name, self.log, self.left = name, log, fails_at

    def launch(self, label: str) -> int:
        assert label == f" of {self.name}"
        self.log.append(self.name)
        self.left -= 1
        return 6 if self.left == 0 else 0


def in_turns(runs: int, **fails_at: int) -> tuple[str, int]:
    log: list[str] = []
    a, b = (Invented(name, log, fails_at.get(name, 0)) for name in "AB")
    code = run_in_turns(cast(Series, a), cast(Series, b), runs)
    return "".join(log), code


def test_launches_go_there_and_back() -> None:
    assert in_turns(5) == ("ABBAABBAAB", 0)


def test_a_failed_launch_ends_them_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_turns(5, B=2) == ("ABB", 6)
    assert capsys.readouterr().out == Invented.printed
    assert in_turns(5, A=1) == ("A", 6)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ring", "--ranks", "2"], "ab needs two sides, found 0"),
        (["ring", "--ranks", "2", "--", "--channels", "2"], "ab needs two sides, found 1"),
        (["ring", "--ranks", "2", "--", "--", "--", "-b", "4"], "ab needs two sides, found 3"),
        (["ring", "--", "--", "--channels", "2"], "launches need --ranks N"),
        (["rign", "--ranks", "2", "--", "--"], "unknown pattern rign (did you mean ring?)"),
        (["ring", "--ranks", "2", "--", "--chanels", "2", "--"], "unknown option --chanels"),
        (["ring", "--ranks", "2", "--", "--channels", "0", "--"], "--channels (0) is too small"),
        (["ring", "--ranks", "2", "--", "UCCL_TCPX_NUM_CHANNELS=x", "--"],
         "UCCL_TCPX_NUM_CHANNELS (x) is not a whole number"),
        (["--ranks", "2", "--", "ring", "--", "mesh"], "another pattern (ring, mesh)"),
        (["ring", "--", "--ranks", "2", "--", "--ranks", "4"], "another --ranks (2, 4)"),
        (["ring", "--ranks", "2", "--", "-z", "1", "--"], "another timing (-z) (synchronised"),
        (["ring", "--ranks", "2", "--", "--", "-m", "4"], "an iteration (-m) (1, 4): not comp"),
        (["ring", "--ranks", "2", "-a", "1", "--", "--", "-a", "3"], "the ranks (-a) (1, 3)"),
        (["ring", "--ranks", "2", "-c", "0", "--", "--"], "ab compares checked bytes: use -c 1"),
        (["ring", "--ranks", "2", "--memory", "emulated", "--", "--", "--unpack", "none"],
         "another way to unpack (kernel, none)"),
        (["ring", "--ranks", "2", "--hdf5", "none", "--", "--"], "leave --hdf5 none out"),
        (["ring", "--ranks", "2", "--tolerance", "2", "--", "--"], "--tolerance (2)"),
        (["ring", "--ranks", "2", "--runs", "0", "--", "--"], "'--runs'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_launched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["ab", "--out", "x", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--hdf5", "-J", "--csv", "--save-config"])
def test_an_output_of_one_command_is_refused(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["ring", "--ranks", "2", "--sizes", "4K"]
    assert cli.main(["ab", "--out", "x", *common, "--", option, "o.x", "--"]) == 2
    assert f"{option}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_document_that_cannot_be_written_is_refused_before_anything_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["ring", "--ranks", "2", "--sizes", "4K"]
    assert cli.main(["ab", "--out", "x", "--json", "no/c.json", *common, "--", "--"]) == 2
    assert "--json: the directory no does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_gate_is_of_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.toml").write_text(
        '[gate]\nplugin = "p"\nranks = 2\nprovenance = "by hand"\n'
        '[[limit]]\npattern = "ring"\nmemory = "host"\nsize = "4K"\nbusbw_min = 1.0\n'
    )
    common = ["ring", "--ranks", "2", "--sizes", "4K", "--gate", "g.toml"]
    assert cli.main(["ab", "--out", "x", *common, "--", "--"]) == 2
    assert "--gate is of one command: leave it out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["g.toml"]
