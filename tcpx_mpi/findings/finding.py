"""One finding: how bad it is, what it is called, what was seen, what to do, and the evidence."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Evidence = TypeVar("Evidence", covariant=True)


class Severity(str, enum.Enum):
    """The worst first. GOOD: as it should be, or of no harm."""

    BAD = "bad"
    DOUBTFUL = "doubtful"
    NOTE = ""
    GOOD = "good"


@dataclass(frozen=True)
class Finding(Generic[Evidence]):
    """One thing that a judge found. A warning of a run has no title of its own."""

    severity: Severity
    title: str
    text: str
    remedy: str = ""
    #: Where it was seen, in the form that its room has for that.
    evidence: Evidence | None = None


def worst_first(findings: Iterable[Finding[Evidence]]) -> list[Finding[Evidence]]:
    """In the order of severity; equals stay as they are."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))
