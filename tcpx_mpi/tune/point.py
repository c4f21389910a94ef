"""A point of a space of settings: what it changes of today's settings. Text, as JSON too."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import parse_json
from tcpx_mpi.records import TURN_VARIABLE


@dataclass(frozen=True, order=True)
class Change:
    """One setting at another value: an option of `run` by its name, or a variable."""

    name: str
    value: str
    option: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.value}" if self.option else f"{self.name}={self.value}"


Point = tuple[Change, ...]
#: Today's settings, which change nothing.
TODAY: Point = ()


def point_text(point: Point) -> str:
    """A point in words."""
    return ", ".join(map(str, point)) or "today's settings"


@dataclass(frozen=True)
class Turn:
    """When a launch is made: the heat, from 0, its round, and what is launched."""

    heat: int
    round: int
    point: Point

    def mark(self) -> str:
        """The value of `TURN_VARIABLE`."""
        changes = [[each.name, each.value, each.option] for each in self.point]
        return json.dumps([self.heat, self.round, changes])


def turn_of(mark: str, path: str) -> Turn:
    """The turn that a mark was made of. Raises UsageError where it is none."""
    try:
        heat, number, changes = parse_json(mark)
        point = tuple(Change(str(n), str(value), bool(option)) for n, value, option in changes)
        return Turn(int(heat), int(number), point)
    except (TypeError, ValueError):
        raise UsageError(
            f"{path} is no file of `tcpx-mpi tune`: a launch has no {TURN_VARIABLE} that is one's"
        ) from None
