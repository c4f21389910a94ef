"""All clauses, in the order in which they are tried: what one needs stands before it."""

from __future__ import annotations

from tcpx_mpi.conform import (
    connecting,
    devices,
    ending,
    flushing,
    gpu_memory,
    lost,
    messages,
    optional,
    starting,
)  # fmt: skip
from tcpx_mpi.conform.clause import Clause


def _in_order(clauses: tuple[Clause, ...]) -> tuple[Clause, ...]:
    placed: dict[str, Clause] = {}
    waiting = list(clauses)
    while waiting:
        ready = [clause for clause in waiting if all(need in placed for need in clause.needs)]
        assert ready, f"a circle among {[clause.name for clause in waiting]}"
        placed.update({ready[0].name: ready[0]})
        waiting.remove(ready[0])
    return tuple(placed.values())


CLAUSES = _in_order(
    starting.CLAUSES
    + devices.CLAUSES
    + connecting.CLAUSES
    + messages.CLAUSES
    + optional.CLAUSES
    + flushing.CLAUSES
    + gpu_memory.CLAUSES
    + lost.CLAUSES
    + ending.CLAUSES
)
BY_NAME = {clause.name: clause for clause in CLAUSES}
#: Without these a plugin does not start at all.
START = ("table", "init", "devices")


def with_needs(name: str) -> tuple[Clause, ...]:
    """A clause and all that it needs, in order."""
    wanted = {name}
    for clause in reversed(CLAUSES):
        if clause.name in wanted:
            wanted.update(clause.needs)
    return tuple(clause for clause in CLAUSES if clause.name in wanted)
