"""`conform` with messages in a GPU's memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gpus import Gpus
from jobs import Result, run, tcpx_mpi
from variants import variant

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
print(Bench("", 7, "host", 1, lambda thread, step: None).unpack_block(Pair(block=block)))
"""


def conform(gpus: Gpus, place: Path, *options: str, **variables: str) -> Result:
    command = tcpx_mpi("conform", "softtcpx", "--memory", "cuda", "--json", "verdicts", *options)
    return run(command, place, {**gpus.variables, **variables}, LIMIT_S)


def not_tried(place: Path) -> set[str]:
    return {name for name, (verdict, _) in verdicts(place).items() if verdict == "not tried"}


def of_two(gpus: Gpus) -> set[str]:
    return {"two-gpus"} if gpus.count < 2 else set()


def verdicts(place: Path) -> dict[str, tuple[str, str]]:
    (version,) = json.loads((place / "verdicts").read_text())["versions"]
    return {each["clause"]: (each["verdict"], each["reason"]) for each in version["clauses"]}


@pytest.mark.stand_in
def test_softtcpx_keeps_the_contract_in_memory_of_a_gpu(gpus: Gpus, place: Path) -> None:
    # Many messages are asked of memory of the host, by tests/conform.
    quick = () if gpus.real else ("--quick",)
    result = conform(gpus, place, "--abi", "12", *quick)
    assert result.code == 0, result.text
    by_quick = {"many-messages"} if quick else set()
    assert not_tried(place) == {"large-message", *by_quick, *of_two(gpus)}, result.text
    found = verdicts(place)
    assert found["register-large"] == ("pass", "2147487744 bytes, and its last page sent")
    for clause in ("register-whole", "register-reused", "register-freed"):
        assert found[clause][0] == "pass", result.text


#: What is received is hidden until it is flushed, which no property of v6 to v8 can ask for.
FORCED = {"SOFTTCPX_TRAP_HIDDEN": "1", "NCCL_NET_FORCE_FLUSH": "1"}
#: Of the kind that puts data in place, by version.
IN_PLACE = [
    ("12", {}),
    *(variant(abi, FORCED) for abi in ("6", "7", "8")),
    *(variant(abi, {}) for abi in ("9", "10", "11")),
    variant("12", {"SOFTTCPX_FLUSH_POLLS": "0"}),
    variant("12", {"NCCL_SOCKET_NTHREADS": "1"}),
]


@pytest.mark.stand_in
@pytest.mark.parametrize(("abi", "variables"), IN_PLACE)
def test_softtcpx_keeps_the_contract_of_a_plugin_that_puts_data_in_place(
    abi: str, variables: dict[str, str], gpus: Gpus, place: Path
) -> None:
    direct = {"SOFTTCPX_LIKE": "direct", **variables}
    result = conform(gpus, place, "--abi", abi, "--quick", **direct)
    assert result.code == 0, result.text
    of_dma_buf = set() if gpus.dma_buf else {name for name in verdicts(place) if "dma-buf-" in name}
    by_quick = {"many-messages"} | ({"large-message"} if int(abi) >= 9 else set())
    assert not_tried(place) == by_quick | of_two(gpus) | of_dma_buf, result.text
    found = verdicts(place)
    for clause in ("message", "flush", "flush-several", "flush-closed", "register-odd"):
        assert found[clause][0] == "pass", result.text


@pytest.mark.stand_in
def test_receives_into_an_old_gpu_are_flushed_whatever_the_plugin_asks_for(
    gpus: Gpus, place: Path
) -> None:
    if gpus.real:
        pytest.skip("needs stand-in: a GPU of another generation")
    hidden = {"SOFTTCPX_LIKE": "direct", "SOFTTCPX_TRAP_HIDDEN": "1"}
    only = ("--abi", "7", "--only", "in-flight")
    old = conform(gpus, place, *only, FAKECUDA_CAPABILITY="80", **hidden)
    assert old.code == 0, old.text
    new = conform(gpus, place, *only, **hidden)
    assert new.code == 9, new.text
    assert "bytes of a message are wrong" in verdicts(place)["message"][1]


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
