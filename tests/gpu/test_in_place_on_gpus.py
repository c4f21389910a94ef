"""A plugin that puts data into a GPU's memory itself: registered, flushed and checked there."""

from __future__ import annotations

from pathlib import Path

import pytest
import refplugin_build
from gpus import Gpus
from jobs import Result, run, tcpx_mpi
from variants import variant

pytestmark = [pytest.mark.multirank, pytest.mark.stand_in]

BASE = ("--plugin", "softtcpx", "--spool", "spool", "--hdf5", "none", "--check-memory", "1M")
SIZES = ("--sizes", "0,1,4097,300001", "-n", "4", "--chunk", "64K")
FORCED = {"SOFTTCPX_TRAP_HIDDEN": "1", "NCCL_NET_FORCE_FLUSH": "1"}
OLD = {"SOFTTCPX_TRAP_HIDDEN": "1", "FAKECUDA_CAPABILITY": "80"}


def ran(gpus: Gpus, place: Path, pattern: str, *options: str, **variables: str) -> Result:
    """A run of 2 ranks in GPUs' memory over such a plugin."""
    command = tcpx_mpi("run", pattern, "--ranks", "2", *BASE, *gpus.sharing(2), *options)
    return run(command, place, {**gpus.variables, "SOFTTCPX_LIKE": "direct", **variables}, 120.0)


@pytest.mark.parametrize(
    ("abi", "pattern", "variables"),
    [
        (6, "pair", FORCED),
        variant(7, "ring", FORCED),
        variant(8, "mesh", FORCED),
        variant(9, "all_reduce", {}),
        variant(10, "alltoall", {"NCCL_NSOCKS_PERTHREAD": "2"}),
        variant(11, "pair", {"NCCL_SOCKET_NTHREADS": "1"}),
        (12, "all_reduce", {"SOFTTCPX_FLUSH_POLLS": "0"}),
    ],
)
def test_every_byte_is_in_place_when_it_is_flushed_in_every_version(
    abi: int, pattern: str, variables: dict[str, str], gpus: Gpus, place: Path
) -> None:
    result = ran(gpus, place, pattern, "--abi", str(abi), "--memory", "cuda", *SIZES, **variables)
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.out, result.text
    assert f"ABI v{abi} name softtcpx_v{abi} memory cuda\n" in result.out, result.text
    assert "# Flush: always (auto: " in result.out


@pytest.mark.parametrize(("pattern", "receives"), [("alltoall", "3"), variant("all_reduce", "8")])
def test_several_messages_of_a_request_are_flushed_together(
    pattern: str, receives: str, gpus: Gpus, place: Path
) -> None:
    options = ("--memory", "cuda", *SIZES, "--multi-recv", receives)
    result = ran(gpus, place, pattern, *options, **FORCED)
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.out, result.text
    assert f", {receives} receives a request\n" in result.out


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        (("--send-memory", "cuda", "--recv-memory", "host"), "cuda to host"),
        (("--memory", "cuda", "--send-memory", "host"), "host to cuda"),
    ],
)
@pytest.mark.parametrize("like", ["direct", variant("")])
def test_one_side_may_be_the_hosts(
    options: tuple[str, ...], memory: str, like: str, gpus: Gpus, place: Path
) -> None:
    result = ran(gpus, place, "ring", *options, *SIZES, SOFTTCPX_LIKE=like)
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.out, result.text
    assert f"memory {memory}" in result.out
    flushes = like == "direct" and memory == "host to cuda"
    assert ("# Flush: " in result.out) == flushes


def test_a_plugin_of_others_is_driven_in_memory_of_gpus(gpus: Gpus, place: Path) -> None:
    """One that looks for the current GPU in init, as TCPXO's does, and takes dma-bufs."""
    source = Path(__file__).parents[1] / "conform" / "faulty" / "faulty.cc"
    plugin = str(refplugin_build.build(place, source))
    variables = {"FAULT": "needs-a-gpu", "FAULTY_MEMORY": "cuda"}
    result = ran(gpus, place, "ring", "--plugin", plugin, *SIZES, **variables)
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.out, result.text
    assert "ABI v11 name faulty memory cuda\n" in result.out, result.text


@pytest.mark.variant
def test_how_memory_is_registered_is_nccls_choice_or_the_users(gpus: Gpus, place: Path) -> None:
    size = ("-b", "64K", "-e", "64K", "-n", "2", "--memory", "auto")
    taken = ran(gpus, place, "pair", *size)
    assert "# Registration: dmabuf (auto: the plugin takes dma-bufs" in taken.out, taken.text
    typed = ran(gpus, place, "pair", *size, "--registration", "regmr")
    assert "# Registration: regmr (command line --registration)" in typed.out, typed.text
    if gpus.real:
        return
    without = {"FAKECUDA_DMA_BUF": "0"}
    lacking = ran(gpus, place, "pair", *size, **without)
    assert "# Registration: regmr (auto: the driver makes no dma-bufs of GPU 0)" in lacking.out
    refused = ran(gpus, place, "pair", *size, "--registration", "dmabuf", **without)
    assert refused.code == 2, refused.text
    assert refused.errors == [
        "--registration dmabuf: the driver makes no dma-bufs of GPU 0; use regmr, or leave it out"
    ]
    fragments = ran(gpus, place, "pair", *size, "--registration", "dmabuf", SOFTTCPX_LIKE="")
    assert "--registration dmabuf: plugin softtcpx_v7 takes no dma-bufs (ptrSupport 3)" in (
        fragments.err
    )


def test_what_the_plugin_says_of_a_registration_is_told(gpus: Gpus, place: Path) -> None:
    if gpus.real:
        pytest.skip("needs stand-in: a driver whose call can be made to fail")
    result = ran(gpus, place, "pair", "-b", "64K", "-e", "64K", "-n", "2", "--memory", "cuda",
                 FAKECUDA_FAIL="cuMemGetHandleForAddressRange:1:801")  # fmt: skip
    assert result.code == 4, result.text
    assert "cuMemGetHandleForAddressRange" in result.errors[0]


def test_a_gpu_older_than_hopper_needs_the_flush(gpus: Gpus, place: Path) -> None:
    if gpus.real:
        pytest.skip("needs stand-in: a GPU of another generation")
    size = ("-b", "64K", "-e", "64K", "-n", "2", "--memory", "cuda")
    old = ran(gpus, place, "pair", *size, **OLD)
    assert old.code == 0, old.text
    why = "the GPU is older than Hopper (compute capability 8.0)"
    assert f"# Flush: always (auto: {why})" in old.out
    new = ran(gpus, place, "pair", *size, SOFTTCPX_TRAP_HIDDEN="1")
    assert new.code == 5, new.text
    assert "not flushed (--flush auto found no need: see --flush always)" in new.err


def test_kinds_of_memory_that_exclude_each_other_are_one_line(gpus: Gpus, place: Path) -> None:
    for options, said in (
        (("--memory", "host", "--send-memory", "cuda"), "--send-memory cuda and --memory host"),
        (("--send-memory", "cuda", "--recv-memory", "emulated"), "name two kinds of memory"),
    ):
        result = ran(gpus, place, "pair", *options)
        assert (result.code, len(result.errors)) == (2, 1), result.text
        assert said in result.errors[0]
    computes = ran(gpus, place, "all_reduce", "--memory", "cuda", "--send-memory", "host")
    assert computes.code == 2
    assert "all_reduce computes with elements of both" in computes.errors[0]
