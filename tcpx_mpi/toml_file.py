"""TOML files that a user names (settings, a profile, a placement, a gate), and values for them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tcpx_mpi.errors import UsageError


def read_toml(option: str, path: str, remedy: str) -> Mapping[str, Any]:
    """The top-level table of a file. `option` named it, `remedy` says where to look for its form.

    Raises UsageError, one line, for a file that cannot be read or is no TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8")
        # With a line break at the end, an error in the last line has its number too.
        loaded: dict[str, Any] = tomllib.loads(text + "\n")
    except FileNotFoundError:
        readers = "; every rank reads it" if option.startswith("--") else ""
        raise UsageError(f"{option}: {path}: no such file{readers}") from None
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no TOML: byte {error.start} is no UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        # Its text says the line and the column.
        raise UsageError(f"{path} is no TOML: {' '.join(str(error).split())}; {remedy}") from None
    return loaded


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
