"""`make lint`: words that make a sentence hard to read stand in no page, help text or sentence.

python tests/banned_words.py    a line for each place, exit code 1 if there is one
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_WORDS = {"knob": "option", "a option": "an option"}
_OF_PYTHON = _WORDS | {"is told": "say who learns it", ", of which": "begin another sentence"}
_OF_PAGES = _OF_PYTHON | {"so many": "`number of ...`, or the name of the option"}
#: Where what is banned, each with what to write instead; `docs/reference/commands.md` is --help.
BANNED = {
    **dict.fromkeys(("docs/**/*.md", "*.md", "hostfiles/*", "jobs/*"), _OF_PAGES),
    "tcpx_mpi/**/*.py": _OF_PYTHON,
    **dict.fromkeys(("native/**/*.[ch]*", "tests/**/*.py"), _WORDS),
}
#: The first says what was; the others name the words.
_PASSED_OVER = ("CHANGELOG.md", "tests/banned_words.py", "tests/unit/docs/test_banned_words.py")


def places(text: str, banned: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The lines of a text where a banned word stands, also across the end of a line or of a
    comment's."""
    for word in banned:
        pattern = r"[\s#/\"*]+".join(word.split())
        start = "(?<![a-z])" if word[0].isalpha() else ""
        for found in re.finditer(rf"{start}{pattern}s?(?![a-z])", text, re.IGNORECASE):
            yield text.count("\n", 0, found.start()) + 1, word


def main() -> int:
    """Prints every place; the exit code."""
    count = 0
    for where, banned in BANNED.items():
        for path in sorted(REPOSITORY.glob(where)):
            name = str(path.relative_to(REPOSITORY))
            if name in _PASSED_OVER or not path.is_file():
                continue
            for line, word in places(path.read_text(), banned):
                print(f"{name}:{line}: `{word}` is banned: {banned[word]}")
                count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
