"""Known lines of logs, from signatures.toml: what each means, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tcpx_mpi.doctor.lines import Line
from tcpx_mpi.inputs import read_toml

_PATH = Path(__file__).parent / "signatures.toml"
#: off: the rank is not on the fast path. cause: why it is not, if it is not. warning, harmless.
EFFECTS = ("off", "cause", "warning", "harmless")
SURE = ("certain", "likely", "possible")


@dataclass(frozen=True)
class Signature:
    """One kind of line; its pattern is a regular expression, case-insensitive."""

    name: str
    pattern: re.Pattern[str]
    effect: str
    sure: str
    what: str
    do: str
    #: Also in lines that NCCL did not write.
    anywhere: bool = False


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
    """What is known of these lines; the first signature that fits a line has it."""
    found: dict[str, list[Line]] = {}
    counts: dict[str, int] = {}
    for line in lines:
        for signature in signatures():
            may = signature.anywhere or line.rank is not None
            match = signature.pattern.search(line.text) if may else None
            if match is None:
                continue
            found.setdefault(signature.name, []).append(line)
            count = int(match["count"]) if "count" in signature.pattern.groupindex else 0
            counts[signature.name] = max(counts.get(signature.name, 0), count)
            break
    return [
        Match(known, found[known.name], counts[known.name] or len(found[known.name]))
        for known in signatures()
        if known.name in found
    ]
