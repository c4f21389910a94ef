"""Banned words are found wherever a line ends, and nowhere inside another word."""

from __future__ import annotations

import pytest
from banned_words import BANNED, places

ALL = BANNED["docs/**/*.md"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a\nrun is told", "is told"),
        ("a\n# Cut into so\n# many pieces", "so many"),
        ("a\n4 ranks, of\nwhich 2 wait", ", of which"),
        ("a\nA option", "a option"),
        ("a\n_KNOBS = 1", "knob"),
    ],
)
def test_a_banned_word_is_found_by_its_line(text: str, word: str) -> None:
    assert list(places(text, ALL)) == [(2, word)]


@pytest.mark.parametrize("text", ["kNobody", "extra options", "this toldo", "so manyfold"])
def test_a_part_of_another_word_is_none(text: str) -> None:
    assert list(places(text, ALL)) == []
