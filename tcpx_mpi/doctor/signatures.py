"""Known lines of logs, from signatures.toml: what each means, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tcpx_mpi.doctor.lines import Line
from tcpx_mpi.inputs import read_toml

_PATH = Path(__file__).parent / "signatures.toml"
#: off: the rank is not on the fast path. cause: why it is not, if it is not. failed, lost: it could
#: not connect, or a connection broke. warning, harmless.
EFFECTS = ("off", "cause", "failed", "lost", "warning", "harmless")
SURE = ("certain", "likely", "possible")
#: But a completion's status, which has its own meaning.
_NUMBERS = re.compile(r"0x[0-9a-f]+|(?<!error )(?<!status=)(?<!\d)\d\d+")


@dataclass(frozen=True)
class Signature:
    """One kind of line; its pattern is a regular expression, case-insensitive."""

    name: str
    pattern: re.Pattern[str]
    effect: str
    sure: str
    what: str
    do: str
    #: Who prints the line, since when, and such a line.
    source: str
    line: str
    #: Also in lines that NCCL did not write.
    anywhere: bool = False
    #: No cause in a job of TCPX or FasTrak, which does without.
    google: bool = True
    #: A cause by which a network was wanted: no harmless one on a rank that chose sockets.
    wanted: bool = False
    #: NCCL says it behind a warning, which has the cause.
    echo: bool = False
    #: It says something only behind a warning, and before its rank has connected.
    behind: bool = False


@dataclass(frozen=True)
class Match:
    """All lines of one signature, in the order of the log."""

    signature: Signature
    lines: Sequence[Line]
    #: Of a line that counts by itself, the largest count; else how many lines there are.
    times: int


@cache
def signatures() -> tuple[Signature, ...]:
    """Those that this package knows."""
    table = read_toml("signatures", str(_PATH), "")
    known = []
    for entry in table["signature"]:
        pattern = re.compile(entry["pattern"], re.IGNORECASE)
        known.append(Signature(**{**entry, "pattern": pattern}))
    return tuple(known)


def matches(lines: Sequence[Line]) -> list[Match]:
    """The signatures that fit these lines; the first that fits a line has it."""
    found: dict[str, list[Line]] = {}
    counts: dict[str, int] = {}
    for line in lines:
        if line.rank is not None and " via " in line.text:
            continue  # most lines of a log are connections
        # Ranks say the same with other numbers, thousands of times.
        signature = _first(_NUMBERS.sub("10", line.text), line.rank is not None)
        if signature is not None:
            found.setdefault(signature.name, []).append(line)
            match = signature.pattern.search(line.text)
            count = int(match.groupdict().get("count", 0)) if match is not None else 0
            counts[signature.name] = max(counts.get(signature.name, 0), count)
    return [
        Match(known, found[known.name], counts[known.name] or len(found[known.name]))
        for known in signatures()
        if known.name in found
    ]


def unknown_warnings(lines: Sequence[Line]) -> list[list[Line]]:
    """The warnings of NCCL and its plugins that no signature fits, each kind with its lines."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        text = _NUMBERS.sub("10", line.text)
        if line.level == "WARN" and text and _first(text, True) is None:
            found.setdefault(text, []).append(line)
    return [*found.values()]


@lru_cache(maxsize=1 << 14)
def _first(text: str, by_nccl: bool) -> Signature | None:
    """The first that fits."""
    return next(
        (
            signature
            for signature in signatures()
            if (by_nccl or signature.anywhere) and signature.pattern.search(text)
        ),
        None,
    )
