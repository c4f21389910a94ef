"""Several threads of one program over one session, by every way to make progress."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from p2p_drivers import FOLDER, compile_program, package_flags


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = [*package_flags("--cflags", "--libs"), "-pthread"]
    return compile_program(
        FOLDER / "many_threads.cc", tmp_path_factory.mktemp("p2p") / "many_threads", flags
    )


@pytest.mark.parametrize("mode", ["caller", "thread", "one"])
def test_several_threads_post_and_wait_at_the_same_time(program: Path, mode: str) -> None:
    done = subprocess.run(
        [str(program), mode],
        env={**os.environ, "NCCL_SOCKET_IFNAME": "lo"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "0 wrong bytes of 3200000\n"), done.stderr
