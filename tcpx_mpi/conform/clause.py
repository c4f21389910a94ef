"""What a clause of the contract is, and how a check of one ends."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcpx_mpi.conform.bench import Bench

OLDEST, NEWEST = 6, 12


class Verdict(enum.Enum):
    """How a clause came out."""

    PASS = "pass"
    FAIL = "fail"
    KNOWN = "known"
    NOT_OFFERED = "not offered"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Outcome:
    """A verdict and one line of reason. `hurts`: not of this break, if not."""

    verdict: Verdict
    reason: str
    hurts: bool = True


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


class Broken(Exception):
    """The plugin does not do what the clause says. `hurts`: NCCL, if the clause does."""

    def __init__(self, reason: str, hurts: bool = True) -> None:
        super().__init__(reason)
        self.hurts = hurts


class NotOffered(Exception):
    """The plugin need not do it, and does not."""


class NotTried(Exception):
    """It cannot be tried here."""
