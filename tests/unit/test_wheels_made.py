"""Which Pythons `make wheel` makes a wheel for: one of each kind, the first that is found."""

from __future__ import annotations

from pathlib import Path

import make_wheels
import pytest


def fake(folder: Path, name: str, answer: str, code: int = 0) -> str:
    python = folder / name
    python.write_text(f"#!/bin/sh\necho {answer}\nexit {code}\n")
    python.chmod(0o755)
    return str(python)


def test_one_wheel_serves_every_version_with_the_stable_abi(tmp_path: Path) -> None:
    pythons = [
        fake(tmp_path, "old", "cpython 3 9"),
        fake(tmp_path, "new", "cpython 3 14"),
        fake(tmp_path, "another", "cpython 3 12"),
        fake(tmp_path, "ten", "cpython 3 10"),
        fake(tmp_path, "pypy", "pypy 3 11"),
        fake(tmp_path, "shim", "command not found", code=127),
        str(tmp_path / "none"),
    ]
    found = make_wheels.by_kind(pythons)
    assert found == {
        (3, 10): [str(tmp_path / "ten")],
        (3, 12): [str(tmp_path / "new"), str(tmp_path / "another")],
    }


def test_a_python_that_cannot_be_is_refused_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "dist" / "kept.whl"
    kept.parent.mkdir()
    kept.touch()
    assert make_wheels.main([str(kept.parent), fake(tmp_path, "old", "cpython 3 9")]) == 2
    assert "is no CPython of 3.10 or later" in capsys.readouterr().err
    assert kept.exists()


def test_a_python_that_cannot_build_has_a_line_and_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {(3, 10): ["ten"], (3, 11): ["broken", "good"], (3, 12): ["last"]}
    asked = []

    def build(python: str, raw: Path) -> str:
        asked.append(python)
        return "no Python.h" if python in ("ten", "broken") else ""

    monkeypatch.setattr(make_wheels, "build", build)
    assert make_wheels.built(kinds, tmp_path) == [(3, 11), (3, 12)]
    assert asked == ["ten", "broken", "good", "last"]
    assert capsys.readouterr().err.splitlines() == [
        "no wheel for CPython 3.10 by ten: no Python.h",
        "no wheel for CPython 3.11 by broken: no Python.h",
    ]


def test_what_pip_prints_of_a_python_that_cannot_build_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    why = make_wheels.build(fake(tmp_path, "python3.12", "cpython 3 12", 1), tmp_path)
    assert why
    assert "\n" not in why


def test_a_shim_that_starts_nothing_gives_way_to_the_next_in_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, code in (("shims", 127), ("usr", 0)):
        (tmp_path / folder).mkdir()
        fake(tmp_path / folder, "python3.11", "cpython 3 11", code)
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:{tmp_path}/usr:/bin")
    found = make_wheels.in_path("python3.11")[:2]
    assert found == [f"{tmp_path}/shims/python3.11", f"{tmp_path}/usr/python3.11"]
    assert make_wheels.by_kind(found) == {(3, 11): [found[1]]}


def test_headers_of_the_machines_name_are_there_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_wheels, "BUILD", tmp_path / "build")
    (tmp_path / "usr" / "x86_64-linux-gnu" / "python3.11").mkdir(parents=True)
    (tmp_path / "usr" / "x86_64-linux-gnu" / "sys").mkdir()
    folder = make_wheels.headers(tmp_path / "usr")
    found = [str(each.relative_to(folder)) for each in folder.rglob("*")]
    assert sorted(found) == ["x86_64-linux-gnu", "x86_64-linux-gnu/python3.11"]


def test_one_installation_by_two_names_is_asked_once(tmp_path: Path) -> None:
    python = fake(tmp_path, "python3.11", "cpython 3 11")
    (tmp_path / "python3").symlink_to(python)
    assert make_wheels.by_kind([python, str(tmp_path / "python3")]) == {(3, 11): [python]}
