"""A plugin that puts data in place (SOFTTCPX_LIKE=direct), over host pages that stand for a GPU's:
flushed as NCCL would, in every version of the table, and seen to be missing where it is left out.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
from jobs import run, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

DIRECT = {"SOFTTCPX_LIKE": "direct"}
FORCED = {**DIRECT, "SOFTTCPX_TRAP_HIDDEN": "1", "NCCL_NET_FORCE_FLUSH": "1"}
BASE = ("--plugin", "softtcpx", "--memory", "emulated", "--spool", "spool")
SIZES = ("--sizes", "0,1,4097,300001", "-n", "4", "--chunk", "16K")


def start(pattern: str, *more: str, ranks: int = 2, hdf5: str = "none") -> list[str]:
    return tcpx_mpi("run", pattern, "--ranks", str(ranks), *BASE, "--hdf5", hdf5, *more)


@pytest.mark.parametrize(
    ("abi", "pattern", "variables"),
    [
        (6, "ring", FORCED),
        variant(7, "pair", FORCED),
        variant(8, "pingpong", FORCED),
        variant(9, "mesh", DIRECT),
        variant(10, "ring", {**DIRECT, "SOFTTCPX_FLUSH_POLLS": "0"}),
        variant(11, "alltoall", {**DIRECT, "NCCL_NSOCKS_PERTHREAD": "4"}),
        (12, "pair", {**DIRECT, "NCCL_SOCKET_NTHREADS": "1", "SOFTTCPX_FLUSH_POLLS": "40"}),
    ],
)
def test_what_is_hidden_until_it_is_flushed_is_whole_in_every_version(
    abi: int, pattern: str, variables: dict[str, str], place: Path
) -> None:
    result = run(start(pattern, "--abi", str(abi), *SIZES), place, variables)
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.out, result.text
    why = "plugin softtcpx_v" if abi >= 9 else "NCCL_NET_FORCE_FLUSH=1"
    assert f"# Flush: always (auto: {why}" in result.out


@pytest.mark.variant
@pytest.mark.parametrize("threads", [variant("1"), "2"])
def test_a_reduction_reads_what_is_flushed(threads: str, place: Path) -> None:
    command = start("all_reduce", "--abi", "9", "--sizes", "4K,300000", "-n", "4", "--algo", "ring",
                    "--progress-threads", threads, ranks=3)  # fmt: skip
    result = run(command, place, DIRECT)
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.out, result.text


def test_a_flush_that_is_left_out_ends_in_wrong_bytes_and_is_named(place: Path) -> None:
    result = run(
        start("pair", "--abi", "9", "-b", "64K", "-e", "64K", "-n", "4", "--flush", "never"),
        place,
        DIRECT,
    )
    assert result.code == 5, result.text
    assert "offset 61440: expected 0xfb, found 0x04: not flushed (--flush never)" in result.err
    why = "plugin softtcpx_v9 asks for it (forceFlush)"
    assert f"# Flush: never (command line --flush; NCCL would flush: {why})" in result.out
    assert (
        f"# Ablation             : receives are not flushed (--flush never), as NCCL would: {why}"
        in (result.out)
    )


@pytest.mark.variant
@pytest.mark.parametrize("pattern", [variant("pair"), "all_reduce"])
def test_a_need_that_no_property_tells_of_is_named_too(pattern: str, place: Path) -> None:
    variables = {**DIRECT, "SOFTTCPX_TRAP_HIDDEN": "1"}  # v7 has no forceFlush
    result = run(start(pattern, "-b", "64K", "-e", "64K", "-n", "4"), place, variables)
    assert result.code == 5, result.text
    assert ": not flushed (--flush auto found no need: see --flush always)" in result.err
    flushed = run(
        start(pattern, "-b", "64K", "-e", "64K", "-n", "4", "--flush", "always"), place, variables
    )
    assert flushed.code == 0, flushed.text
    assert "# Flush: always (command line --flush)" in flushed.out


def test_a_flush_is_a_phase_of_the_samples_and_of_the_trace(place: Path) -> None:
    command = start(
        "pair", "--abi", "9", "-b", "64K", "-e", "64K", "-n", "6", "--trace", "4", hdf5="r.h5"
    )
    result = run(command, place, DIRECT)
    assert result.code == 0, result.text
    with h5py.File(place / "r.h5") as file:
        row = file["rows/row_000000"]
        flush = row["samples/flush"][1]
        assert flush.size == 6
        assert (flush > 0).all()
        assert row["samples/flush"][0].tolist() == [-1] * 6  # it receives nothing
        assert row["warmup/flush"].shape == (2, 1)
        trace = row["trace"][:]
        chunks = trace[trace["kind"] == 1]
        assert (chunks["flushed"] > chunks["done"]).all()
        assert (chunks["finished"] >= chunks["flushed"]).all()
        assert (trace[trace["kind"] == 0]["flushed"] == -1).all()
    report = run(tcpx_mpi("report", "r.h5", "--trace"), place)
    assert report.code == 0, report.text
    assert "flushed" in report.out
    unflushed = run(start("pair", "-b", "64K", "-e", "64K", "-n", "6", hdf5="u.h5"), place, DIRECT)
    assert unflushed.code == 0, unflushed.text
    titles = [
        next(line for line in each.out.splitlines() if "#wrong" in line).split()
        for each in (result, unflushed)
    ]
    assert ["flush" in each for each in titles] == [True, False]
    with h5py.File(place / "u.h5") as file:
        assert "flush" not in file["rows/row_000000/samples"]


def test_what_has_no_meaning_over_a_plugin_is_one_line(place: Path) -> None:
    unpacks = run(start("pair", "--unpack", "host"), place, DIRECT)
    assert (unpacks.code, len(unpacks.errors)) == (2, 1), unpacks.text
    assert "--unpack host: plugin softtcpx_v7 puts data in place" in unpacks.err
    fragments = run(start("pair", "--flush", "always"), place)
    assert (fragments.code, len(fragments.errors)) == (2, 1), fragments.text
    assert "--flush always: plugin softtcpx_v7 hands over fragments" in fragments.err
    command = start("pair", "-b", "1K", "-e", "1K", "-n", "2", "--flush", "always")
    host = run([*command, "--memory", "host"], place)
    assert host.code == 0, host.text
    assert "ignored: --flush (host memory is not flushed)" in host.err


@pytest.mark.variant
def test_no_flag_is_told_of_where_there_is_no_trap(place: Path) -> None:
    result = run(start("pair", "--abi", "9", "-b", "1K", "-e", "1K", "-n", "2"), place, DIRECT)
    assert "faults on purpose" not in result.out
