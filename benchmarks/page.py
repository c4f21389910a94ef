"""Figures of docs pages by their keys in docs/evidence/measured.json.

Usage: python benchmarks/page.py --write

A page writes `<!--KEY-->figure<!---->`; this puts the median (lowest - highest) of KEY's values in.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "reference" / "performance.md"
MEASURED = REPOSITORY / "docs" / "evidence" / "measured.json"
CITED = re.compile(r"<!--([^\s<>]+?)-->.*?<!---->")


def rendered(page: str) -> str:
    """The page with every cited figure made anew. Raises KeyError for an unknown key."""
    measured = json.loads(MEASURED.read_text())
    return CITED.sub(
        lambda cited: f"<!--{cited[1]}-->{figure(measured[cited[1]]['values'])}<!---->", page
    )


def figure(values: Sequence[float]) -> str:
    """Median (lowest - highest), three digits each."""
    middle, low, high = (
        f"{each:.3g}" if each < 1000 else f"{each:.0f}"
        for each in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} ({low} - {high})"


if __name__ == "__main__":
    text = PAGE.read_text()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(rendered(text))
    elif rendered(text) != text:
        sys.exit("docs/reference/performance.md does not say what measured.json does: use --write")
