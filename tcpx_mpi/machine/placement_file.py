"""The file of `--placement`: what single ranks of a node get, in TOML.

[[rank]]
local_rank = 0
nic = "eth1"
gpu = 0
cpu = 4
memory_node = 0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import read_toml
from tcpx_mpi.machine.placement import RankPlace

OPTION = "--placement"
_REMEDY = 'write it like [[rank]], local_rank = 0, nic = "eth1", gpu = 0, cpu = 4, memory_node = 0'
_KEYS: dict[str, type] = {"local_rank": int, "nic": str, "gpu": int, "cpu": int, "memory_node": int}


def read_placement(path: str) -> dict[int, RankPlace]:
    """The places in a file, by local rank. Raises UsageError, naming file and key."""
    table = read_toml(OPTION, path, _REMEDY)
    entries = table.get("rank")
    if not isinstance(entries, list) or not entries or set(table) != {"rank"}:
        raise UsageError(f"{path} is no list of ranks: {_REMEDY}")
    places: dict[int, RankPlace] = {}
    for number, entry in enumerate(entries, start=1):
        where = f"{path}: rank entry {number}"
        _require_known(where, entry)
        if (local_rank := entry.get("local_rank")) is None:
            raise UsageError(f"{where} has no local_rank: {_REMEDY}")
        if local_rank in places:
            raise UsageError(f"{where}: local_rank {local_rank} is there twice; keep one")
        places[local_rank] = RankPlace(
            **{key: entry.get(key) for key in _KEYS if key != "local_rank"}
        )
    return places


def _require_known(where: str, entry: Mapping[str, Any]) -> None:
    for key, value in entry.items():
        if key not in _KEYS:
            raise UsageError(f"{where}: {key} is unknown: use {', '.join(_KEYS)}")
        expected = "a name in quotes" if _KEYS[key] is str else "a whole number from 0 on"
        negative = isinstance(value, int) and value < 0
        if type(value) is not _KEYS[key] or value == "" or negative:
            raise UsageError(f"{where}: {key} ({value}) is not {expected}")
