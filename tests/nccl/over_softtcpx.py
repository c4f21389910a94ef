"""NCCL itself over softtcpx: the strictest judge from outside that the contract has.

`make test SUITE=nccl`, where GPUs are. Two processes, each a rank with a GPU; where there is one
GPU, both on that (several_peers.py: three and four). What comes out is compared byte by byte, and
NCCL's own log must say that it unpacked on the device and went no other way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nccl_cases import OPERATIONS, PROGRAMS, REDUCING, TYPES, Case, case_of_bytes
from nccl_session import NcclJob, ways_of
from softtcpx_judged import require_right, session

LARGE = 64 << 20
#: Nothing, less than a page, what ends within one, what has several chunks on every channel.
SIZES = (0, 8, 300001, LARGE)
ODD_COUNT = 4099
FRAGMENTS = ("page", "mss", "random")


def all_cases(world: int) -> list[Case]:
    """Each program at each size; each type and operation at an odd count; in place."""
    cases = [case_of_bytes(program, size, world) for program in PROGRAMS for size in SIZES]
    for kind in TYPES:
        for program in PROGRAMS:
            operations = OPERATIONS if program in REDUCING else ("sum",)
            cases += [Case(program, ODD_COUNT, kind, operation) for operation in operations]
    for program in ("all_reduce", "all_gather"):
        cases += [
            case_of_bytes(program, size, world, "float32", in_place=True)
            for size in (8 * world, LARGE)
        ]
    return [
        Case(**{**vars(case), "seed": number, "root": number % world})
        for number, case in enumerate(cases, 1)
    ]


@pytest.fixture(scope="module", params=FRAGMENTS)
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NcclJob]:
    """Two ranks that have met, for all programs with one way of fragments."""
    more = {"SOFTTCPX_FRAGMENTS": str(request.param), "SOFTTCPX_POISON": "1"}
    with session(tmp_path_factory.mktemp("judged"), variables=more) as opened:
        opened.meet()
        yield opened


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_byte_is_right(judged: NcclJob, program: str) -> None:
    cases = [case for case in all_cases(judged.world) if case.program == program]
    verdicts = [each for case in cases for each in judged.run(case)]
    assert sum(each["checked"] for each in verdicts) > LARGE
    require_right(verdicts)
    assert ways_of(judged.log()) == []


def test_two_communicators_at_once_and_one_made_again(tmp_path: Path) -> None:
    with session(tmp_path) as opened:
        opened.meet("first")
        opened.meet("second")
        both = [
            [case_of_bytes(program, size, opened.world, comm=comm, seed=seed)
             for seed, comm in enumerate(("first", "second"), 1)]
            for program in PROGRAMS for size in (300001, 8 << 20)
        ]  # fmt: skip
        require_right([each for cases in both for each in opened.run(*cases)])
        opened.leave("first")
        case = case_of_bytes("all_reduce", 8 << 20, opened.world, "int32", comm="second", seed=3)
        require_right(opened.run(case))
        for seed in (4, 5):
            opened.meet("again")
            case = case_of_bytes("alltoall", 1 << 20, opened.world, comm="again", seed=seed)
            require_right(opened.run(case))
            opened.leave("again")
        assert ways_of(opened.log()) == []


def test_all_communicators_gone_and_one_made_again(tmp_path: Path) -> None:
    """Every byte, and not the way: NCCL unloads a plugin with its last communicator, and releases
    of it then forget the plugin's name and go on over sockets of their own."""
    with session(tmp_path) as opened:
        for seed in (1, 2, 3):
            opened.meet("again")
            case = case_of_bytes("alltoall", 1 << 20, opened.world, comm="again", seed=seed)
            require_right(opened.run(case))
            if seed == 1:
                assert ways_of(opened.log()) == []
            opened.leave("again")


def test_two_ranks_on_one_gpu(tmp_path: Path) -> None:
    with session(tmp_path, gpus=(0, 0)) as opened:
        opened.meet()
        for seed, program in enumerate(PROGRAMS, 1):
            for size in (8, 300001):
                require_right(opened.run(case_of_bytes(program, size, opened.world, seed=seed)))
        assert ways_of(opened.log()) == []


@pytest.mark.parametrize("program", ["all_reduce", "sendrecv"])
def test_a_killed_peer_ends_the_other_rank(tmp_path: Path, program: str) -> None:
    with session(tmp_path, patience_s=20.0) as opened:
        opened.meet()
        case = case_of_bytes(program, 4 << 20, opened.world, "float32")
        require_right(opened.run(case))
        step = {"case": vars(case)}
        opened.begin({"do": "lose", **step}, rank=0)
        opened.begin({"do": "die", **step}, rank=1)
        lost = opened.answer(0)
        # Of the call that is under way, or of one that begins when the peer is gone already.
        assert lost.startswith(("NCCL: ", f"{program}: NCCL_ERROR")), lost
        assert opened.exit_code(1) == -9
        assert opened.exit_code(0) == 0


def test_sockets_of_nccl_would_be_noticed(tmp_path: Path) -> None:
    """The judge of the log, on a log of NCCL that went another way."""
    sockets = {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}
    with session(tmp_path, variables=sockets) as opened:
        opened.meet()
        require_right(opened.run(case_of_bytes("all_reduce", 8, opened.world)))
        assert "the log has no NCCL_NET_DEVICE_UNPACK" in ways_of(opened.log())
