"""A gate: limits by pattern, memory kind and size, and what they hold for; its file in TOML.

[gate]
plugin = "softtcpx_v7"
plugin_sha256 = "9f86d0..."        # optional: this very file
ranks = 4
provenance = "10 launches on h1, 2026-11-21"

[[limit]]
pattern = "ring"
memory = "host"
size = "1M"
busbw_min = 4.2                    # GB/s; or time_us_max, p99_us_max
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import read_toml
from tcpx_mpi.toml_value import toml_value
from tcpx_mpi.units import format_size_option, parse_size

GATE_OPTION = "--gate"
#: Gates of this package: what a kind of machine is expected to reach, by the name of its profile.
_EXPECTED = Path(__file__).parent / "expected"
#: What a limit may bound: key -> (what it is, its unit, whether it is a minimum).
BOUNDS: dict[str, tuple[str, str, bool]] = {
    "busbw_min": ("busbw", "GB/s", True),
    "time_us_max": ("time", "us", False),
    "p99_us_max": ("p99", "us", False),
}
_REMEDY = (
    "tcpx-mpi gate --calibrate RUN.h5... --output FILE writes one; "
    "docs/how-to/gates.md has the form"
)
_TEXTS = ("plugin", "plugin_sha256", "mode", "provenance")
_NUMBERS = ("ranks", "nodes", "channels", "chunk_bytes")
_NEEDED = ("plugin", "ranks", "provenance")


@dataclass(frozen=True)
class Limit:
    """One bound: of all rows of this pattern, memory kind and size."""

    pattern: str
    memory: str
    size_bytes: int
    #: A key of BOUNDS.
    bound: str
    value: float
    #: In words, of this limit alone; "" where the gate's own holds.
    provenance: str = ""


@dataclass(frozen=True)
class Gate:
    """Limits, and the metadata that they were found in; None: not asked."""

    limits: tuple[Limit, ...]
    plugin: str
    ranks: int
    provenance: str
    plugin_sha256: str | None = None
    nodes: int | None = None
    mode: str | None = None
    channels: int | None = None
    chunk_bytes: int | None = None
    #: Where it was read; no part of what it says.
    path: str = field(default="", compare=False)

    def limits_of(self, pattern: str, memory: str) -> tuple[Limit, ...]:
        return tuple(x for x in self.limits if (x.pattern, x.memory) == (pattern, memory))


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
    metadata = _metadata(path, table["gate"])
    limits: list[Limit] = []
    for number, entry in enumerate(entries, start=1):
        limits += _limits_of_entry(f"{path}: limit {number}", entry)
    seen: set[tuple[str, str, int, str]] = set()
    for limit in limits:
        key = (limit.pattern, limit.memory, limit.size_bytes, limit.bound)
        if key in seen:
            size = format_size_option(limit.size_bytes)
            raise UsageError(
                f"{path}: {limit.bound} of {limit.pattern}, {limit.memory}, {size} is there twice; "
                "keep one"
            )
        seen.add(key)
    return Gate(limits=tuple(limits), path=path, **metadata)


def _metadata(path: str, table: Mapping[str, Any]) -> dict[str, Any]:
    where = f"{path}: [gate]"
    for key, value in table.items():
        if key in _NUMBERS:
            _require(where, key, value, type(value) is int and value > 0, "a whole number above 0")
        elif key in _TEXTS:
            _require(where, key, value, isinstance(value, str) and value != "", "a text in quotes")
        else:
            raise UsageError(f"{where}: {key} is unknown: use {', '.join(_TEXTS + _NUMBERS)}")
    for key in _NEEDED:
        if key not in table:
            raise UsageError(f"{where} has no {key}: a gate says what it holds for; {_REMEDY}")
    return dict(table)


def _limits_of_entry(where: str, entry: Any) -> list[Limit]:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is no table: {_REMEDY}")
    texts = {"pattern": "", "memory": "", "provenance": ""}
    for key, value in entry.items():
        if key in texts:
            _require(where, key, value, isinstance(value, str) and value != "", "a text in quotes")
            texts[key] = value
        elif key not in BOUNDS and key != "size":
            known = ", ".join([*texts, "size", *BOUNDS])
            raise UsageError(f"{where}: {key} is unknown: use {known}")
    for key in ("pattern", "memory", "size"):
        if key not in entry:
            raise UsageError(f"{where} has no {key}: {_REMEDY}")
    bounds = [key for key in BOUNDS if key in entry]
    if not bounds:
        raise UsageError(f"{where} bounds nothing: give one of {', '.join(BOUNDS)}")
    for key in bounds:
        value = entry[key]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        good = number and math.isfinite(value) and value > 0
        _require(where, key, value, good, "a number above 0, and finite")
    size = _size(where, entry["size"])
    return [Limit(size_bytes=size, bound=key, value=float(entry[key]), **texts) for key in bounds]


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
    asked = [limit for limit in gate.limits if limit.pattern == settings.pattern]
    name = f"{GATE_OPTION} ({settings.gate_path})"
    if not asked:
        known = ", ".join(dict.fromkeys(limit.pattern for limit in gate.limits))
        raise UsageError(f"{name} has no limit for {settings.pattern}, only for {known}")
    if world is not None and world != gate.ranks:
        raise UsageError(f"{name} holds for {gate.ranks} ranks, not for {world}: use as many")
    if gate.mode is not None and gate.mode != settings.mode():
        raise UsageError(
            f"{name} holds for {gate.mode} iterations, not for {settings.mode()} ones: see -z"
        )
    if settings.memory != "auto":
        kinds = ", ".join(dict.fromkeys(limit.memory for limit in asked))
        asked = [limit for limit in asked if limit.memory == settings.memory]
        if not asked:
            raise UsageError(
                f"{name} has no limit for {settings.pattern} in {settings.memory} memory, only "
                f"in {kinds}"
            )
    if not settings.checks():
        raise UsageError(f"{name} judges checked bytes only: use -c 1, and an --unpack that moves")
    missing = sorted({limit.size_bytes for limit in asked} - set(settings.sizes))
    if missing:
        sizes = ",".join(format_size_option(size) for size in missing)
        raise UsageError(f"{name} has limits for sizes that are not run: add --sizes {sizes}")


def gate_text(gate: Gate, comments: Sequence[str] = ()) -> str:
    """The file that `read_gate` reads back to an equal gate; `comments` stand on top."""
    lines = [f"# {comment}" for comment in comments]
    lines += ["", "[gate]"]
    for key in (*_TEXTS[:3], *_NUMBERS, "provenance"):
        if (value := getattr(gate, key)) is not None:
            lines.append(f"{key} = {toml_value(value)}")
    for limit in gate.limits:
        lines += ["", "[[limit]]"]
        lines.append(f"pattern = {toml_value(limit.pattern)}")
        lines.append(f"memory = {toml_value(limit.memory)}")
        lines.append(f"size = {toml_value(format_size_option(limit.size_bytes))}")
        lines.append(f"{limit.bound} = {limit.value!r}")
        if limit.provenance:
            lines.append(f"provenance = {toml_value(limit.provenance)}")
    return "\n".join(lines).lstrip("\n") + "\n"
