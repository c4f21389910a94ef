"""Banned words are found wherever a line ends, and nowhere inside another word."""

from __future__ import annotations

import pytest
from banned_words import BANNED, nameless, places

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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a/both.py", ""),
        ("a/b.py", "def load_alike(): ..."),
        ("a/b.py", "class A:\n    def told(self): ..."),
        ("a/b.cc", "bool Group::whole() const {"),
        ("a/b.h", "size_t kept_of(size_t n);  // size_of(n)"),
    ],
)
def test_a_file_or_function_that_is_named_for_nothing_is_found(name: str, text: str) -> None:
    (found,) = nameless(name, text)
    assert found[0] == 1 + text.count("\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a/test_b.py", "def test_both_are_told(): ..."),
        ("a/b.py", "both = told(whole)"),
        ("a/b.cc", 'said = f("both(");  // told(x)'),
        ("a/b.cc", "A(size_t most) : kept_(most) {}"),
    ],
)
def test_variables_members_texts_and_names_of_tests_may_be_so(name: str, text: str) -> None:
    assert list(nameless(name, text)) == []
