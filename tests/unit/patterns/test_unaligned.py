"""Buffers that begin elsewhere: everything a pattern promises holds, so many bytes further on."""

from __future__ import annotations

import pytest

from tcpx_mpi import patterns
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.patterns.unaligned import unaligned
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes, held_bytes
from tcpx_mpi.schedule.table import BufferId

WORLD = 4
ENGINE = EngineModel(8, 2, window_send=2, window_recv=2)


def forms(name: str) -> list[Pattern]:
    """Out of place, and in place where a program has that."""
    program = patterns.find_program(name)
    shape = "batch=9,hidden=4,experts=8,topk=2,dispatch=1"
    places = (False, True) if program.in_place and program.typed else (False,)
    return [
        program.pattern(
            Form(program.algos[0], 4 if program.typed else 1, in_place=place, load_bytes=70,
                 moe=shape, turns=2)
        )
        for place in places
    ]  # fmt: skip


@pytest.mark.parametrize("name", patterns.NAMES)
def test_a_pattern_keeps_its_promise_wherever_its_buffers_begin(name: str) -> None:
    for pattern in forms(name):
        shifted = unaligned(pattern, 12)
        size = 16 * WORLD * 3
        for one in shifted.rounds_run(WORLD, False):
            prove(one, WORLD, size, ENGINE, iterations=2)
        if shifted.turn is not None:
            prove(shifted.turn(1), WORLD, size, ENGINE)
        if shifted.loaded is not None and shifted.loaded.alone is not None:
            prove(shifted.loaded.alone, WORLD, size, ENGINE)


def test_every_byte_is_so_many_further_on_and_none_at_the_begin_is_touched() -> None:
    (mesh,) = forms("mesh")
    shifted = unaligned(mesh, 3)
    assert unaligned(mesh, 0) is mesh
    before, after = (expected_bytes(each, 1, WORLD, 10) for each in (mesh, shifted))
    assert (after[:, 0] == before[:, 0] + 3).all()
    assert (after[:, 3] == before[:, 3] + 3).all()
    for buffer in (BufferId.SEND, BufferId.RECV):
        table = shifted.layout(1, WORLD, 10)[buffer]
        assert table.offsets.tolist()[:2] == [0, 3]
    assert held_bytes(shifted, 1, WORLD, 10).tolist() == [[0, 13, 1, 0]]
