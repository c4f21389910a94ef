"""The page of patterns has each of them: a row with its formula, and a picture of its steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tcpx_mpi import patterns

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "patterns.md").read_text()
PICTURES = "\n".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("name", list(patterns.NAMES))
def test_it_has_a_row_and_a_picture(name: str) -> None:
    assert [row for row in ROWS if f"`{name}`" in row.split("|")[1]], name
    drawn = re.search(rf"^`?{name}`?,", PAGE, re.MULTILINE)  # text, and its picture below it
    assert re.search(rf"\b{name}\b", PICTURES) or drawn, name


@pytest.mark.parametrize(
    ("name", "picture"), re.findall(r"(\w+)(?:, ring)?: ((?:\d->\d ? ?)+)", PICTURES)
)
def test_a_picture_of_four_ranks_has_the_messages_of_the_schedule(name: str, picture: str) -> None:
    if name not in ("pair", "ring", "gather", "scatter", "sendrecv", "fan_in"):
        return
    pattern = patterns.load(name)
    sent = {(rank, peer) for rank in range(4) for peer, _ in pattern.schedule(rank, 4).peers_sent}
    assert {(int(way[0]), int(way[3])) for way in picture.split()} == sent
