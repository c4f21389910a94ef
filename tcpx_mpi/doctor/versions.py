"""Versions that a log names, beside those that belong together by a dated recipe. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tcpx_mpi.doctor.lines import Line
from tcpx_mpi.machine.profiles import Profile

#: What is looked for -> where it stands. An image's tag is a version too.
_PATTERNS = {
    "nccl": re.compile(r"\bNCCL version (\d+\.\d+\.\d+)\S*\+cuda"),
    "plugin": re.compile(
        r"nccl-plugin-gpudirecttcpx(?:-dev)?:v?(\d+\.\d+\.\d+)"
        r"|NET/GPUDirectTCPX\b.{0,40}?\bver(?:sion)?[. :]+v?(\d+\.\d+\.\d+)"
        r"|network FasTrak, version: (\d+\.\d+\.\d+)"
    ),
    "manager": re.compile(
        r"tcpgpudmarxd(?:-dev)?:v?(\d+\.\d+\.\d+)|RxDM version:? v?(\d+\.\d+\.\d+)", re.IGNORECASE
    ),
    "driver": re.compile(
        r"Driver Version: (\d+\.\d+(?:\.\d+)?)|Kernel Module +(\d+\.\d+(?:\.\d+)?)"
    ),
}


#: Name -> the version, and where it stands.
Versions = Mapping[str, tuple[str, Line]]


def read_versions(lines: Sequence[Line]) -> Versions:
    """The first version of each that the lines name, and where."""
    found: dict[str, tuple[str, Line]] = {}
    for line in lines:
        for name, pattern in _PATTERNS.items():
            match = pattern.search(line.text)
            if match is not None and name not in found:
                found[name] = (next(filter(None, match.groups())), line)
    return found


def matches_recipe(versions: Mapping[str, str], recipe: Profile) -> bool:
    """Whether no version is another than the recipe's; what it does not name does not count."""
    return all(recipe.versions.get(name, value) == value for name, value in versions.items())


def named(versions: Mapping[str, str], recipe: Profile) -> int:
    """The number of the versions that are the recipe's."""
    return sum(recipe.versions.get(name) == value for name, value in versions.items())


def closest(versions: Mapping[str, str], recipes: Sequence[Profile]) -> Profile:
    """The recipe that has most of these versions; the newest where several have."""
    return max(recipes, key=lambda recipe: named(versions, recipe))
