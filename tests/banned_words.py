"""`make lint`: words that make a sentence hard to read stand in no page, help text or sentence, and
words that name nothing in no name of a file or function.

python tests/banned_words.py    a line for each place, exit code 1 if there is one
"""

from __future__ import annotations

import ast
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
#: No name of a file or function: none says what it owns or returns.
NAMELESS = {"told", "said", "kept", "whole", "alike", "both", "special", "moving"}
_NAMED = (
    "tcpx_mpi/**/*.py", "tcpx_mpi/*.pyi", "tests/**/*.py",
    *(f"{folder}/**/*.{kind}" for folder in ("native", "tests") for kind in ("cc", "h", "cu")),
)  # fmt: skip
#: Of C++ every call counts, and a variable made with arguments; comments and texts do not.
_COMMENT_OR_TEXT = re.compile(r"//.*|\"(?:\\.|[^\"\\\n])*\"")
_CALLED = re.compile(r"\b([A-Za-z]\w*[A-Za-z0-9])\(")
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


def named(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Of a source file: its own name and those of its functions, each with its line; those of
    tests are sentences."""
    yield 1, Path(name).stem
    if name.endswith((".py", ".pyi")):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.lineno, node.name
        return
    for number, line in enumerate(text.splitlines(), 1):
        for found in _CALLED.finditer(_COMMENT_OR_TEXT.sub("", line)):
            yield number, found[1]


def nameless(name: str, text: str) -> Iterator[tuple[int, str]]:
    """The lines of a source file whose name, or that of a function, is made of such a word."""
    for number, found in named(name, text):
        if not found.startswith("test_") and not NAMELESS.isdisjoint(found.lower().split("_")):
            yield number, found


def main() -> int:
    """Prints every place; the exit code."""
    count = 0
    for path in sorted({path for where in _NAMED for path in REPOSITORY.glob(where)}):
        name = str(path.relative_to(REPOSITORY))
        for line, found in nameless(name, path.read_text()):
            print(f"{name}:{line}: `{found}` names nothing: say what it owns or returns")
            count += 1
    for where, banned in BANNED.items():
        for path in sorted(REPOSITORY.glob(where)):
            name = str(path.relative_to(REPOSITORY))
            if name in _PASSED_OVER or "__pycache__" in path.parts or not path.is_file():
                continue
            for line, word in places(path.read_text(), banned):
                print(f"{name}:{line}: `{word}` is banned: {banned[word]}")
                count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
