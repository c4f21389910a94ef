"""Figures within the sentence of a finding."""

from __future__ import annotations


def percent(part: int, whole: int) -> str:
    """A percentage that says 100 only of the whole."""
    if whole <= 0:
        return "n/a"
    share = 100 * part / whole
    if part < whole:
        share = min(share, 99.99)
    return f"{share:.4g} %"
