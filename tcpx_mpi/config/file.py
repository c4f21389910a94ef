"""The TOML file of `--config` and `--save-config`: one key an option, named like its long option.

Pure but for opening the file. A bad file is one line: its name, line or key, what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tcpx_mpi.config.option import Option
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import read_toml
from tcpx_mpi.secrets import redacted_value
from tcpx_mpi.slips import did_you_mean
from tcpx_mpi.toml_value import toml_value

#: Keys that are no option: what `run` takes as its argument.
PATTERN = "pattern"

_IN_FILE = {option.name: option for option in OPTIONS if option.in_file}
_REMEDY = "see `tcpx-mpi run --help-all`, or start from a file that --save-config wrote"


def read_config(path: str) -> dict[str, object]:
    """The parsed values in a file by name of option, and "pattern" where it has one.

    Raises UsageError for a file that cannot be read or is no TOML, for an unknown key, and for
    a value of a wrong type or out of bounds.
    """
    values: dict[str, object] = {}
    for key, value in read_toml("--config", path, _REMEDY).items():
        where = f"{path}: {key}"
        if key == PATTERN:
            values[key] = _text(where, value, (str,), "a text in quotes")
        elif key in _IN_FILE:
            option = _IN_FILE[key]
            values[key] = option.parse(where, _text(where, value, *_expected(option)))
        else:
            meant = did_you_mean(key.replace("-", "_"), [*_IN_FILE, PATTERN])
            raise UsageError(f"{where} is no setting{meant}: {_REMEDY}")
    return values


def config_text(pattern: str, values: Iterable[tuple[Option, object, str]]) -> str:
    """The text of a file that `read_config` reads back to these values: (option, value, source).

    A value of None is the option's default, which TOML cannot write; its line is a comment, as is
    that of a secret.
    Raises UsageError for a text that is no UTF-8.
    """
    lines = ["# Settings of a run of tcpx-mpi: tcpx-mpi run --config FILE", ""]
    lines.append(f"{PATTERN} = {toml_value(pattern)}")
    for option, value, source in values:
        note = "".join(letter if letter.isprintable() else "?" for letter in source)
        if value is None:
            lines.append(f"# {option.name}: not set")
        elif _is_secret(option.name, value):
            lines.append(f"# {option.name}: has a secret, which no file keeps: give it anew")
        else:
            lines.append(f"{option.name} = {toml_value(value)}  # {note}")
    text = "\n".join(lines) + "\n"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            "--save-config: a setting has bytes that are no UTF-8, which TOML cannot hold: "
            "rename the file or directory that it names"
        ) from None
    return text


def _is_secret(name: str, value: object) -> bool:
    texts = value if isinstance(value, tuple) else (value,)
    return any(isinstance(t, str) and redacted_value(name, t) != t for t in texts)


def _expected(option: Option) -> tuple[tuple[type, ...], str]:
    """The types of TOML that an option takes, and how an error calls them."""
    if isinstance(option.default, bool):
        return (bool,), "true or false"
    if option.metavar == "R,..":
        return (int, float, str, list), "a number, or a list such as [1000, 5000]"
    if isinstance(option.default, tuple):
        names = ", ".join(f'"{name}"' for name in option.metavar.split(","))
        example = '4096, "64K"' if option.metavar.startswith("SIZE") else names
        return (list, str), f"a list such as [{example}]"
    if option.metavar == "RANK|all":
        return (int, str), 'a rank, or "all"'
    if isinstance(option.default, float) and option.metavar != "TIME":
        return (int, float), "a number"
    if isinstance(option.default, float):
        return (int, float, str), 'a time such as 30 or "500ms"'
    if option.metavar == "SIZE":
        return (int, str), 'a size such as 4096 or "4K"'
    if isinstance(option.default, int) or option.metavar == "N":
        return (int,), "a whole number"
    return (str,), "a text in quotes"


def _text(where: str, value: Any, types: tuple[type, ...], expected: str) -> str:
    """A value of one of these types as it would be typed on the command line."""
    # In Python true is an int; in TOML it is none.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise UsageError(f"{where} ({_shown(value)}) is {_kind(value)}: expected {expected}")
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:f}" if value.is_integer() else repr(value)
    if isinstance(value, list):
        items = tuple({int, str, *types} - {list})
        return ",".join(_text(where, item, items, expected) for item in value) or "none"
    return str(value)


def _kind(value: Any) -> str:
    names = {bool: "a switch", int: "a whole number", float: "a number", str: "a text",
             list: "a list", dict: "a table"}  # fmt: skip
    return names.get(type(value), "a date or time")


def _shown(value: Any, limit: int = 40) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= limit else f"{text[:limit]}..."
