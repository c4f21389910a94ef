"""What was recorded is sent again: the same bytes by peer, in the same order, all checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invented_tap import Message, write_job
from jobs import run, tcpx_mpi
from variants import variant

from tcpx_mpi.tap.recording import read_recording

pytestmark = pytest.mark.multirank

RANKS = 3
MS = 1_000_000
PAUSE_MS = 40


def by_peer(folder: Path) -> dict[tuple[int, int], list[list[int]]]:
    """The sizes that were sent from one rank to another, in order, a list a connection that had
    any; which of two was open first is nobody's choice."""
    found: dict[tuple[int, int], dict[int, list[int]]] = {}
    for sender, receiver, lane, size in read_recording(str(folder)).messages.tolist():
        found.setdefault((sender, receiver), {}).setdefault(lane, []).append(size)
    return {way: sorted(lanes.values()) for way, lanes in found.items()}


@pytest.mark.parametrize("pattern", ["ring", variant("alltoall")])
def test_a_replay_moves_the_same_bytes_by_peer_and_in_order(pattern: str, place: Path) -> None:
    def through_the_tap(folder: str, *arguments: str) -> dict[tuple[int, int], list[list[int]]]:
        environ = {"TCPX_TAP_PLUGIN": "softtcpx", "TCPX_TAP_DIR": str(place / folder)}
        command = tcpx_mpi("run", *arguments, "--ranks", str(RANKS), "--plugin", "tap", "--hdf5",
                           "none")  # fmt: skip
        result = run(command, place, environ)
        assert result.code == 0, result.text
        assert "# Out of bounds values : 0 OK" in result.text
        return by_peer(place / folder)

    # Not of 8 bytes each: a message that took another's place would be seen.
    sizes = ("--sizes", "24001,1500007", "-n", "3", "-w", "0", "--channels", "2")
    recorded = through_the_tap("taps", pattern, *sizes)
    again = through_the_tap("again", "--replay", "taps", "--gaps", "0", "-n", "2", "-w", "0")
    assert again == {way: [2 * sent for sent in lanes] for way, lanes in recorded.items()}


def test_a_rank_pauses_over_the_plugin_and_over_every_baseline(place: Path) -> None:
    job = {
        (0, 1, 0): [Message(0, MS, 0, MS, 100_003),
                    Message((1 + PAUSE_MS) * MS, (2 + PAUSE_MS) * MS, MS, (2 + PAUSE_MS) * MS)],
        (1, 0, 0): [Message(0, MS, 0, MS, 70_001)],
    }  # fmt: skip
    write_job(place / "taps", job, 2)
    command = tcpx_mpi("run", "--replay", "taps", "--ranks", "2", "--plugin", "softtcpx",
                       "--against", "raw,mpi", "-n", "8", "-w", "0", "-J", "out.json", "--hdf5",
                       "none")  # fmt: skip
    result = run(command, place)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0]
    (found,) = json.loads((place / "out.json").read_text())["results"]
    # The second message cannot come before.
    least_gbps = found["size"] / (PAUSE_MS * MS)
    assert found["out_of_place"]["bus_bw"] <= least_gbps
    beside = {name: each["theirs_gbps"] for name, each in found["against"].items()}
    assert {"raw", "mpi"} <= beside.keys()
    assert all(bandwidth <= least_gbps for bandwidth in beside.values()), beside
