"""Makes values of the text of an option or a variable; `label` names it in the error.

Every parser raises UsageError in one line: what, found, limit, what to do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from tcpx_mpi.cpu_lists import cpu_list_text, parse_cpu_list
from tcpx_mpi.errors import UsageError
from tcpx_mpi.slips import did_you_mean
from tcpx_mpi.units import format_size_option, parse_duration, parse_size

#: No machine has buffers for more; it keeps every offset well inside 64 bits.
MAX_SIZE_BYTES = 1 << 40

#: (label, text) -> value
Parser = Callable[[str, str], object]


def any_text(label: str, text: str) -> str:
    """The text itself, which must not be empty."""
    if not text.strip():
        raise UsageError(f"{label} is empty: give a value, or leave it out")
    return text


def output_path(label: str, text: str) -> str | None:
    """A path, or None (the default) for nothing."""
    return text or None


def one_of(*allowed: str, elsewhere: Mapping[str, str] | None = None) -> Callable[[str, str], str]:
    """A parser of a few words, in either case; `elsewhere` has what others call some of them."""

    def parse(label: str, text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            meant = did_you_mean(word, allowed, elsewhere)
            raise UsageError(f"{label} ({text}) is unknown{meant}: use one of {', '.join(allowed)}")
        return word

    return parse


def one_number_of(*allowed: int) -> Callable[[str, str], int]:
    """A parser of a few whole numbers."""

    def parse(label: str, text: str) -> int:
        number = _integer(label, text)
        if number not in allowed:
            listed = ", ".join(str(value) for value in allowed)
            raise UsageError(f"{label} ({text}) is unknown: use one of {listed}")
        return number

    return parse


def integer(minimum: int, maximum: int | None = None, limit: str = "") -> Callable[[str, str], int]:
    """A parser of whole numbers; `limit` says what the maximum is."""

    def parse(label: str, text: str) -> int:
        number = _integer(label, text)
        if number < minimum:
            raise UsageError(f"{label} ({number}) is too small; use {minimum} or more")
        if maximum is not None and number > maximum:
            raise UsageError(
                f"{label} ({number}) is larger than {limit} ({maximum}); use {maximum} or less"
            )
        return number

    return parse


def size(
    minimum: int, maximum: int = MAX_SIZE_BYTES, limit: str = "any buffer here"
) -> Callable[[str, str], int]:
    """A parser of sizes in bytes; `limit` says what the maximum is."""

    def parse(label: str, text: str) -> int:
        try:
            size_bytes = parse_size(text)
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from None
        if size_bytes < minimum:
            least = format_size_option(minimum)
            raise UsageError(f"{label} ({text}) is too small; use {least} or more")
        if size_bytes > maximum:
            most = format_size_option(maximum)
            raise UsageError(
                f"{label} ({text}) is larger than {limit} ({most}); use {most} or less"
            )
        return size_bytes

    return parse


def size_list(label: str, text: str) -> tuple[int, ...]:
    """Sizes with commas between them, in the order given."""
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError(f"{label} ({text}) lists no size; write it like 4K,64K,1M")
    return tuple(size(0)(label, part) for part in parts)


def paths_of(label: str, text: str) -> tuple[str, ...]:
    """Paths with commas between them, or none."""
    if text.strip() == "none":
        return ()
    paths = tuple(part.strip() for part in text.split(",") if part.strip())
    if not paths:
        raise UsageError(f"{label} ({text}) names no file; write it like a.txt,b.txt")
    return paths


def root_or_all(label: str, text: str) -> str:
    """The number of a rank, or all; kept as text."""
    word = text.strip().lower()
    if word == "all":
        return word
    try:
        return str(integer(0)(label, word))
    except UsageError:
        raise UsageError(f"{label} ({text}) is no rank; use a number from 0, or all") from None


def split_of(operations: Sequence[str]) -> Callable[[str, str], str]:
    """A parser of how ranks make groups: an operation and a number, like MOD 8, % 0x8 or AND 0b11.

    A number alone goes with the only operation there is, where there is but one. The text that it
    gives has the operation as a word and a decimal number.
    """

    def parse(label: str, text: str) -> str:
        found = re.fullmatch(r"\s*([A-Za-z]+|[&|%/])?\s*(\w+)\s*", text)
        word, number = found.groups() if found else (None, "")
        word = (word or (operations[0] if len(operations) == 1 else "")).upper()
        operation = _SPLIT_SIGNS.get(word, word)
        try:
            value = int(number, 0) if number[:2].lower() in ("0x", "0b") else int(number, 10)
        except ValueError:
            value = -1
        if operation not in operations or value < 0:
            forms = " ".join(f"{name} N," for name in operations).rstrip(",")
            raise UsageError(
                f"{label} ({text}) makes no groups; write {forms}, with N decimal, 0x... or 0b..."
            )
        if value == 0 and operation in ("MOD", "DIV"):
            raise UsageError(f"{label} ({text}) divides by 0; use a number above 0")
        return f"{operation} {value}"

    return parse


_SPLIT_SIGNS = {"&": "AND", "|": "OR", "%": "MOD", "/": "DIV"}


def factor(label: str, text: str) -> float:
    """A number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{label} ({text}) is no factor; use a number from 0 on, like 0.5")
    return value


def gaps(label: str, text: str) -> float:
    """What idle times are multiplied by; `keep` is 1."""
    return 1.0 if text.strip() == "keep" else factor(label, text)


