"""TCPX_MPI_REQUIRE: a skip for lack of what must be there is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from variants import variant

TESTS = Path(__file__).resolve().parent.parent

SKIPS = """
import os
import pytest

def test_that_skips():
    pytest.skip("needs netns: nobody gave us any")

@pytest.mark.skipif(True, reason="needs compiler: none")
def test_that_is_marked():
    pass

def test_of_the_environment():
    assert not [name for name in os.environ if name.startswith(("NCCL_", "UCCL_", "TCPX_MPI_P"))]
"""


@pytest.mark.parametrize(
    ("required", "code", "summary"),
    [
        variant(None, 0, "1 passed, 2 skipped"),
        ("mpi", 0, "1 passed, 2 skipped"),
        variant("mpi, netns", 1, "1 failed, 1 passed, 1 skipped"),
        ("netns,compiler", 1, "1 failed, 1 passed, 1 error"),
    ],
)
def test_a_skip_for_lack_of_a_required_thing_fails(
    required: str | None, code: int, summary: str, tmp_path: Path
) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    folder = tmp_path / "mpi"  # a name that pytest-mpi takes for its marker
    folder.mkdir()
    (folder / "test_skips.py").write_text(SKIPS)
    environ = {**os.environ, "NCCL_DEBUG": "INFO", "UCCL_TCPX_DEBUG": "1", "TCPX_MPI_PARENT": "1"}
    environ.pop("TCPX_MPI_REQUIRE", None)
    if required is not None:
        environ["TCPX_MPI_REQUIRE"] = required
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rsf", "--rootdir",
               str(tmp_path), str(tmp_path)]  # fmt: skip
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout
    assert f" {summary} in " in done.stdout, done.stdout
    if code:
        assert "TCPX_MPI_REQUIRE names netns" in done.stdout
