"""One message each way between every two ranks, each of the whole size: what smoke sends.

A round is a distance: at distance d every rank sends to rank + d and receives from rank - d, so
that each message has a time of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.patterns.one_to_one import by_distance, one_to_one, to_and_from_all
from tcpx_mpi.patterns.program import of_bytes
from tcpx_mpi.schedule.pattern import Pattern, Rounds


def _rounds(world: int) -> Sequence[Pattern]:
    return [one_to_one("smoke", by_distance(distance)) for distance in range(1, world)]


SMOKE = to_and_from_all("smoke", rounds=Rounds(_rounds))
PROGRAMS = (of_bytes("smoke", lambda form: SMOKE),)
