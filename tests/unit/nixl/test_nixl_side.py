"""A side's agents run in its turns alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from idle_side import idle_side

from tcpx_mpi.nixl.side import Side

LIMIT_S = 30.0


@pytest.fixture
def side() -> Iterator[Side]:
    made = idle_side()
    made.connect()
    yield made
    made.end()
    assert not any(Path(f"/proc/{agent.pid}").exists() for agent in made.agents.values())


def states(side: Side, wanted: str) -> list[str]:
    """Of the agents, "T" if stopped; when they have been alike, or after a while."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        stats = [Path(f"/proc/{agent.pid}/stat").read_text() for agent in side.agents.values()]
        found = ["T" if text.rpartition(")")[2].split()[0] == "T" else "runs" for text in stats]
        if set(found) == {wanted} or time.monotonic() > deadline:
            return found


def test_agents_are_stopped_between_turns_and_end_when_told(side: Side) -> None:
    with side.turn():
        assert states(side, "runs") == ["runs", "runs"]
        assert len(side.cpu_ns()) == 2
    assert states(side, "T") == ["T", "T"]


KILLED = """
import os, signal
from idle_side import idle_side
if __name__ == "__main__":
    side = idle_side()
    side.connect()
    with side.turn():
        pass
    print(*(agent.pid for agent in side.agents.values()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def ended(pid: str) -> bool:
    """A zombie has ended, too: who is to reap it is not ours."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def test_stopped_agents_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program, said = tmp_path / "killed.py", tmp_path / "said"
    program.write_text(KILLED)
    # Not a pipe: who is left would keep it open.
    with said.open("w") as out:
        done = subprocess.run(
            [sys.executable, str(program)], stdout=out, timeout=LIMIT_S,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    left = said.read_text().split()
    assert len(left) == 2
    deadline = time.monotonic() + LIMIT_S
    while (left := [pid for pid in left if not ended(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)  # a poll with a deadline: they are no children of ours
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert left == []
