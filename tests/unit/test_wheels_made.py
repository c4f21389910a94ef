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
    found = make_wheels.one_of_each(pythons)
    assert found == {(3, 10): str(tmp_path / "ten"), (3, 12): str(tmp_path / "new")}


def test_a_python_that_cannot_be_is_refused_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "dist" / "kept.whl"
    kept.parent.mkdir()
    kept.touch()
    assert make_wheels.main([str(kept.parent), fake(tmp_path, "old", "cpython 3 9")]) == 2
    assert "is no CPython of 3.10 or later" in capsys.readouterr().err
    assert kept.exists()