def rate(label: str, text: str) -> float:
    """A number of times a second, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-3 <= value <= 1e9:
        raise UsageError(
            f"{label} ({text}) is no rate; use iterations a second, from 0.001 to 1e9, like 5000"
        )
    return value


def rates(label: str, text: str) -> tuple[float, ...]:
    """Rates with commas between them, in the order given, or none."""
    if text.strip() == "none":
        return ()
    return tuple(rate(label, part) for part in text.split(","))


def part(label: str, text: str) -> float:
    """A part of a whole, from 0 to 1."""
    value = factor(label, text)
    if value > 1:
        raise UsageError(f"{label} ({text}) is more than all; use a number from 0 to 1")
    return value


def names_of(known: Sequence[str], or_none: bool = True) -> Callable[[str, str], tuple[str, ...]]:
    """A parser of names with commas between them, each at most once; `none` for no name."""

    def parse(label: str, text: str) -> tuple[str, ...]:
        if or_none and text.strip() == "none":
            return ()
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if not names:
            raise UsageError(f"{label} ({text}) has no name; use one or more of {', '.join(known)}")
        for name in names:
            if name not in known or names.count(name) > 1:
                what = (
                    "is there twice" if name in known else f"is unknown{did_you_mean(name, known)}"
                )
                raise UsageError(f"{label}: {name} {what}; use one or more of {', '.join(known)}")
        return names

    return parse


def baselines_of(known: Sequence[str], plugin: str) -> Callable[[str, str], tuple[str, ...]]:
    """A parser of names with commas between them; one may begin with `plugin`."""
    by_name = names_of([name for name in known if not name.startswith(plugin)])

    def parse(label: str, text: str) -> tuple[str, ...]:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        plugins = [part for part in parts if part.startswith(plugin)]
        if not plugins:
            return by_name(label, text)
        if len(plugins) > 1 or plugins[0] == plugin:
            raise UsageError(
                f"{label} ({text}) must name one other plugin; write it like {plugin}B.so"
            )
        others = [part for part in parts if part not in plugins]
        named = by_name(label, ",".join(others)) if others else ()
        return tuple(part for part in parts if part in named or part in plugins)

    return parse


def variables_of(prefix: str, held: Sequence[str]) -> Callable[[str, str], tuple[str, ...]]:
    """A parser of NAME=VALUE with commas between them; a part without a name belongs to the value
    before it. Names begin with `prefix`, and are none of those `held`; `none` for nothing."""

    def parse(label: str, text: str) -> tuple[str, ...]:
        found: list[str] = []
        for part in [] if text.strip() == "none" else text.split(","):
            name, equals, value = part.strip().partition("=")
            if not equals and name and found:
                found[-1] += f",{part.strip()}"
                continue
            if not name.startswith(prefix) or name == prefix or not equals or not value:
                raise UsageError(
                    f"{label} ({part}) sets no variable of that kind; write it like "
                    f"{prefix}NAME=VALUE,{prefix}OTHER=VALUE"
                )
            if any(each.startswith(f"{name}=") for each in found):
                raise UsageError(f"{label}: {name} is there twice; give it once")
            if name in held:
                raise UsageError(
                    f"{label}: {name} keeps it on its own TCP sockets, as the plugin is kept on "
                    "TCP; leave it out"
                )
            found.append(f"{name}={value}")
        return tuple(found)

    return parse


def names_in_turn(label: str, text: str) -> str:
    """Names with commas between them, each as often as one likes; kept as text."""
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise UsageError(f"{label} ({text}) is no list of names; write it like eth1,eth1,eth2,eth2")
    return ",".join(names)


def numbers_in_turn(label: str, text: str) -> str:
    """Whole numbers with commas between them, or none; kept as text."""
    numbers = [part.strip() for part in text.split(",")]
    if numbers != ["none"] and not all(number.isdecimal() for number in numbers):
        raise UsageError(f"{label} ({text}) is no list of numbers; write it like 0,1,2,3, or none")
    return ",".join(numbers)


def cpu_list(label: str, text: str) -> str:
    """CPUs as the kernel writes them; kept as text."""
    try:
        cpus = parse_cpu_list(text)
    except ValueError:
        cpus = ()
    if not cpus:
        raise UsageError(f"{label} ({text}) is no list of CPUs; write it like 4-7,12")
    return cpu_list_text(cpus)


#: 30 years; deadlines are kept in nanoseconds of 64 bits.
_MOST_SECONDS = 1e9


def seconds(zero: bool = False) -> Callable[[str, str], float]:
    """A parser of times in seconds, above zero unless `zero` means something."""

    def parse(label: str, text: str) -> float:
        try:
            duration_s = parse_duration(text)
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from None
        except OverflowError:
            duration_s = math.inf
        if duration_s > _MOST_SECONDS:
            raise UsageError(f"{label} ({text}) is too long; use {_MOST_SECONDS:g} s or less")
        if duration_s == 0 and not zero:
            raise UsageError(f"{label} ({text}) is too small; use a time above 0, like 30s")
        return duration_s

    return parse


def share(label: str, text: str) -> float:
    """A part of a whole, below 1; 0 for nothing of the kind."""
    try:
        part = float(text)
    except ValueError:
        part = math.nan
    if not 0 <= part < 1:
        raise UsageError(f"{label} ({text}) is no share; use a number from 0 to below 1, like 0.05")
    return part


def switch(label: str, text: str) -> bool:
    """0 or 1 as in nccl-tests; also the words and the levels above 1 that people write."""
    word = text.strip().lower()
    if word in ("true", "yes", "on") or (word.isdecimal() and int(word) > 0):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise UsageError(f"{label} ({text}) is not a switch: use 0 or 1")


def _integer(label: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise UsageError(f"{label} ({text}) is not a whole number; write it like 20") from None
