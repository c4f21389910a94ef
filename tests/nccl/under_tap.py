"""NCCL over the tap over softtcpx: every byte is right, and the tap's files have all that moved.

A part of `make test SUITE=nccl`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nccl_cases import PROGRAMS, case_of_bytes
from nccl_session import NcclJob
from softtcpx_judged import require_every_byte, require_right, session

from tcpx_mpi.plugin.find import bundled_dir
from tcpx_mpi.tap.file import files_of
from tcpx_mpi.tap.joined import read_job
from tcpx_mpi.tap.ways import summarise

SIZES = (8, 4096, 300001, 8 << 20)
LARGE = 8 << 20


def under_tap(abi: int, **more: str) -> dict[str, str]:
    """The tap of that version in NCCL's place for a plugin, and softtcpx behind it."""
    ending = "" if abi == 7 else f"-v{abi}"
    there = {
        name: os.path.join(bundled_dir(), f"libnccl-net-{name}{ending}.so")
        for name in ("tap", "softtcpx")
    }
    return {"NCCL_NET_PLUGIN": there["tap"], "TCPX_TAP_PLUGIN": there["softtcpx"], **more}


KINDS = {
    "2-ranks-that-unpack": (2, under_tap(7)),
    "4-ranks-that-unpack": (4, under_tap(7)),
    "3-ranks-put-in-place": (
        3, under_tap(10, SOFTTCPX_LIKE="direct", SOFTTCPX_TRAP_HIDDEN="1"),
    ),
}  # fmt: skip


def private(place: Path) -> Path:
    """A folder that the tap takes: nobody else can write there."""
    folder = place / "tap"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="module", params=KINDS)
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NcclJob]:
    """Ranks that have met under the tap."""
    ranks, variables = KINDS[request.param]
    place = tmp_path_factory.mktemp("under_tap")
    into = {"TCPX_TAP_DIR": str(private(place))}
    with session(place / "job", ranks, apart=ranks > 2, variables={**variables, **into}) as opened:
        opened.meet()
        yield opened


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_byte_is_right(judged: NcclJob, program: str) -> None:
    require_every_byte(judged, program, SIZES)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_files_have_what_moved_from_rank_to_rank(tmp_path: Path, ranks: int) -> None:
    folder = private(tmp_path)
    variables = under_tap(7, TCPX_TAP_DIR=str(folder))
    with session(tmp_path / "job", ranks, apart=ranks > 2, variables=variables) as opened:
        opened.meet()
        require_right(opened.run(case_of_bytes("sendrecv", LARGE, opened.world)))
    summary = summarise(read_job(files_of([str(folder)])))
    # A ring: each rank has sent to the next one, and a way has both its ends.
    assert len(summary.ways) >= ranks
    assert all(way.not_done == 0 and "?" not in (way.sender, way.receiver) for way in summary.ways)
    sent, received = (
        sum(nic.bytes for nic in summary.nics if nic.sends == sends) for sends in (True, False)
    )
    assert sent == received >= ranks * LARGE
