"""NCCL beside the plugin in the memory of GPUs: the same frame, every byte checked there too."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpus import Gpus
from jobs import Result, run, tcpx_mpi

from tcpx_mpi.records import Run, SideKey, read_run

pytestmark = pytest.mark.multirank

USAGE, WRONG_BYTES = 2, 5
#: Ranks and companions, each with a context of its own.
LIMIT_S = 120.0
#: Nothing, what ends in the midst of a page, and what has several chunks.
SIZES = ("--sizes", "0,4097,300001", "-n", "16", "-w", "2", "--check-memory", "1M")


def with_nccl(
    gpus: Gpus, place: Path, pattern: str, *options: str, ranks: int = 2, **variables: str
) -> Result:
    # One companion a rank, but for tests of several.
    preset = () if "--nccl-preset" in options else ("--nccl-preset", "tuned")
    command = tcpx_mpi("run", pattern, "--ranks", str(ranks), "--memory", "cuda", "--plugin",
                       "softtcpx", "--against", "nccl", *preset, "--hdf5", "o.h5",
                       "--spool", "spool", *options, *gpus.sharing(ranks))  # fmt: skip
    return run(command, place, {**gpus.variables, **variables}, LIMIT_S)


def complete(result: Result, place: Path) -> Run:
    assert result.code == 0, result.text
    found = read_run(str(place / "o.h5"))
    assert found.complete
    return found


@pytest.mark.parametrize(
    ("pattern", "options", "names"),
    [
        ("pair", (), ("nccl",)),
        ("ring", ("--unpack", "d2d"), ("nccl",)),
        ("mesh", ("-m", "2"), ("nccl",)),
        ("pingpong", ("--nccl-preset", "default,tuned"), ("nccl", "nccl_tuned")),
    ],
)
def test_nccl_takes_turns_and_every_byte_of_it_is_right(
    pattern: str, options: tuple[str, ...], names: tuple[str, ...], gpus: Gpus, place: Path
) -> None:
    found = complete(with_nccl(gpus, place, pattern, *SIZES, *options), place)
    assert tuple(baseline.name for baseline in found.header.baselines) == names
    for baseline in found.header.baselines:
        assert baseline.description.startswith("NCCL 2."), baseline.description
        assert " by CuPy " in baseline.description
        assert baseline.congestion_control == found.header.facts["congestion_control"]
        alone = gpus.real and gpus.count > 1
        known = alone and pattern == "pair" and "H200" in found.header.ranks[0].gpu_name
        assert baseline.floor_gbps == (29 if known else 0)
    for row in found.rows:
        for name in names:
            theirs = row.sides[SideKey.of_name(name)]
            assert theirs.checked.all() == (row.size_bytes > 0)
            assert theirs.wrong.tolist() == row.wrong.tolist()
            assert (theirs.samples["iteration"] >= 0).all()
            # Both crossed TCP: nothing took a short cut within the host.
            assert (theirs.net_sent >= theirs.payload_bytes_sent).all()
            assert (theirs.net_received >= theirs.payload_bytes_received).all()


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("all_reduce", ("-o", "all")),
        ("all_reduce", ("-d", "f8e4m3", "-o", "mulsum")),
        ("reduce_scatter", ("-d", "bfloat16", "-m", "2")),
        ("reduce", ("-d", "int8", "-o", "avg", "-r", "1")),
        ("all_gather", ()),
        ("broadcast", ("-d", "half", "-r", "1")),
    ],
)
def test_nccls_own_collective_takes_turns_and_every_element_of_it_is_right(
    program: str, options: tuple[str, ...], gpus: Gpus, place: Path
) -> None:
    sizes = ("--sizes", "0,4096,300032" if gpus.real else "0,4096", "-n", "16", "-w", "2",
             "--check-memory", "2M")  # fmt: skip
    found = complete(with_nccl(gpus, place, program, *sizes, *options), place)
    called = "nccl" + "".join(part.capitalize() for part in program.split("_"))
    assert f", {called}, " in found.header.baselines[0].description
    for row in found.rows:
        for side in ("nccl", "nccl_in_place"):
            theirs = row.sides[SideKey.of_name(side)]
            assert theirs.checked.all() == (row.size_bytes > 0)
            assert theirs.wrong.tolist() == row.wrong.tolist()
            assert (theirs.samples["iteration"] >= 0).all()


def test_nccl_of_a_long_row_sleeps_while_the_plugin_works(gpus: Gpus, place: Path) -> None:
    size = "16M" if gpus.real else "64K"
    options = ("--sizes", size, "-n", "64", "-w", "8", "--check-memory", "256M")
    found = complete(with_nccl(gpus, place, "pair", *options), place)
    (row,) = found.rows
    elapsed_ns = row.samples["iteration"].sum(axis=1)
    used_ns = [seen.waiting_cpu_ns for seen in row.proof]
    assert all(used >= 0 for used in used_ns)
    if gpus.real:  # on the stand-in ranks are busy with what a GPU would do
        assert (
            max(used / complete for used, complete in zip(used_ns, elapsed_ns, strict=True)) < 0.01
        )


def test_ranks_that_share_gpus_share_them_in_nccl_too(gpus: Gpus, place: Path) -> None:
    ranks = 2 * gpus.count
    found = complete(with_nccl(gpus, place, "mesh", *SIZES, ranks=ranks), place)
    (baseline,) = found.header.baselines
    assert "ranks of a GPU as if on hosts of their own" in baseline.description
    assert baseline.floor_gbps == 0
    for row in found.rows:
        theirs = row.sides[SideKey("nccl")]
        assert theirs.checked.all() == (row.size_bytes > 0)
        assert theirs.wrong.tolist() == [0 if row.size_bytes else -1] * ranks
        # No way around TCP between two ranks of a GPU.
        assert (theirs.net_sent >= theirs.payload_bytes_sent).all()


def test_one_host_for_ranks_that_share_a_gpu_is_refused(gpus: Gpus, place: Path) -> None:
    options = (*SIZES, "--nccl-env", "NCCL_HOSTID=everybody")
    result = with_nccl(gpus, place, "ring", *options, ranks=gpus.count + 1)
    assert result.code == USAGE, result.text
    assert len(result.errors) == 1, result.text
    assert "--nccl-env NCCL_HOSTID is the same for all ranks" in result.errors[0]
    assert not result.rows


def test_wrong_bytes_in_the_memory_of_a_gpu_are_found(gpus: Gpus, place: Path) -> None:
    if gpus.real:
        pytest.skip("needs stand-in: NCCL itself has no fault to switch on")
    options = ("--sizes", "4097", "-n", "16")
    result = with_nccl(gpus, place, "pair", *options, BY_SOCKETS_FAULT="wrong:1:9")
    assert result.code == WRONG_BYTES, result.text
    assert "peer nccl delivered 1 wrong byte" in result.out
