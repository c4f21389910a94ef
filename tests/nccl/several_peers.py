"""NCCL over softtcpx where a rank has several peers: 3 and 4 ranks, 1, 2 and 8 channels a peer.

A part of `make test SUITE=nccl`. Ranks share GPUs where there are too few. With 1 and 8 channels
each rank is on a host of its own to NCCL, which takes 2 between ranks of one host whatever it is
told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from nccl_cases import PROGRAMS, case_of_bytes
from nccl_session import NcclJob, channels_of, ways_of
from softtcpx_judged import require_every_byte, session

#: Of nccl-tests' smallest to its largest in `-b 8 -e 32M -f 8`, and that end itself.
SIZES = (*(8**power for power in range(1, 9)), 32 << 20)
PARTS = [
    pytest.param((ranks, channels), id=f"{ranks}-ranks-{channels}-channels")
    for ranks in (3, 4) for channels in (1, 2, 8)
]  # fmt: skip


@pytest.fixture(scope="module", params=PARTS)
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[NcclJob, int]]:
    """Ranks that have met, and their channels a peer, for all programs."""
    ranks, channels = request.param
    names = ("MIN_P2P_NCHANNELS", "MAX_P2P_NCHANNELS", "NCHANNELS_PER_NET_PEER", "MIN_NCHANNELS",
             "MAX_NCHANNELS")  # fmt: skip
    variables = {f"NCCL_{name}": str(channels) for name in names} | {"SOFTTCPX_POISON": "1"}
    place = tmp_path_factory.mktemp("several")
    with session(place, ranks, apart=channels != 2, variables=variables) as opened:
        opened.meet()
        yield opened, channels


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_byte_is_right(judged: tuple[NcclJob, int], program: str) -> None:
    require_every_byte(judged[0], program, SIZES)


def test_it_went_over_softtcpx_on_so_many_channels(judged: tuple[NcclJob, int]) -> None:
    opened, channels = judged
    opened.run(case_of_bytes("alltoall", SIZES[-1], opened.world))
    assert ways_of(opened.log()) == []
    told = channels_of(opened.log())
    assert re.search(rf"\b{channels} p2p channels, {channels} p2p channels per peer", told), told
