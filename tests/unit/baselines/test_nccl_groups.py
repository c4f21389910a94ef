"""Schedules as NCCL's groups: they move what the pattern promises, and stop nowhere."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tcpx_mpi import patterns
from tcpx_mpi.baselines.nccl.groups import Piece, groups_of
from tcpx_mpi.patterns import repeated
from tcpx_mpi.patterns.program import BY_SENDS
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes
from tcpx_mpi.schedule.table import BufferId

Groups = list[list[Piece]]

#: Other programs are collectives of NCCL, and peers have no lanes.
MOVING = [
    name for name in patterns.NAMES
    if patterns.find_program(name).nccl == BY_SENDS and name != "loaded_pingpong"
]  # fmt: skip


def groups(pattern: Pattern, rank: int, world: int, size: int) -> Groups:
    schedule, layout = pattern.schedule(rank, world), pattern.layout(rank, world, size)
    return groups_of(schedule, layout, rank)


def moved(pattern: Pattern, world: int, size: int) -> list[bytes]:
    """What the RECV buffers hold in the end, under NCCL's rules: the n-th send of a rank to
    another meets the n-th receive there, and a group is done when all of it is done."""
    everybody = [groups(pattern, rank, world, size) for rank in range(world)]
    memory = [
        {buffer: np.zeros(table.total_bytes, np.uint8) for buffer, table in
         pattern.layout(rank, world, size).items()}
        for rank in range(world)
    ]  # fmt: skip
    for rank in range(world):
        memory[rank][BufferId.SEND][:] = payload(rank, memory[rank][BufferId.SEND].size)
    left = [[list(group) for group in each] for each in everybody]
    while any(left):
        # What every rank has posted by now: all of the group that it has come to.
        posted = {(rank, piece.sends, piece.peer): piece for rank in range(world) if left[rank]
                  for piece in reversed(left[rank][0])}  # fmt: skip
        met = False
        for (rank, sends, peer), piece in posted.items():
            if not sends or (peer, False, rank) not in posted:
                continue
            other = posted[peer, False, rank]
            assert piece.length == other.length
            data = memory[rank][piece.buffer][piece.offset :][: piece.length]
            memory[peer][other.buffer][other.offset :][: other.length] = data
            for who, what in ((rank, piece), (peer, other)):
                left[who][0].remove(what)
            met = True
        left = [[group for group in each if group] for each in left]
        assert met, f"nobody can go on: {left}"
    return [memory[rank][BufferId.RECV].tobytes() for rank in range(world)]


def payload(rank: int, size: int) -> np.ndarray:
    return ((np.arange(size) * 7 + rank * 31) % 251).astype(np.uint8)


@pytest.mark.parametrize("messages", [1, 3])
@pytest.mark.parametrize("name", MOVING)
def test_every_pattern_arrives(name: str, messages: int) -> None:
    for world in range(2, 6):
        whole = patterns.load(name)
        if whole.refuse(world) is not None:
            continue
        for single in whole.rounds_run(world, True):
            pattern = repeated(single, messages)
            for size in (1, world, 131):
                found = moved(pattern, world, size)
                for rank in range(world):
                    for at, length, origin, offset in expected_bytes(pattern, rank, world, size):
                        sends = pattern.layout(origin, world, size)[BufferId.SEND]
                        sent = payload(int(origin), sends.total_bytes)[offset:][:length].tobytes()
                        assert found[rank][at : at + length] == sent, (world, size, rank)


def test_what_waits_for_nothing_is_one_group_and_an_answer_the_next() -> None:
    ring = groups(patterns.load("ring"), 1, 3, 10)
    assert ring == [[Piece(False, 0, BufferId.RECV, 0, 10), Piece(True, 2, BufferId.SEND, 0, 10)]]
    pingpong = patterns.load("pingpong")
    assert [len(group) for group in groups(pingpong, 0, 2, 10)] == [2]
    assert groups(pingpong, 1, 2, 10) == [
        [Piece(False, 0, BufferId.RECV, 0, 10)],
        [Piece(True, 0, BufferId.SEND, 0, 10)],
    ]


def test_a_copy_is_a_message_to_oneself() -> None:
    (group,) = groups(patterns.load("mesh"), 1, 3, 9)
    to_self = [piece for piece in group if piece.peer == 1]
    assert to_self == [
        Piece(True, 1, BufferId.SEND, 3, 3),
        Piece(False, 1, BufferId.RECV, 3, 3),
    ]
    assert Counter(piece.sends for piece in group) == {True: 3, False: 3}


@pytest.mark.parametrize("name", MOVING)
def test_an_empty_message_is_none(name: str) -> None:
    assert groups(patterns.load(name), 0, 4, 0) == []
    lengths = [piece.length for group in groups(patterns.load("mesh"), 3, 4, 2) for piece in group]
    assert lengths == [1, 1], "two of four ranks get a byte"
