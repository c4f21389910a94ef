"""The suites of `make test SUITE=NAME`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import needs
import pytest
import suites
from suites import SUITES, TESTS, Suite


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_runs_what_is_there(name: str) -> None:
    command = suites.command_of(SUITES[name])
    paths = [part for part in command if part.startswith(str(TESTS))]
    assert paths
    assert all(Path(path).exists() for path in paths)
    assert not any("*" in part for part in command)
    # Of a folder and a file in it pytest 9 takes the folder alone, and so none but test_*.py.
    assert not [one for one in paths if str(Path(one).parent) in paths]
    # Of a folder and a file in it pytest 9 takes the folder alone, and so none but test_*.py.
    assert not [one for one in paths if str(Path(one).parent) in paths]


def test_every_suite_that_is_run_by_hand_can_be_collected() -> None:
    """What is not part of `make test` is found broken by it where it only has to be read."""
    files: set[str] = set()
    environ = dict(os.environ)
    for suite in SUITES.values():
        its_own = [part for part in suites.command_of(suite)[1:] if part.endswith(".py")]
        files |= {each for each in its_own if not Path(each).name.startswith("test_")}
        environ |= suite.environ
    files -= {str(TESTS / suite.script[0]) for suite in SUITES.values() if suite.script}
    assert len(files) > 10
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=TESTS.parent, env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{Path(path).name}::" in done.stdout for path in files), done.stdout


def nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program, no library, no module, no server, no root."""
    monkeypatch.setattr(suites, "path_of_suites", lambda: str(tmp_path))
    monkeypatch.setattr(needs, "_OF_PODMAN", ())
    monkeypatch.setattr(needs.ctypes, "CDLL", _fails)
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(needs.urllib.request, "urlopen", _fails)
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(needs.os, "access", lambda *_: False)


def _fails(*_: object, **__: object) -> None:
    raise OSError


def test_make_leaves_the_suites_their_own_defaults() -> None:
    """Those of one parser would be a hundred times those of all readers of files."""
    read = re.findall(r'environ\.get\("(\w+)", "', (TESTS / "suites.py").read_text())
    assert {"FUZZ_RUNS", "SOAK", "SEED"} <= set(read)
    makefile = (TESTS.parent / "Makefile").read_text()
    assert not [name for name in read if re.search(rf"\b{name}\b *[?:]?=", makefile)]


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_says_in_a_line_each_what_is_missing_and_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    def run(command: list[str], env: Mapping[str, str], cwd: Path) -> object:
        started.append(command)
        return subprocess.CompletedProcess(command, 0)

    nothing_here(monkeypatch, tmp_path)
    monkeypatch.setattr(needs.Path, "is_dir", lambda _: False)
    monkeypatch.setattr(suites.subprocess, "run", run)
    wanted = SUITES[name].needs
    assert suites.main([name]) == (2 if wanted else 0)
    assert bool(started) == (not wanted)
    _, errors = capsys.readouterr()
    assert errors.splitlines() == [f"SUITE={name} needs {n.what}: {n.get}" for n in wanted]
    assert all(need.get for need in wanted)


def test_a_slurm_without_pmix_is_told_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "munged",
                 "mpirun"):  # fmt: skip
        _program(tmp_path / name)
    monkeypatch.setattr(suites, "path_of_suites", lambda: str(tmp_path))
    monkeypatch.setattr(needs.ctypes, "CDLL", _fails)
    assert [need.what for need in suites.missing(SUITES["slurm"])] == ["libpmix.so"]


def test_one_of_several_programs_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suites, "path_of_suites", lambda: str(tmp_path))
    assert len(suites.missing(SUITES["browser"])) == 1
    _program(tmp_path / "google-chrome")
    assert suites.missing(SUITES["browser"]) == []


def test_a_compiler_is_asked_for_its_parts(tmp_path: Path) -> None:
    part = needs.part_of_compiler("cc", "libpart.so", "")
    assert not part.is_here(str(tmp_path))
    for said, here in (("libpart.so", False), ("/no/such/libpart.so", False),
                       (str(tmp_path / "cc"), True)):  # fmt: skip
        _program(tmp_path / "cc", f"echo {said}")
        assert part.is_here(str(tmp_path)) == here
    _program(tmp_path / "cc", "exit 1")
    assert not part.is_here(str(tmp_path))


def test_a_suite_may_need_nothing() -> None:
    assert suites.missing(Suite("of a test")) == []


def test_a_suite_that_is_none_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert suites.main(["units"]) == 2
    assert "none of unit, native, mpi" in capsys.readouterr().err


def _program(path: Path, body: str = "") -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_some_suite_runs_the_variants_of_a_folder() -> None:
    files = {path for path in TESTS.rglob("test_*.py") if "variant" in path.read_text()}
    folders = {path.relative_to(TESTS).parts[0] for path in files - {Path(__file__)}}
    suites_with_all = (suite.pytest for suite in SUITES.values() if "-m" in suite.pytest)
    whole = {each.removesuffix("/test_*.py") for arguments in suites_with_all for each in arguments}
    assert folders <= whole
