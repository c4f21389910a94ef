"""Text to and from quantities: bytes, nanoseconds, seconds and GB/s (1e9 bytes a second).

Below the command line a quantity is a number whose name carries its unit; only this module makes
text of it.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from tcpx_mpi.errors import UsageError

#: What nccl-tests has no figure for; its scripts know the word.
ABSENT = "N/A"

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

#: Largest size that fits the 64-bit integers of the engine and of the files.
MAX_BYTES = (1 << 63) - 1

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_SIZE_UNITS = {"": 1, "b": 1}
_DECIMAL_OR_BINARY = {"kb": "K", "mb": "M", "gb": "G", "tb": "T"}
for _letter, _bytes in (("k", KIB), ("m", MIB), ("g", GIB), ("t", TIB)):
    _SIZE_UNITS[_letter] = _bytes
    _SIZE_UNITS[f"{_letter}ib"] = _bytes

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(us|ms|s|m|h|)\s*")
_DURATION_UNITS = {"": Fraction(1), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)}
_DURATION_UNITS |= {"ms": Fraction(1, 1000), "us": Fraction(1, 1_000_000)}


def parse_size(text: str) -> int:
    """Bytes of a 1024-based size: `17`, `4K`, `1.5M`, `1GiB`, in either case.

    Raises UsageError for text that is no size, for the ambiguous `KB`, `MB` and `GB`, for a
    fraction of a byte and for more than 2^63 - 1 bytes.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a size: expected bytes such as 17, 4K, 1.5M or 1GiB")
    number, unit = match.group(1), match.group(2).lower()
    if unit in _DECIMAL_OR_BINARY:
        short = f"{number}{_DECIMAL_OR_BINARY[unit]}"
        raise UsageError(f"{text.strip()} is ambiguous: write {short} or {short}iB (1024-based)")
    if unit not in _SIZE_UNITS:
        raise UsageError(
            f"{text.strip()} has the unknown unit {match.group(2)}: expected K, M, G or T, "
            "or KiB, MiB, GiB or TiB"
        )
    size = Fraction(number) * _SIZE_UNITS[unit]
    if size.denominator != 1:
        raise UsageError(f"{text.strip()} is {float(size):g} bytes: give a whole number of bytes")
    if size > MAX_BYTES:
        raise UsageError(f"{text.strip()} is too large: the limit is {MAX_BYTES} bytes")
    return int(size)


def format_size(size_bytes: int) -> str:
    """A size for people, `512 KiB`, `1.5 MiB` or `17 B`, with at most two decimals."""
    for unit_bytes, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{size_bytes} B"


def format_size_option(size_bytes: int) -> str:
    """The shortest text that `parse_size` turns back into exactly these bytes: `512K`, `1.5M`."""
    texts = [str(size_bytes)]
    for unit_bytes, letter in ((KIB, "K"), (MIB, "M"), (GIB, "G"), (TIB, "T")):
        # A binary fraction has a finite decimal form, so every size has an exact text in any
        # unit; three decimals are as many as anybody would type.
        thousandths = Fraction(size_bytes * 1000, unit_bytes)
        if size_bytes >= unit_bytes and thousandths.denominator == 1:
            whole, rest = divmod(int(thousandths), 1000)
            texts.append(f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + letter)
    return min(texts, key=len)


def parse_duration(text: str) -> float:
    """Seconds of `30`, `30s`, `500ms`, `50us`, `2m` or `1h`; else raises UsageError."""
    match = _DURATION.fullmatch(text.lower())
    if match is None:
        raise UsageError(
            f"{text!r} is not a duration: expected seconds such as 30, 30s, 500ms or 2m"
        )
    return float(Fraction(match.group(1)) * _DURATION_UNITS[match.group(2)])


def fit_number(value: float, width: int, unknown: str = ABSENT) -> str:
    """A number with two decimals, or with fewer where that keeps it within `width` characters.

    NaN and infinity become `unknown`. A number too long even without decimals is not cut.
    """
    if not math.isfinite(value):
        return unknown
    for decimals in (2, 1):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:.0f}"


def figure(value: float, digits: int = 6) -> str:
    """A number of so many digits, and of all before its point: 2649, not 2.65e+03."""
    if not math.isfinite(value):
        return "n/a"
    return f"{value:.0f}" if 10**digits - 0.5 <= abs(value) < 1e15 else f"{value:.{digits}g}"


def format_time_us(time_ns: float, width: int = 7, unknown: str = ABSENT) -> str:
    """Microseconds of a time in nanoseconds, as in the time column of nccl-tests."""
    return fit_number(time_ns / 1e3, width, unknown)


def format_gb_per_s(bytes_per_ns: float, width: int = 6, unknown: str = ABSENT) -> str:
    """GB/s of a rate in bytes a nanosecond (the same number), as in nccl-tests' bandwidths."""
    return fit_number(bytes_per_ns, width, unknown)


def counted(number: int, thing: str) -> str:
    """A number of things, in the singular for one: `1 rank`, `4 ranks`.

    Only for things whose plural has an `s`, or `es` after `ch` or `s`.
    """
    if number == 1:
        return f"1 {thing}"
    return f"{number} {thing}{'es' if thing.endswith(('ch', 's')) else 's'}"


def gbits_per_s(bytes_per_ns: float) -> float:
    """Gb/s of a rate in bytes a nanosecond."""
    return bytes_per_ns * 8
