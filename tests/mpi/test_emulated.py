"""Host pages that stand for GPU memory: scattered by the plugin, unpacked by us, all checked.

The messages are as long as it takes for a fragment to end in the midst of a page, for slots to
come round, and for a queue to hold more than one message.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

BASE = ("--plugin", "softtcpx", "--memory", "emulated", "--hdf5", "none", "--spool", "spool")
SIZES = ("--sizes", "0,1,4097,300001", "-n", "4", "--chunk", "16K")


@pytest.mark.parametrize(
    ("pattern", "ranks", "fragments", "sockets", "threads"),
    [
        variant("pair", 2, "mss", 1, 0),
        variant("pingpong", 2, "random", 1, 1),
        ("ring", 3, "page", 1, 0),
        variant("ring", 2, "mss", 4, 0),
        variant("ring", 2, "random", 4, 1),
        ("mesh", 3, "page", 2, 0),
        variant("mesh", 2, "random", 4, 0),
    ],
)
def test_every_byte_of_every_pattern_arrives_whatever_the_fragments(
    pattern: str, ranks: int, fragments: str, sockets: int, threads: int, place: Path
) -> None:
    variables = {
        "SOFTTCPX_FRAGMENTS": fragments,
        "SOFTTCPX_POISON": "1",
        "NCCL_NSOCKS_PERTHREAD": str(sockets),
        "NCCL_SOCKET_NTHREADS": str(threads),
    }
    result = run(tcpx_mpi("run", pattern, "--ranks", str(ranks), *BASE, *SIZES), place, variables)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [None, 0, 0, 0], result.text


@pytest.mark.parametrize("mode", ["kernel", variant("d2d"), "host"])
def test_every_way_to_unpack_puts_every_byte_in_place(mode: str, place: Path) -> None:
    variables = {"SOFTTCPX_FRAGMENTS": "random", "SOFTTCPX_POISON": "1"}
    command = tcpx_mpi("run", "ring", "--ranks", "2", *BASE, *SIZES, "--unpack", mode)
    result = run(command, place, variables)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [None, 0, 0, 0], result.text


def test_a_run_that_does_not_unpack_prints_no_bandwidth(place: Path) -> None:
    command = tcpx_mpi("run", "pair", "--ranks", "2", *BASE, "-b", "64K", "-e", "64K", "-n", "5",
                       "--unpack", "none")  # fmt: skip
    result = run(command, place)
    assert result.code == 0, result.text
    line = next(x for x in result.out.splitlines() if " uint8 " in x)
    assert line.split()[6:9] == ["N/A", "N/A", "N/A"], result.text


def test_several_progress_threads_move_what_one_does(place: Path) -> None:
    command = tcpx_mpi("run", "all_reduce", "--ranks", "2", "--progress-threads", "3",
                       "--channels", "4", *BASE, "--sizes", "0,1K,300000", "-n", "4",
                       "--chunk", "16K")  # fmt: skip
    result = run(command, place, {"SOFTTCPX_FRAGMENTS": "random", "SOFTTCPX_POISON": "1"})
    assert result.code == 0, result.text
    rows = [line.split() for line in result.out.splitlines() if " float " in line]
    assert [(row[0], row[8], row[12]) for row in rows[1:]] == [
        ("1024", "0", "0"), ("300000", "0", "0"),
    ], result.text  # fmt: skip


def test_a_stall_of_several_progress_threads_names_the_flow(place: Path) -> None:
    command = tcpx_mpi("run", "pair", "--ranks", "2", "--progress-threads", "2", *BASE, "--sizes",
                       "300000", "--chunk", "16K", "--stall-timeout", "1")  # fmt: skip
    variables = {"SOFTTCPX_TRAP_STOP_AT": "5", "SOFTTCPX_TRAP_SIDE": "recv"}
    result = run(command, place, variables)
    assert result.code == 6, result.text
    assert "nothing has moved" in result.text or "no progress" in result.text, result.text
