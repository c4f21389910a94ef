"""NCCL over softtcpx of the kind that puts data in place: nothing is unpacked, NCCL flushes.

A part of `make test SUITE=nccl`. What was received stays hidden until it is flushed, so bytes are
wrong as soon as NCCL is not made to flush: by its own variable, or by what the properties say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nccl_cases import PROGRAMS, case_of_bytes
from nccl_session import NcclJob, ways_of
from softtcpx_judged import require_every_byte, session

from tcpx_mpi.plugin.find import bundled_dir

#: Less than a page, what ends within one, what has several chunks on every channel.
SIZES = (8, 4096, 300001, 8 << 20)
HIDDEN = {"SOFTTCPX_LIKE": "direct", "SOFTTCPX_TRAP_HIDDEN": "1"}
SHOWN = {"SOFTTCPX_LIKE": "direct", "SOFTTCPX_TRAP_HIDDEN": "0"}
FORCED = {"NCCL_NET_FORCE_FLUSH": "1"}


def of_version(abi: int) -> dict[str, str]:
    """softtcpx with the table of that version alone."""
    name = "libnccl-net-softtcpx.so" if abi == 7 else f"libnccl-net-softtcpx-v{abi}.so"
    return {"NCCL_NET_PLUGIN": os.path.join(bundled_dir(), name)}


KINDS = {
    "v7-flushed-as-the-user-says": (2, {**HIDDEN, **FORCED}),
    "v7-not-flushed": (2, SHOWN),
    "v9-flushed-as-the-plugin-says": (3, {**of_version(9), **HIDDEN}),
    "v10-not-flushed": (3, {**of_version(10), **SHOWN}),
    "v10-flushed-as-the-plugin-says": (4, {**of_version(10), **HIDDEN}),
    "v7-one-socket-and-late-flushes": (
        2, {**HIDDEN, **FORCED, "NCCL_NSOCKS_PERTHREAD": "1", "SOFTTCPX_FLUSH_POLLS": "20"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NcclJob]:
    """Ranks that have met over such a plugin."""
    ranks, variables = KINDS[request.param]
    place = tmp_path_factory.mktemp("in_place")
    with session(place, ranks, apart=ranks > 2, variables=variables) as opened:
        opened.meet()
        yield opened


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_byte_is_right(judged: NcclJob, program: str) -> None:
    require_every_byte(judged, program, SIZES)
    assert ways_of(judged.log(), unpacked=False) == []


def test_what_is_not_flushed_would_be_noticed(tmp_path: Path) -> None:
    never = {**HIDDEN, "NCCL_NET_FORCE_FLUSH": "0"}
    with session(tmp_path, variables=never) as opened:
        if opened.facts()["capability"] < 90:
            pytest.skip("needs a GPU of Hopper or later: for an older one NCCL always flushes")
        opened.meet()
        verdicts = opened.run(case_of_bytes("sendrecv", 300001, opened.world))
        assert sum(each["wrong"] for each in verdicts) > 0
