"""Into what raw TCP cuts a message."""

from __future__ import annotations

import dataclasses

import invented
import pytest

from tcpx_mpi import patterns
from tcpx_mpi.baselines.raw import cut
from tcpx_mpi.patterns.program import CHAIN, Form
from tcpx_mpi.schedule.table import Column, Op, Schedule, Wait

MIB = 1 << 20


@pytest.mark.parametrize(
    ("algo", "streams", "expected"),
    [("", 2, 16 * MIB), ("tree", 2, 16 * MIB), (CHAIN, 2, MIB // 2), (CHAIN, 64, MIB // 2)],
)
def test_a_message_is_a_stretch_a_stream_and_a_chain_has_the_plugins_chunks(
    algo: str, streams: int, expected: int
) -> None:
    facts = dataclasses.replace(invented.row_facts(0), algo=algo, chunk_bytes=MIB // 2)
    assert cut(32 * MIB, streams, facts) == expected
    assert cut(100, streams, facts) in (64, 128)


def passes_on(schedule: Schedule) -> bool:
    """Whether a send of this rank waits for what it receives, chunk by chunk."""
    ops = schedule.column(Column.OP)
    return any(
        bool(((schedule.column(pred) >= 0) & (schedule.column(wait) == Wait.CHUNK)
              & (ops == Op.SEND)).any())
        for pred, wait in ((Column.PRED0, Column.WAIT0), (Column.PRED1, Column.WAIT1))
    )  # fmt: skip


def test_the_chains_are_the_rings_of_programs() -> None:
    found = set()
    for name in patterns.PROGRAMS:
        program = patterns.find_program(name)
        for algo in program.algos:
            ranks = [program.pattern(Form(algo, 4)).schedule(rank, 4) for rank in range(4)]
            if any(passes_on(schedule) for schedule in ranks):
                found.add((name, algo))
    chains = {(name, algo) for name, algo in found if algo == CHAIN}
    assert {name for name, _ in chains} == {
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    }  # fmt: skip
    # Of the others a message makes logarithmically many hops.
    assert {algo for _, algo in found - chains} == {"doubling", "tree"}
