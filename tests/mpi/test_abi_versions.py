"""Runs over softtcpx by every version of its table: a small part of `make test SUITE=abi`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from variants import variant

from tcpx_mpi.plugin.find import bundled_dir
from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

SIZES = ("--sizes", "0,1,4097,300001", "-n", "4", "--chunk", "16K", "--hdf5", "none")


@pytest.mark.parametrize(
    ("abi", "memory", "pattern", "ranks"),
    [
        (6, "host", "ring", 2),
        variant(9, "emulated", "mesh", 3),
        (12, "emulated", "ring", 3),
    ],
)
def test_every_byte_arrives_by_every_version_of_the_table(
    abi: int, memory: str, pattern: str, ranks: int, place: Path
) -> None:
    variables = {"SOFTTCPX_FRAGMENTS": "random", "SOFTTCPX_POISON": "1"}
    command = tcpx_mpi("run", pattern, "--ranks", str(ranks), "--plugin", "softtcpx",
                       "--abi", str(abi), "--memory", memory, *SIZES)  # fmt: skip
    result = run(command, place, variables)
    assert result.code == 0, result.text
    assert f"ABI v{abi} name softtcpx_v{abi} memory {memory}" in result.out
    assert [row.wrong for row in result.rows] == [None, 0, 0, 0], result.text


def test_v6_has_no_path_for_memory_of_gpus(place: Path) -> None:
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--abi", "6",
                       "--memory", "emulated", *SIZES)  # fmt: skip
    result = run(command, place)
    assert result.code == 2, result.text
    assert "--memory emulated: plugin softtcpx_v6 does not take such buffers" in result.text


@pytest.mark.variant
def test_two_plugins_are_compared_launch_by_launch(place: Path) -> None:
    files = [os.path.join(bundled_dir(), f"libnccl-net-softtcpx{end}.so") for end in ("", "-v12")]
    sides = [word for file in files for word in ("--", "--plugin", file)]
    command = tcpx_mpi(
        "ab", "ring", "--ranks", "2", "--runs", "1", "--out", "o", *SIZES[:-2], *sides
    )
    result = run(command, place)
    assert "differs: plugin ABI: 7 | 12" in result.out, result.text
    assert [read_run(str(place / f"o-{side}.h5")).header.plugin_abi for side in "AB"] == [7, 12]
