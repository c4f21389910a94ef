"""What `tcpx-mpi nixl` fills, judges and asks for, without NIXL."""

from __future__ import annotations

import pytest

from tcpx_mpi import cli
from tcpx_mpi.nixl.agent_process import Request
from tcpx_mpi.nixl.measure import NixlSettings, request_of
from tcpx_mpi.nixl.memory import HostMemory, pattern, poison, wrong_bytes


def settings(**changes: object) -> NixlSettings:
    values: dict[str, object] = {
        "sizes": (4096,), "operation": "write", "memory": "dram", "descriptors": 1,
        "iterations": 5, "warmup_iterations": 1, "against": "none", "check": True,
        "progress_thread": True, "plugin": "", "hdf5": "none", **changes,
    }  # fmt: skip
    return NixlSettings(**values)  # type: ignore[arg-type]


def arrived(request: Request, seed: int) -> HostMemory:
    """A destination to which all blocks came."""
    memory = HostMemory(request.extent_bytes)
    poison(memory, request.extent_bytes)
    sent = pattern(seed, request.extent_bytes)
    for block in range(request.blocks):
        at = block * request.stride_bytes
        memory.read(request.extent_bytes)[at : at + request.block_bytes] = sent[
            at : at + request.block_bytes
        ]
    return memory


def judged(memory: HostMemory, request: Request, seed: int) -> tuple[int, int]:
    return wrong_bytes(memory, seed, request.blocks, request.block_bytes, request.stride_bytes)


def test_descriptors_have_gaps_so_that_nobody_joins_them() -> None:
    assert request_of(settings(), 4096) == Request("write", 1, 4096, 4096)
    assert request_of(settings(descriptors=4), 4096) == Request("write", 4, 1024, 2048)


def test_what_arrived_whole_is_right_and_what_did_not_is_counted_and_placed() -> None:
    request = Request("write", 3, 100, 150)
    memory = arrived(request, seed=7)
    assert judged(memory, request, 7) == (0, -1)
    assert judged(memory, request, 8)[0] > 250
    memory.read(400)[170] ^= 1
    assert judged(memory, request, 7) == (1, 170)


def test_a_byte_between_the_blocks_is_wrong_if_it_was_touched() -> None:
    request = Request("write", 2, 100, 200)
    memory = arrived(request, seed=1)
    memory.read(300)[150] = 0
    assert judged(memory, request, 1) == (1, 150)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--size", "many"], "--size"),
        (["--size", "10", "--descriptors", "11"], "less than a byte"),
        (["--plugin", "/nowhere.so"], "--plugin: /nowhere.so is no file"),
        (["--op", "copy"], "copy"),
        (["--hdf5", "/nowhere/o.h5"], "--hdf5: the directory /nowhere does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["nixl", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
