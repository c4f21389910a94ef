"""The judge of NCCL, without NCCL: what it expects, and that it finds what is broken."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from nccl_cases import (
    GROUPED,
    GUARD,
    POISON,
    PROGRAMS,
    REDUCING,
    TYPES,
    Case,
    case_of_bytes,
    dtype_of,
    layout_of,
    programs_of,
    source_of,
    target_of,
    verdict,
)  # fmt: skip
from nccl_rounds import Part, rounds_of
from nccl_session import RECIPE, NcclJob, NothingHere, SessionError, over_softtcpx, ways_of

from tcpx_mpi.plugin.find import bundled_dir

GOOD = """
judge:1:2 [0] NCCL INFO Using NCCL_NET_DEVICE_UNPACK net plugin version 7
judge:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/softtcpx_v7/0/GDRDMA/Shared
judge:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/softtcpx_v7/0/GDRDMA
"""


def guarded_target(case: Case, rank: int, world: int) -> np.ndarray:
    """A target that is right, with its guards."""
    guard = np.full(GUARD, POISON, np.uint8)
    return np.concatenate([guard, target_of(case, rank, world), guard])


def test_what_is_expected_of_three_ranks() -> None:
    sources = [source_of(Case("alltoall", 2, "int32"), rank, 3) for rank in range(3)]
    block = 8
    assert bytes(target_of(Case("alltoall", 2, "int32"), 1, 3)) == b"".join(
        bytes(source[block : 2 * block]) for source in sources
    )
    moved = Case("sendrecv", 24)
    assert bytes(target_of(moved, 0, 3)) == bytes(source_of(moved, 2, 3))
    numbers = [source_of(Case("reduce_scatter", 5, "bfloat16"), rank, 3) for rank in range(3)]
    kind = dtype_of("bfloat16")
    total = sum(each.view(kind).astype(float) for each in numbers)
    got = target_of(Case("reduce_scatter", 5, "bfloat16"), 2, 3).view(kind).astype(float)
    assert got.tolist() == total[10:].tolist()
    assert len(target_of(case_of_bytes("all_gather", 100, 3), 0, 3)) == 99


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_what_ranks_send_and_receive_is_what_each_must_get(world: int) -> None:
    for program in set(GROUPED) & set(programs_of(world)):
        case = Case(program, 30, "float16", root=world - 1)
        sources = [source_of(case, rank, world) for rank in range(world)]
        targets = [np.zeros(layout_of(case, rank, world).target, np.uint8) for rank in range(world)]
        for one in zip(*(rounds_of(case, rank, world) for rank in range(world)), strict=True):
            under_way = {
                (rank, part.peer): cut(targets[rank] if each.passed_on else sources[rank], part)
                for rank, each in enumerate(one) for part in each.sends
            }  # fmt: skip
            for rank, each in enumerate(one):
                for part in each.receives:
                    cut(targets[rank], part)[:] = under_way.pop((part.peer, rank)).copy()
            assert not under_way
        for rank, target in enumerate(targets):
            assert bytes(target) == bytes(target_of(case, rank, world)), program


def cut(guarded_target: np.ndarray, part: Part) -> np.ndarray:
    """Of a buffer of elements of 2 bytes."""
    return guarded_target[2 * part.at : 2 * (part.at + part.count)]


def test_a_cube_of_three_ranks_there_is_not() -> None:
    assert set(PROGRAMS) - set(programs_of(3)) == {"hypercube"}
    assert programs_of(4) == PROGRAMS
    assert len(PROGRAMS) == 11


@pytest.mark.parametrize("kind", TYPES)
def test_no_type_rounds_what_is_reduced(kind: str) -> None:
    for operation in ("sum", "prod", "max", "min"):
        case = Case("all_reduce", 50, kind, operation)
        got = target_of(case, 0, 2).view(dtype_of(kind)).astype(np.float64)
        one, other = (
            source_of(case, rank, 2).view(dtype_of(kind)).astype(np.float64) for rank in (0, 1)
        )
        function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
        assert (got == function[operation](one, other)).all()


@pytest.mark.parametrize(
    ("at", "wrong", "first", "beyond"),
    [(None, 0, -1, 0), (GUARD + 7, 1, 7, 0), (GUARD - 1, 0, -1, 1), (-1, 0, -1, 1)],
)
def test_each_wrong_byte_is_seen(at: int | None, wrong: int, first: int, beyond: int) -> None:
    case = Case("broadcast", 4097, root=1)
    found = guarded_target(case, 0, 2)
    if at is not None:
        found[at] ^= 1
    said = verdict(case, 0, 2, found)
    assert (said["wrong"], said["first"], said["beyond"]) == (wrong, first, beyond)


def test_pages_that_change_places_are_seen() -> None:
    case = Case("all_gather", 1 << 20)
    found = guarded_target(case, 1, 2)
    body = found[GUARD:-GUARD].reshape(-1, 4096)
    body[[3, 259]] = body[[259, 3]]
    assert verdict(case, 1, 2, found)["wrong"] > 8000


def test_the_log_says_which_way() -> None:
    assert ways_of(GOOD) == []
    assert ways_of(GOOD, unpacked=False) == ["the log has NCCL_NET_DEVICE_UNPACK"]
    assert ways_of("") == [
        "the log has no NCCL_NET_DEVICE_UNPACK", "the log names no way between two ranks",
    ]  # fmt: skip
    other = GOOD + "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    assert ways_of(other) == ["a channel went via P2P/CUMEM"]
    assert ways_of(GOOD.replace("/GDRDMA\n", "\n")) == ["a channel went via NET/softtcpx_v7/0"]


def stand_ins(place: Path, **variables: str) -> NcclJob:
    return NcclJob(place, (0, 1), variables, library="stand-in", patience_s=20.0)


def test_ranks_do_as_told_and_a_wrong_byte_is_found(tmp_path: Path) -> None:
    """Over the stand-in: all programs, two communicators, one made again, a rank that is killed."""
    with stand_ins(tmp_path, JUDGE_FAULT="1:-1") as opened:
        assert opened.facts()["gpu"] == "none"
        opened.meet("first")
        opened.meet("second")
        for program in PROGRAMS:
            cases = [Case(program, 33, "int32", root=1, comm=comm) for comm in ("first", "second")]
            verdicts = opened.run(*cases, Case(program, 0))
            assert [each["wrong"] for each in verdicts] == [0] * 6
            # In front of what this rank got, where there is anything to get.
            assert [each["beyond"] for each in verdicts] == [0, 0, 0, 1, 1, 0]
        placed = opened.run(Case("all_gather", 9, "float16", in_place=True))
        assert [each["wrong"] for each in placed] == [0, 0]
        opened.leave("first")
        opened.meet("first")
        assert opened.seconds(Case("all_reduce", 4), warm=1, times=2) > 0
        with pytest.raises(SessionError, match="rank 0"):
            opened.run(Case("all_reduce", 1, comm="nobody's"))
    with stand_ins(tmp_path / "killed") as opened:
        opened.meet()
        case = vars(Case("all_reduce", 100))
        opened.begin({"do": "lose", "case": case}, rank=0)
        opened.begin({"do": "die", "case": case}, rank=1)
        assert opened.answer(0).startswith("a rank is gone")
        (took,) = opened.tell({"do": "abort", "comm": "first"}, ranks=[0])
        assert took >= 0
        assert opened.exit_code(1) == -signal.SIGKILL
        assert opened.exit_code(0) == os.EX_OK


def test_every_peer_of_a_channel_is_read_from_one_bounce_buffer(tmp_path: Path) -> None:
    """As NCCL's device code keeps its address; three peers of each rank are on the only channel."""
    ranks = 4
    variables = {
        **over_softtcpx(os.path.join(bundled_dir(), "libnccl-net-softtcpx.so")),
        "NCCL_MAX_P2P_NCHANNELS": "1", "NCCL_SOCKET_NTHREADS": "0", "SOFTTCPX_POISON": "1",
    }  # fmt: skip
    with NcclJob(tmp_path, range(ranks), variables, "unpacking", patience_s=20.0) as opened:
        opened.meet()
        for program in programs_of(ranks):
            kind = "float32" if program in REDUCING else "uint8"
            cases = [
                case_of_bytes(program, size, ranks, kind, root=1, seed=seed)
                for seed, size in enumerate((0, 8, 4097, 1 << 20), 1)
            ]
            verdicts = opened.run(*cases)
            assert not [each for each in verdicts if each["wrong"] or each["beyond"]]
        opened.leave()


