"""The whole matrix of nccl-tests' programs: ranks, memory, algorithms, types and operations.

Not part of the tests: `make test SUITE=collectives`. GPU memory is used if this machine has a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from nccl_tests_output import read_text

from tcpx_mpi import patterns
from tcpx_mpi.machine.gpu.choice import obstacle_of_host

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(1800)]

VARIANTS = [
    (name, algo) for name in patterns.PROGRAMS for algo in patterns.find_program(name).algos
]
MEMORY = ("host", "emulated", "cuda")


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize(("name", "algo"), VARIANTS, ids=[f"{n}-{a}" for n, a in VARIANTS])
def test_all_of_a_program(name: str, algo: str, memory: str, ranks: int, tmp_path: Path) -> None:
    if memory == "cuda" and (obstacle := obstacle_of_host("this machine")):
        pytest.skip(obstacle)
    program = patterns.find_program(name)
    if program.skips(ranks):
        pytest.skip(f"{name} has no form for {ranks} ranks")
    # Programs with one algorithm are asked for by no name.
    asked = ["--algo", algo] if len(program.algos) > 1 else []
    # Where the bytes go, and how they are cut, has nothing to do with what they are.
    every_type = ("-d", "all", "-o", "all", "-r", "1", "--sizes", "1000,300004")
    every_place = ("-d", "float", "-r", "all", "--sizes", "0,4,1000,64K,1000004")
    for options in (every_type, every_place):
        run_right(name, memory, ranks, tmp_path, *asked, *options)


def run_right(name: str, memory: str, ranks: int, place: Path, *options: str) -> None:
    """A run in which no element is wrong."""
    gpus = ["--share-gpu"] if memory == "cuda" else []
    measured = run(
        tcpx_mpi(
            "run", name, "--ranks", str(ranks), "--plugin", "softtcpx", "--memory", memory, *gpus,
            *options, "-n", "2", "-w", "1", "--check-memory", "1M", "--hdf5", "none",
        ),
        place,
        {} if memory != "cuda" else {"CUDA_VISIBLE_DEVICES": "0"},
        limit_s=1700,
    )  # fmt: skip
    assert measured.code == 0, measured.text
    table = read_text(measured.out)
    assert (table.out_of_bounds, table.okay) == (0, True)
    rows = [row for row in table.rows if row.size]  # of nothing nothing is wrong: N/A
    wrong = {side.wrong for row in rows for side in (row.out_of_place, row.in_place) if side}
    assert wrong == {0}
