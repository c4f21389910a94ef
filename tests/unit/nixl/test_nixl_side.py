"""A side's agents run in its turns alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tcpx_mpi.nixl.side import Side

LIMIT_S = 30.0


@pytest.fixture
def side() -> Iterator[Side]:
    made = Side("IDLE", "idle_nixl", "dram", 4096, False, {})
    for agent in made.agents:
        agent.answer()
    yield made
    made.end()
    assert not any(Path(f"/proc/{agent.pid}").exists() for agent in made.agents)


def states(side: Side, wanted: str) -> list[str]:
    """Of the agents, "T" if stopped; when they have been alike, or after a while."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        stats = [Path(f"/proc/{agent.pid}/stat").read_text() for agent in side.agents]
        found = ["T" if text.rpartition(")")[2].split()[0] == "T" else "runs" for text in stats]
        if set(found) == {wanted} or time.monotonic() > deadline:
            return found


def test_agents_are_stopped_between_turns_and_end_when_told(side: Side) -> None:
    with side.turn():
        assert states(side, "runs") == ["runs", "runs"]
        assert len(side.cpu_ns()) == 2
    assert states(side, "T") == ["T", "T"]
