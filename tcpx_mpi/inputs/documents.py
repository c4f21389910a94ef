"""JSON and TOML of a user: bounded in bytes, in depth and in the numbers in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs.opening import Input, Limits, read_text

#: A value in JSON takes up to 25 times its bytes as an object of Python.
JSON = Limits(bytes=16 << 20, lines=4 << 20)
TOML = Limits(bytes=1 << 20, lines=1 << 16)
_MOST_VALUES = 1 << 20
#: No file of ours has more than 6.
_DEPTH = 32
#: Parts of a key, a.b.c. Parsers of TOML take the square of their number.
_KEY_PARTS = 16
#: A number of JSON is text until somebody takes it for a count; TOML's are ours.
_DIGITS = 64
_MOST = (1 << 63) - 1


def read_json(path: str, named: str = "", remedy: str = "") -> Any:
    """The document in a file. Raises UsageError for what cannot be read, or is none."""
    text = read_text(path, JSON, named, remedy)
    try:
        return parse_json(text)
    except ValueError as error:
        raise Input(path, JSON, named, remedy).refused(f"no JSON ({error})") from None


def parse_json(text: str) -> Any:
    """The document in a text. Raises ValueError, one line, for what is none, and for more depth or
    longer numbers than any of ours has."""
    if text.count("[") + text.count("{") > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} lists and objects")
    try:
        document = json.loads(text, parse_int=_bounded_integer)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    _check(document, 10**_DIGITS)
    return document


def read_toml(option: str, path: str, remedy: str) -> Mapping[str, Any]:
    """The top-level table of a file. `option` named it, `remedy` says where to look for its form.

    Raises UsageError, one line, for a file that cannot be read or is no TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    readers = "every rank reads it" if option.startswith("--") else ""
    text = read_text(path, TOML, f"{option}: {path}", readers)
    try:
        _refuse_depth(text)
        # With a line break at the end, an error in the last line has its number too.
        loaded: dict[str, Any] = tomllib.loads(text + "\n")
        _check(loaded, _MOST)
    except RecursionError:
        raise UsageError(f"{path} is no TOML: {_too_deep()}; {remedy}") from None
    except ValueError as error:  # TOMLDecodeError is one: it says the line and the column
        raise UsageError(f"{path} is no TOML: {' '.join(str(error).split())}; {remedy}") from None
    return loaded


def _check(document: object, largest: int) -> None:
    """Raises ValueError for a larger number, and for more depth than any of ours."""
    level = [document]
    for _ in range(_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, int) and abs(value) > largest:
                raise ValueError(f"a number is larger than {largest}")
        if not inner:
            return
        level = inner
    raise ValueError(_too_deep())


def _bounded_integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _too_deep() -> str:
    return f"lists or tables within each other more than {_DEPTH} deep"


def _refuse_depth(text: str) -> None:
    """Raises ValueError for TOML whose lists, tables or keys are deeper than any of ours, before a
    parser that recurses sees it. Counts outside of texts and comments, which it can find."""
    depth = parts = position = 0
    while position < len(text):
        letter = text[position]
        if letter in "\"'":
            quote = letter * 3 if text.startswith(letter * 3, position) else letter
            position = _end_of_text(text, position + len(quote), quote)
            continue
        if letter == "#":
            position = text.find("\n", position)
            if position < 0:
                return
            continue
        if letter in "[{":
            depth += 1
        elif letter in "]}":
            depth = max(depth - 1, 0)
        parts = parts + 1 if letter == "." else parts if letter not in "\n=,[]{}" else 0
        if depth > _DEPTH or parts > _KEY_PARTS:
            line = text.count("\n", 0, position) + 1
            raise ValueError(f"{_too_deep()} (at line {line})")
        position += 1


def _end_of_text(text: str, position: int, quote: str) -> int:
    """The end of a text whose first letter is there."""
    while position < len(text):
        if text[position] == "\\" and quote[0] == '"':
            position += 2
        elif text.startswith(quote, position):
            return position + len(quote)
        elif text[position] == "\n" and len(quote) == 1:
            return position
        else:
            position += 1
    return position
