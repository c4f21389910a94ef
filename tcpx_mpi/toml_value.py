"""Values as they are written in the TOML files of this program."""

from __future__ import annotations


def toml_value(value: object) -> str:
    """A value as it is written in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    return '"' + "".join(_escaped(letter) for letter in str(value)) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    # TOML forbids control characters within quotes, DEL among them.
    return letter if letter >= " " and letter != "\x7f" else f"\\u{ord(letter):04x}"
