"""The C program beside which ours is measured moves every byte, and sees one that is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import collect
import pytest

pytestmark = pytest.mark.multirank


@pytest.fixture(scope="module")
def program(mpirun_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return collect.mpi_in_c(tmp_path_factory.mktemp("mpi-in-C"))
    except SystemExit as error:
        pytest.skip(f"needs mpicc: {error}")


@pytest.mark.parametrize("arguments", ["pingpong 8 40 10", "stream 100003 40 20"])
def test_every_byte_arrives_over_sockets_that_were_set_alike(program: Path, arguments: str) -> None:
    found = collect.run_mpi_in_c(program, arguments, "reno")
    assert found["wrong"] == 0
    assert found["sockets"] > 0
    assert len(found["ns"]) == 40 / int(arguments.split()[-1])
    assert all(ns > 0 for ns in found["ns"])


def test_a_wrong_byte_is_counted(program: Path, mpirun_path: str, tmp_path: Path) -> None:
    source = Path(collect.__file__).with_name("mpi_pingpong.c").read_text()
    right = "memory[i] = poison ? (uint8_t)~byte : byte;"
    assert source.count(right) == 1
    (tmp_path / "broken.c").write_text(source.replace(right, "memory[i] = (uint8_t)~byte;"))
    compiler = Path(mpirun_path).with_name("mpicc")
    broken = tmp_path / "broken"
    subprocess.run([compiler, tmp_path / "broken.c", "-o", broken], check=True)
    with pytest.raises(SystemExit, match='"wrong": 480'):  # the warm-up of 10, and 20: both ways
        collect.run_mpi_in_c(broken, "pingpong 8 20 10")


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ("pong 8 40 10", "pingpong or stream expected, found pong"),
        ("stream 0 40 10", "bytes from 1 expected, found 0"),
        ("stream 8 41 10", "iterations in whole blocks of SLOTS expected, found 41"),
    ],
)
def test_senseless_arguments_are_refused_in_one_line(
    program: Path, arguments: str, refusal: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        collect.run_mpi_in_c(program, arguments)
    assert f"mpi_pingpong: {refusal}" in refused.value.stderr.splitlines()
