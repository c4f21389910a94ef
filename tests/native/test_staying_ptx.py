"""Whether staying_ptx.cc is of the sources as they are; no compiler of CUDA is asked."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import make_ptx
import pytest


def test_the_ptx_of_kernels_that_stay_was_made_of_the_sources_as_they_are() -> None:
    made = make_ptx.MADE.read_text()
    assert f"// Source: {make_ptx.digest()}\n" in made, (
        "staying.cu or what it includes has changed: run "
        f"{Path(sys.executable).name} {make_ptx.__file__} LIBNVRTC (CUDA 11.8's)"
    )


@pytest.mark.parametrize("part", ["staying/staying.cu", "staying/letter.h", "cuda/moves.h"])
def test_a_change_of_any_source_makes_the_ptx_stale(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = make_ptx.digest()
    for each in make_ptx.PARTS:
        copy = tmp_path / each
        copy.parent.mkdir(exist_ok=True)
        copy.write_text((make_ptx.NATIVE / each).read_text() + ("\n// other" * (each == part)))
    monkeypatch.setattr(make_ptx, "NATIVE", tmp_path)
    assert make_ptx.digest() != before


def test_the_ptx_is_of_the_files_that_the_engine_compiles_at_run_time() -> None:
    cmake = (make_ptx.NATIVE / "CMakeLists.txt").read_text()
    assert f"read_kernel(STAYING_SOURCE {' '.join(make_ptx.PARTS)})" in cmake
    texts = [(make_ptx.NATIVE / part).read_text() for part in make_ptx.PARTS]
    assert set(re.findall('#include "(.*)"', "".join(texts))) <= set(make_ptx.PARTS)
