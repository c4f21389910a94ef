"""`conform` with messages in a GPU's memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpus import Gpus
from jobs import Result, run, tcpx_mpi

LIMIT_S = 300.0


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
