"""A clause of the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcpx_mpi.conform.bench import Bench

OLDEST, NEWEST = 6, 12


@dataclass(frozen=True)
class Clause:
    """One thing that a plugin has to do, and the check of it.

    `check` runs in a process of its own; it returns its reason to pass, or raises. `hurts`: NCCL of
    today is hurt where a plugin fails it. `needs`: clauses without which this one says nothing.
    `costly`: it moves so much that `--quick` leaves it out.
    """

    name: str
    check: Callable[[Bench], str]
    what: str
    why: str
    source: str
    nccl: str
    hurts: bool = True
    needs: tuple[str, ...] = ()
    since: int = OLDEST
    costly: bool = False
