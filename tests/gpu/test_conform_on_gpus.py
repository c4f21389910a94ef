"""`conform` with messages in a GPU's memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gpus import Gpus
from jobs import Result, run, tcpx_mpi

LIMIT_S = 300.0
#: As where a plugin's device block is in a GPU's memory and messages are in the host's.
BLOCK_IN_A_GPU = """
import numpy as np
from tcpx_mpi.conform.bench import Bench, Pair
from tcpx_mpi.conform.memory import PAGE, Gpu, GpuArea
there = GpuArea(Gpu(), PAGE)
there.put(np.array([11, 22, 33], np.uint64).view(np.uint8))
block = np.zeros(PAGE, np.uint8)
block[8:16].view(np.uint64)[0] = there.address
print(Bench("", 7, "host", 1, lambda step: None).unpack_block(Pair(block=block)))
"""


def conform(gpus: Gpus, place: Path, *options: str, **variables: str) -> Result:
    command = tcpx_mpi("conform", "softtcpx", "--memory", "cuda", "--json", "verdicts", *options)
    return run(command, place, {**gpus.variables, **variables}, LIMIT_S)


def verdicts(place: Path) -> dict[str, tuple[str, str]]:
    (version,) = json.loads((place / "verdicts").read_text())["versions"]
    return {each["clause"]: (each["verdict"], each["reason"]) for each in version["clauses"]}


@pytest.mark.stand_in
def test_softtcpx_keeps_the_contract_in_memory_of_a_gpu(gpus: Gpus, place: Path) -> None:
    result = conform(gpus, place, "--abi", "12")
    assert result.code == 0, result.text
    found = verdicts(place)
    assert {name for name, (verdict, _) in found.items() if verdict == "not tried"} == {
        "flush", "large-message",
    }  # fmt: skip
    assert found["register-large"] == ("pass", "2147487744 bytes, and its last page sent")


@pytest.mark.stand_in
@pytest.mark.parametrize("traps", [{}, {"SOFTTCPX_TRAP_DEVICE_MEMORY": "1"}], ids=str)
def test_comms_of_a_gpu_name_one_bounce_buffer(
    traps: dict[str, str], gpus: Gpus, place: Path
) -> None:
    result = conform(gpus, place, "--only", "one-bounce-buffer", **traps)
    assert result.code == 0, result.text
    assert verdicts(place)["one-bounce-buffer"][0] == "pass"


@pytest.mark.stand_in
def test_a_device_block_in_a_gpu_is_read_by_the_driver(gpus: Gpus, place: Path) -> None:
    result = run([sys.executable, "-c", BLOCK_IN_A_GPU], place, gpus.variables, LIMIT_S)
    assert (result.code, result.out) == (0, "(11, 22)\n"), result.text


@pytest.mark.stand_in
def test_bytes_that_are_wrong_in_a_gpu_are_found(gpus: Gpus, place: Path) -> None:
    result = conform(gpus, place, "--only", "message", SOFTTCPX_TRAP_CORRUPT_AT="0")
    assert result.code == 9, result.text
    assert verdicts(place)["message"][1].startswith("1 of 4096 bytes of a message are wrong")


@pytest.mark.stand_in
def test_without_a_visible_gpu_it_is_refused(gpus: Gpus, place: Path) -> None:
    result = conform(gpus, place, CUDA_VISIBLE_DEVICES="")
    assert result.code == 2, result.text
    assert result.errors[0].startswith("--memory cuda: "), result.text
    assert not (place / "verdicts").exists()
