"""A gate: limits by pattern, memory kind and size, and what they hold for; its file in TOML.

[gate]
plugin = "softtcpx_v7"
plugin_sha256 = "9f86d0..."        # optional: this very file
ranks = 4
provenance = "10 launches on h1, 2026-11-21"

[[limit]]
pattern = "ring"
memory = "host"
size = "1M"                        # or size_from: this size and all above
busbw_min = 4.2                    # GB/s; or another key of BOUNDS

A limit that holds on any machine (`Bound.relative`) may leave out the pattern, the memory or the
size, which then is any; a gate of nothing else may leave out the plugin and the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import read_toml
from tcpx_mpi.toml_value import toml_value
from tcpx_mpi.units import format_size, format_size_option, parse_size

GATE_OPTION = "--gate"
#: Gates of this package: what a kind of machine is expected to reach, by the name of its profile.
_EXPECTED = Path(__file__).parent / "expected"


class Bound(NamedTuple):
    """A bound that a limit may have."""

    name: str
    unit: str
    is_minimum: bool
    #: Why a row has no such figure.
    unknown: str
    #: The baseline that must run beside the plugin; "" for none.
    baseline: str = ""
    #: A figure of the run against itself: a limit of it holds on another machine, too.
    relative: bool = False


def _ratio_to(kind: str) -> Bound:
    unknown = f"no ratio to {kind}: it did not run beside this row, or not as it should"
    return Bound(f"ratio to {kind}", "x", True, unknown, kind, True)


#: By the key in the file.
BOUNDS: dict[str, Bound] = {
    "busbw_min": Bound("busbw", "GB/s", True, "no bandwidth"),
    "time_us_max": Bound("time", "us", False, "no time"),
    "p99_us_max": Bound(
        "p99", "us", False, "no p99: too few iterations, or they came in bursts"
    ),
    **{f"ratio_{kind}_min": _ratio_to(kind) for kind in ("raw", "mpi", "nccl")},
    "line_rate_percent_min": Bound(
        "line rate", "%", True,
        "no share of a line rate: nothing went to another node, or a NIC states no rate",
        relative=True,
    ),
    "node_spread_max": Bound(
        "node spread", "x", False, "no spread: there are not two that receive", relative=True
    ),
}  # fmt: skip
_REMEDY = (
    "tcpx-mpi gate --calibrate RUN.h5... --output FILE writes one; "
    "docs/how-to/gates.md has the form"
)
_TEXTS = ("plugin", "plugin_sha256", "mode", "provenance")
_NUMBERS = ("ranks", "nodes", "channels", "chunk_bytes")
_NEEDED = ("plugin", "ranks", "provenance")
_LIMIT_TEXTS = ("pattern", "memory", "provenance")
_SIZES = ("size", "size_from")


@dataclass(frozen=True)
class Limit:
    """One bound: of all rows of this pattern, memory kind and size."""

    #: None: any.
    pattern: str | None
    #: None: any.
    memory: str | None
    size_bytes: int
    #: A key of BOUNDS.
    bound: str
    value: float
    #: In words, of this limit alone; "" if the gate's own holds.
    provenance: str = ""
    #: It is of larger sizes as well.
    and_above: bool = False

    def is_of(self, pattern: str, memory: str | None) -> bool:
        """Whether it bounds rows of this pattern and memory kind; None: it is not known yet."""
        return self.pattern in (None, pattern) and (memory is None or self.memory in (None, memory))

    def is_of_size(self, size_bytes: int) -> bool:
        return size_bytes == self.size_bytes or (self.and_above and size_bytes > self.size_bytes)

    @property
    def place(self) -> str:
        """ "ring, host, 1 MiB", without what is any."""
        return ", ".join(filter(None, (self.pattern, self.place_of_pattern)))

    @property
    def place_of_pattern(self) -> str:
        """ "host, 1 MiB"."""
        size = format_size(self.size_bytes)
        return ", ".join(filter(None, (self.memory, f"from {size} on" if self.and_above else size)))


@dataclass(frozen=True)
class Gate:
    """Limits, and the metadata that they were found in; None: not asked."""

    limits: tuple[Limit, ...]
    plugin: str | None
    ranks: int | None
    provenance: str
    plugin_sha256: str | None = None
    nodes: int | None = None
    mode: str | None = None
    channels: int | None = None
    chunk_bytes: int | None = None
    #: Where it was read; no part of what it says.
    path: str = field(default="", compare=False)

    def limits_of(self, pattern: str, memory: str) -> tuple[Limit, ...]:
        return tuple(limit for limit in self.limits if limit.is_of(pattern, memory))


def expected() -> list[str]:
    """The names of the gates in this package."""
    return sorted(path.stem for path in _EXPECTED.glob("*.toml"))


def read_gate(path: str, option: str = GATE_OPTION) -> Gate:
    """The gate in a file, or one of this package by its name.

    Raises UsageError, one line that names file, entry and key.
    """
    if path in expected():
        path = str(_EXPECTED / f"{path}.toml")
    table = read_toml(option, path, _REMEDY)
    unknown = set(table) - {"gate", "limit"}
    if unknown or not isinstance(table.get("gate"), dict):
        what = f"{sorted(unknown)[0]} is unknown" if unknown else "there is no table [gate]"
        raise UsageError(f"{path} is no gate: {what}; {_REMEDY}")
    entries = table.get("limit")
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} has no [[limit]]: a gate without limits would pass anything")
    limits: list[Limit] = []
    for number, entry in enumerate(entries, start=1):
        limits += _limits_of_entry(f"{path}: limit {number}", entry)
    seen: set[tuple[object, ...]] = set()
    for limit in limits:
        key = (limit.pattern, limit.memory, limit.size_bytes, limit.and_above, limit.bound)
        if key in seen:
            raise UsageError(f"{path}: {limit.bound} of {limit.place} is there twice; keep one")
        seen.add(key)
    anywhere = all(BOUNDS[limit.bound].relative for limit in limits)
    metadata = _metadata(path, table["gate"], ("provenance",) if anywhere else _NEEDED)
    return Gate(limits=tuple(limits), path=path, **metadata)


def _metadata(path: str, table: Mapping[str, Any], needed: Sequence[str]) -> dict[str, Any]:
    where = f"{path}: [gate]"
    for key, value in table.items():
        if key in _NUMBERS:
            _require(where, key, value, type(value) is int and value > 0, "a whole number above 0")
        elif key in _TEXTS:
            _require(where, key, value, isinstance(value, str) and value != "", "a text in quotes")
        else:
            raise UsageError(f"{where}: {key} is unknown: use {', '.join(_TEXTS + _NUMBERS)}")
    for key in needed:
        if key not in table:
            raise UsageError(f"{where} has no {key}: a gate says what it holds for; {_REMEDY}")
    return {"plugin": None, "ranks": None, **table}


def _limits_of_entry(where: str, entry: Any) -> list[Limit]:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is no table: {_REMEDY}")
    texts: dict[str, str] = {}
    for key, value in entry.items():
        if key in _LIMIT_TEXTS:
            _require(where, key, value, isinstance(value, str) and value != "", "a text in quotes")
            texts[key] = value
        elif key not in BOUNDS and key not in _SIZES:
            known = ", ".join([*_LIMIT_TEXTS, *_SIZES, *BOUNDS])
            raise UsageError(f"{where}: {key} is unknown: use {known}")
    bounds = [key for key in BOUNDS if key in entry]
    if not bounds:
        raise UsageError(f"{where} bounds nothing: give one of {', '.join(BOUNDS)}")
    absolute = next((key for key in bounds if not BOUNDS[key].relative), None)
    for key in ("pattern", "memory", "size"):
        if absolute is not None and key not in entry:
            raise UsageError(f"{where} has no {key}, which {absolute} needs; {_REMEDY}")
    for key in bounds:
        value = entry[key]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        good = number and math.isfinite(value) and value > 0
        _require(where, key, value, good, "a number above 0, and finite")
    if all(key in entry for key in _SIZES):
        raise UsageError(f"{where} has a size and a size_from: keep one")
    exact = "size" in entry
    size = _size(where, entry["size" if exact else "size_from"]) if entry.keys() & _SIZES else 1
    return [
        Limit(
            texts.get("pattern"), texts.get("memory"), size, key, float(entry[key]),
            texts.get("provenance", ""), and_above=not exact,
        )
        for key in bounds
    ]  # fmt: skip


def _size(where: str, value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    try:
        return parse_size(value if isinstance(value, str) else "")
    except UsageError as error:
        raise UsageError(f"{where}: size ({value}): {error}") from None


def _require(where: str, key: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise UsageError(f"{where}: {key} ({value}) is not {expected}")


def require_judgeable(gate: Gate, settings: Settings, world: int | None = None) -> None:
    """Refuses, before anything is measured, a run that this gate would fail for certain.

    `world` is the number of ranks, where it is known.
    """
    asked = [limit for limit in gate.limits if limit.is_of(settings.pattern, None)]
    name = f"{GATE_OPTION} ({settings.gate_path})"
    if not asked:
        known = ", ".join(dict.fromkeys(str(limit.pattern) for limit in gate.limits))
        raise UsageError(f"{name} has no limit for {settings.pattern}, only for {known}")
    if world is not None and gate.ranks not in (None, world):
        raise UsageError(f"{name} holds for {gate.ranks} ranks, not for {world}: use as many")
    if gate.mode is not None and gate.mode != settings.mode():
        raise UsageError(
            f"{name} holds for {gate.mode} iterations, not for {settings.mode()} ones: see -z"
        )
    if settings.memory != "auto":
        kinds = ", ".join(dict.fromkeys(str(limit.memory) for limit in asked))
        asked = [limit for limit in asked if limit.is_of(settings.pattern, settings.memory)]
        if not asked:
            raise UsageError(
                f"{name} has no limit for {settings.pattern} in {settings.memory} memory, only "
                f"in {kinds}"
            )
    if not settings.checks():
        raise UsageError(f"{name} judges checked bytes only: use -c 1, and an --unpack that moves")
    lacking = [limit for limit in asked if not any(map(limit.is_of_size, settings.sizes))]
    if missing := sorted({limit.size_bytes for limit in lacking}):
        sizes = ",".join(format_size_option(size) for size in missing)
        raise UsageError(f"{name} has limits for sizes that are not run: add --sizes {sizes}")
    for limit in asked:
        baseline = BOUNDS[limit.bound].baseline
        if baseline and baseline not in settings.against:
            raise UsageError(
                f"{name} bounds the ratio to {baseline}, which does not run: add "
                f"--against {','.join([*settings.against, baseline])}"
            )


def gate_text(gate: Gate, comments: Sequence[str] = ()) -> str:
    """The file that `read_gate` reads back to an equal gate; `comments` stand on top."""
    lines = [f"# {comment}" for comment in comments]
    lines += ["", "[gate]"]
    for key in (*_TEXTS[:3], *_NUMBERS, "provenance"):
        if (value := getattr(gate, key)) is not None:
            lines.append(f"{key} = {toml_value(value)}")
    for limit in gate.limits:
        lines += ["", "[[limit]]"]
        for key, value in (("pattern", limit.pattern), ("memory", limit.memory)):
            if value is not None:
                lines.append(f"{key} = {toml_value(value)}")
        size = "size_from" if limit.and_above else "size"
        lines.append(f"{size} = {toml_value(format_size_option(limit.size_bytes))}")
        lines.append(f"{limit.bound} = {limit.value!r}")
        if limit.provenance:
            lines.append(f"provenance = {toml_value(limit.provenance)}")
    return "\n".join(lines).lstrip("\n") + "\n"
