"""Redaction: values whose names sound secret, and texts that look like a secret.

A result is given to others. `RunHeader` takes these out of the command, the settings, the
environment and the facts, however it was made, and the writer out of every text that it stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

REDACTED = "(redacted)"
#: Within a name, in any case.
_WORDS = ("TOKEN", "KEY", "PASS", "SECRET", "AUTH", "BEARER", "CREDENTIAL", "PWD")

_NAME = r"(?<![\w.-])([\w.-]+)="
#: NAME=VALUE in a text, and as a word of a command or a setting. In a word a value may have blanks
#: and commas: it ends at the next name.
_IN_TEXT = re.compile(_NAME + r"([^\s,;&\"']+)")
_IN_WORD = re.compile(_NAME + r"((?:(?!,\s*[\w.-]+=).)+)", re.DOTALL)
#: scheme://user:password@ and scheme://:password@.
#: A port is no secret: what follows the colon is, up to the last @ before a blank or a quote.
_OF_URL = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]*://[^\s/@:]*):(?!\d{1,5}/)[^\s\"']{1,256}@")
#: What some services give out begins alike wherever it stands.
_SHAPES = re.compile(
    r"(?<![\w-])(?:gh[a-z]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w.-]{20,}|hf_\w{20,}|sk-[\w-]{20,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_SHORTEST_SHAPE = 14
_SAID = re.compile(r"\b(Bearer|Basic) +[\w.~+/=-]{8,}", re.IGNORECASE)


def sounds_secret(name: str) -> bool:
    """Whether the value of a variable or an option is nobody else's."""
    return any(word in name.upper() for word in _WORDS)


def redacted_value(name: str, value: str) -> str:
    """The value of a name, as far as others may have it."""
    return REDACTED if value and sounds_secret(name) else redacted_text(value, _IN_WORD)


def redacted_words(words: Iterable[str]) -> list[str]:
    """The words of a command: an option that sounds secret takes the next one with it."""
    found: list[str] = []
    hides = False
    for word in words:
        found.append(REDACTED if hides else redacted_text(word, _IN_WORD))
        hides = word.startswith("-") and "=" not in word and sounds_secret(word)
    return found


def redacted_text(text: str, pairs: re.Pattern[str] = _IN_TEXT) -> str:
    """Any text without the secrets that can be told from it."""
    if "=" in text:
        text = pairs.sub(_pair, text)
    if "://" in text:
        text = _OF_URL.sub(rf"\1:{REDACTED}@", text)
    if len(text) >= _SHORTEST_SHAPE:
        text = _SHAPES.sub(REDACTED, text)
    return _SAID.sub(rf"\1 {REDACTED}", text) if " " in text else text


def _pair(found: re.Match[str]) -> str:
    return f"{found[1]}={REDACTED}" if sounds_secret(found[1]) else found[0]