def test_where_there_is_no_nccl_it_says_so(tmp_path: Path) -> None:
    with (
        NcclJob(tmp_path, (0, 1), {**RECIPE, "CUDA_VISIBLE_DEVICES": ""}) as opened,
        pytest.raises(NothingHere, match=r"no CuPy|no GPU|finds no NCCL"),
    ):
        opened.facts()


def test_the_benchmark_prints_a_table_and_does_not_believe_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
    monkeypatch.syspath_prepend(str(folder))
    benchmark = importlib.import_module("nccl_over_softtcpx")
    monkeypatch.setattr(benchmark, "SIZES", {8192: 3})
    with stand_ins(tmp_path / "a") as one, stand_ins(tmp_path / "b") as other:
        code = benchmark.measured({"tuned": one, "softtcpx": other}, ["alltoall"], 2, busy=True)
    out, err = capsys.readouterr()
    assert code == benchmark.FAILED
    assert "softtcpx: the log has no NCCL_NET_DEVICE_UNPACK" in err
    *_, line, _, of_ours = out.splitlines()
    row = line.split()
    assert of_ours.startswith("    softtcpx: ")
    assert row[:2] == ["alltoall", "8192"]
    assert float(row[4]) == pytest.approx(float(row[2]) / float(row[3]), rel=0.1)
    with pytest.raises(ValueError, match="expected NAME:VARIABLE=VALUE"):
        benchmark.sides(["workers"])
