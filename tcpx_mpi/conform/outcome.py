"""The outcome of a clause's check: a verdict and a reason, or what it raises."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """The verdict on a clause."""

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


class Broken(Exception):
    """The plugin does not do what the clause says. `hurts`: NCCL, if the clause does."""

    def __init__(self, reason: str, hurts: bool = True) -> None:
        super().__init__(reason)
        self.hurts = hurts


class NotOffered(Exception):
    """The plugin need not do it, and does not."""


class NotTried(Exception):
    """It cannot be tried here."""
