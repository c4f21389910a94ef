"""What cannot be on GPUs: one line and exit code 2 before anything is timed; faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpus import Gpus
from jobs import Result, run, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

USAGE, SETUP_FAILED, WRONG_BYTES, PLUGIN_FAILED = 2, 4, 5, 13
LIMIT_S = 120.0


def ran(gpus: Gpus, place: Path, ranks: int, *options: str, **variables: str) -> Result:
    """A ring of 40 small messages of 4 chunks each in GPUs' memory."""
    command = tcpx_mpi("run", "ring", "--ranks", str(ranks), "--memory", "cuda", "-b", "16K",
                       "-e", "16K", "-n", "40", "--chunk", "4K", "--channels", "2",
                       "--plugin", "softtcpx", "--check-memory", "1M", "--hdf5", "none",
                       "--spool", "spool", *options)  # fmt: skip
    return run(command, place, {**gpus.variables, **variables}, LIMIT_S)


def assert_refused(result: Result, *parts: str) -> None:
    """Exit 2, one line with all of these in it, and nothing was measured."""
    assert result.code == USAGE, result.text
    assert len(result.errors) == 1, result.text
    for part in parts:
        assert part in result.errors[0], result.text
    assert result.rows == [], result.text


@pytest.mark.stand_in
def test_two_ranks_on_one_gpu_must_be_asked_for(gpus: Gpus, place: Path) -> None:
    assert_refused(ran(gpus, place, 2, "--gpu", "0"), "local ranks 0 and 1 of", "GPU 0",
                   "--share-gpu")  # fmt: skip


@pytest.mark.variant
def test_more_ranks_than_gpus_must_be_asked_for(gpus: Gpus, place: Path) -> None:
    ranks = gpus.count + 1
    assert_refused(ran(gpus, place, ranks), f"local ranks 0 and {gpus.count} of", "GPU 0",
                   "--share-gpu")  # fmt: skip


def test_a_gpu_that_is_not_there_is_named(gpus: Gpus, place: Path) -> None:
    assert_refused(ran(gpus, place, 2, "--gpu", "0,99"), "no GPU 99", "it has GPU")


def test_no_gpu_for_the_ranks_is_an_error(gpus: Gpus, place: Path) -> None:
    assert_refused(ran(gpus, place, 2, "--gpu", "none"), "--memory cuda", "has no GPU", "--gpu")


@pytest.mark.stand_in
def test_where_no_gpu_is_visible_cuda_is_refused_and_auto_is_host(gpus: Gpus, place: Path) -> None:
    assert_refused(ran(gpus, place, 2, CUDA_VISIBLE_DEVICES=""), "--memory cuda", "no usable GPU",
                   "--memory host")  # fmt: skip
    auto = ran(gpus, place, 2, "--memory", "auto", CUDA_VISIBLE_DEVICES="")
    assert auto.code == 0, auto.text
    assert "# Setting: memory = host (auto: " in auto.out, auto.text
    assert "SOFTTCPX_WORKERS" not in auto.out, auto.text


def test_a_plugin_without_gpus_is_refused_and_named(gpus: Gpus, place: Path) -> None:
    result = ran(gpus, place, 2, "--plugin", "null", *gpus.sharing(2))
    assert_refused(result, "--memory cuda", "null", "--memory host")


def test_more_memory_than_a_gpu_has_is_refused_with_both_figures(gpus: Gpus, place: Path) -> None:
    result = ran(gpus, place, 2, *gpus.sharing(2), "-b", "900G", "-e", "900G", "--chunk", "2M")
    assert_refused(result, "the buffers of this rank need", "free on GPU", "-e")


@pytest.mark.parametrize("peer", ["raw", variant("mpi")])
def test_a_peer_of_host_memory_is_refused(peer: str, gpus: Gpus, place: Path) -> None:
    result = ran(gpus, place, 2, *gpus.sharing(2), "--against", peer)
    assert_refused(result, f"--against {peer}", "--memory host")


@pytest.mark.stand_in
def test_a_gpu_that_fails_between_two_batches_ends_every_rank_with_its_name(
    gpus: Gpus, place: Path
) -> None:
    if gpus.real:
        pytest.skip("needs stand-in: a GPU does not fail when it is asked to")
    result = ran(gpus, place, 2, *gpus.sharing(2), FAKECUDA_FAIL="cuLaunchKernel:1:719")
    assert result.code == PLUGIN_FAILED, result.text
    (error,) = result.errors
    assert "row 0 (16 KiB): CUDA driver call cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED" in error
    assert "between two batches" in error
    assert "Traceback" not in result.text


# --- Faults of the plugin, on rank 1 --------------------------------------------------------------


def trapped(gpus: Gpus, place: Path, mode: str, **traps: int) -> Result:
    variables = {f"SOFTTCPX_TRAP_{name}": str(value) for name, value in traps.items()}
    return ran(gpus, place, 2, *gpus.sharing(2), "--unpack", mode, "--stall-timeout", "5",
               SOFTTCPX_TRAP_RANK="1", **variables)  # fmt: skip


@pytest.mark.parametrize(
    "mode", [pytest.param("kernel", marks=pytest.mark.stand_in), variant("d2d"), variant("host")]
)
def test_one_corrupted_byte_is_found_and_is_one(mode: str, gpus: Gpus, place: Path) -> None:
    result = trapped(gpus, place, mode, CORRUPT_AT=8)
    assert result.code == WRONG_BYTES, result.text
    # One byte on each of two channels.
    assert [row.wrong for row in result.rows] == [2], result.text


def test_fragments_in_another_order_are_right(gpus: Gpus, place: Path) -> None:
    result = trapped(gpus, place, "kernel", REORDER_AT=8)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0], result.text


def test_a_fragment_that_is_listed_twice_is_a_wrong_size(gpus: Gpus, place: Path) -> None:
    result = trapped(gpus, place, "kernel", DUPLICATE_AT=8)
    assert result.code == WRONG_BYTES, result.text
    assert "reports 8192 bytes" in result.errors[0], result.text


def test_a_leaked_bounce_page_is_an_error_at_close(gpus: Gpus, place: Path) -> None:
    result = trapped(gpus, place, "kernel", LEAK_AT=8)
    assert result.code == SETUP_FAILED, result.text
    assert "1 bounce pages missing" in result.errors[0], result.text
