"""A command whose output nobody reads to its end has the exit code that it would have had."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tcpx_mpi.errors import ExitCode

LIMIT_S = 120


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("preflight", "--plugin", "/nowhere.so"), ExitCode.PLUGIN_MISSING),
        (("--help",), ExitCode.OK),
        (("report", "/nowhere.h5"), ExitCode.USAGE),
    ],
)
def test_the_exit_code_is_kept_when_the_reader_closes_first(
    arguments: tuple[str, ...], code: ExitCode
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "tcpx_mpi", *arguments]
    done = subprocess.run(
        command, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S
    )
    os.close(writes)
    assert done.returncode == code, done.stderr
    assert "BrokenPipe" not in done.stderr
