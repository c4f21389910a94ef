"""What `tcpx-mpi nixl` fills, judges and asks for, without NIXL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi import cli
from tcpx_mpi.nixl.memory import HostMemory, pattern, poison, wrong_bytes
from tcpx_mpi.nixl.request import Request, request_of_size
from tcpx_mpi.nixl.wheel import Wheel
from tcpx_mpi.records import read_run


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
    assert request_of_size("write", 4096, 1) == Request("write", 1, 4096, 4096)
    assert request_of_size("write", 4096, 4) == Request("write", 4, 1024, 2048)


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
        (["--against", "ucx,libfabrik"], "--against (libfabrik) is unknown (did you mean lib"),
        (["--device", "0,eth1"], "--device (0,eth1) is no list of devices"),
        (["--initiators", "0-1", "--targets", "1-2"], "overlap in rank 1: a rank asks or is"),
        (["--initiators", "", "--targets", "1"], "--initiators () names no rank"),
        (["--initiators", "0-x", "--targets", "1"], "--initiators (0-x) is no list of ranks"),
        (["--targets", "0-3"], "--targets (0-3) leaves no rank for --initiators: give both"),
        (["--initiators", "0", "--targets", "2"], "rank 1 is neither in --initiators nor in"),
        (["--initiators", "0-39", "--targets", "40-79"], "80 agents on one machine are more than"),
        (["--kv", "llama-3.1-8", "--size", "4K"], "--kv says sizes and descriptors: leave --size"),
        (["--kv", "llama-3.1-8"], "nor a preset"),
        (["--kv", "32,8,128,0,4096"], "--kv: block (0) cannot be; use a number from 1 to"),
        (["--kv", "16777216,1,1,1,16777216"], "descriptors a request are more than 1048576"),
        (["--kv", "1,16777216,16777216,16777216,1"], "bytes is too large: the limit is 922337203"),
        (["--size", "4611686018427387904", "--batch", "2"], "are more than 9223372036854775807 by"),
        (["--size", "512T"], "need 4096 TiB, available are"),
        (["--batch", "2000"], "2000 is not in the range 1<=x<=1024"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["nixl", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


@pytest.fixture
def idle_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed NIXL whose agents say that they have moved what they have not."""
    folder = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    wheel = Wheel("nixl-cu12", "1.5.1", "idle_nixl", None)
    monkeypatch.setattr("tcpx_mpi.nixl.measure.installed_wheel", lambda: wheel)


IDLE = ["nixl", "--size", "4K,8K", "--iters", "4", "--warmup", "0", "--no-check"]


@pytest.mark.usefixtures("idle_wheel")
@pytest.mark.parametrize(
    ("fails", "rows", "words"),
    [
        ("make", 0, "n/a: the initiator over UCX: RuntimeError: no active memory type: cuda_copy"),
        ("post", 0, "n/a: the initiator over UCX: RuntimeError: a transfer ended as ERR"),
        ("die", 0, "n/a: the initiator over UCX ended with -11"),
        ("late", 0, "# Peer ucx: n/a from here on: the initiator over UCX: RuntimeError"),
        (
            "end",
            2,
            "# Peer ucx: the initiator over UCX ended with -11; the target over UCX ended with "
            "-11, after its last row",
        ),
        ("", 2, "# Peer ucx: "),
    ],
)
def test_a_ucx_that_cannot_leaves_our_rows_and_says_why(
    fails: str, rows: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("UCX_TLS", fails)
    file = tmp_path / "o.h5"
    assert cli.main([*IDLE, "--against", "ucx", "--hdf5", str(file)]) == 0
    out = capsys.readouterr().out
    assert words in out
    run = read_run(str(file))
    assert len(run.rows) == 2
    assert [len(row.sides) for row in run.rows].count(1) == rows
    lines = [line for line in out.splitlines() if line.split()[:1] in (["4096"], ["8192"])]
    assert len(lines) == 2
    assert [line.split()[-1] == "n/a" for line in lines] == [rows == 0] * 2


@pytest.mark.usefixtures("idle_wheel")
def test_an_agent_of_ours_that_cannot_is_an_error_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tcpx_mpi.nixl.measure.BACKEND", "UCX")  # the one that fails
    monkeypatch.setenv("UCX_TLS", "make")
    assert cli.main(IDLE) == 4
    assert "the initiator over UCX: RuntimeError: no active memory" in capsys.readouterr().err


@pytest.mark.usefixtures("idle_wheel")
def test_an_agent_of_ours_that_ends_badly_is_an_error_behind_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tcpx_mpi.nixl.measure.BACKEND", "UCX")  # the one that fails
    monkeypatch.setenv("UCX_TLS", "end")
    assert cli.main(IDLE) == 7
    said = capsys.readouterr()
    assert "the target over UCX ended with -11, after all was moved" in said.err
    assert [line.split()[0] for line in said.out.splitlines() if line[:1] == " "] == [
        "4096",
        "8192",
    ]
