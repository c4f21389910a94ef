"""A hostfile means to preflight what it means to the launcher that will read it.

tests/preflight has a real Open MPI 5 read the same files; `make test SUITE=mpis` has others.
"""

from __future__ import annotations

import pytest
from hostfile_cases import CASES, Case, expected_of, mpirun_version

from tcpx_mpi.errors import UsageError
from tcpx_mpi.preflight.hostfile_forms import HostLine, launcher_of, parse_hosts

NAMES = ("openmpi5", "openmpi4", "mpich", "intel")


@pytest.mark.parametrize(
    ("version", "name", "hydra"),
    [
        (mpirun_version("openmpi5"), "Open MPI 5.0.11", False),
        (mpirun_version("openmpi4"), "Open MPI 4.1.4", False),
        ("prterun (PRRTE) 3.0.13", "Open MPI 3.0.13", False),
        (mpirun_version("mpich"), "MPICH 4.0.2", True),
        (mpirun_version("intel"), "Intel MPI 2021.19.0", True),
        ("", "Open MPI", False),
    ],
)
def test_the_launcher_is_known_by_what_it_says_of_itself(
    version: str, name: str, hydra: bool
) -> None:
    launcher = launcher_of(version)
    assert (launcher.name, launcher.hydra) == (name, hydra)


@pytest.mark.parametrize(
    ("case", "name"),
    # Where nothing is promised, a launcher looks an odd name up and finds no host.
    [(case, name) for case in CASES for name in NAMES if expected_of(case, name) != ""],
    ids=repr,
)
def test_a_file_means_what_it_means_to_its_launcher(case: Case, name: str) -> None:
    launcher, expected = launcher_of(mpirun_version(name)), expected_of(case, name)
    if isinstance(expected, dict):
        hosts = parse_hosts(case.text, "hosts", launcher)
        assert {host.name: host.slots for host in hosts.lines} == expected
        assert hosts.notes == ()
        return
    with pytest.raises(UsageError) as error:
        parse_hosts(case.text, "hosts", launcher)
    assert str(error.value).startswith("--hostfile (hosts)")
    words = expected.replace("Open MPI", launcher.name).replace("MPICH", launcher.name)
    assert words in str(error.value)
    assert case.open_mpi == "names no host" or ": " in str(error.value), "what to do is said"


def test_what_open_mpi_passes_over_is_said_and_the_rest_is_read() -> None:
    for text, slots in (("n1 8\n", None), ("n1 foo slots=2\n", 2)):
        hosts = parse_hosts(text, "hosts", launcher_of(mpirun_version("openmpi5")))
        assert [host.slots for host in hosts.lines] == [slots]
        word = text.split()[1]
        assert f"line 1: Open MPI 5.0.11 passes over '{word}': " in hosts.notes[0]
    assert "write `n1 slots=8`" in parse_hosts("n1 8", "h", launcher_of("")).notes[0]


def test_whom_to_log_in_as_is_kept() -> None:
    text = "root@n1\nn2 username=bob port=2222\nn3 user_name=\n"
    assert parse_hosts(text, "h", launcher_of("")).lines == (
        HostLine(1, "n1", None, "root"),
        HostLine(2, "n2", None, "bob", 2222),
        HostLine(3, "n3", None),
    )
    hydra = launcher_of(mpirun_version("mpich"))
    found = parse_hosts("root@n1:2\nn2:2 binding=rr user=bob\n", "h", hydra).lines
    assert found == (HostLine(1, "n1", 2, "root"), HostLine(2, "n2", 2, "bob"))
