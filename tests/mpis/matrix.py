"""The same runs over Open MPI 4.1 and MPICH: `make test SUITE=mpis`, not part of `make test`."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hostfile_cases
import pytest
from jobs import Result, run, started
from launcher import cluster_or_skip
from nodes import HERE as CLUSTER
from nodes import WORK, Cluster
from other_mpis import NoPackages, OtherMpi, make, of_this_environment

pytestmark = pytest.mark.multirank

#: Twice the cores of the machines that these tests were made on.
RANKS = 4
QUICK = ("--plugin", "softtcpx", "--sizes", "17,1M", "-n", "20", "--hdf5", "none")
UNPACKED = Path(__file__).parents[2] / "build" / "mpis"


@pytest.fixture(scope="module")
def mpis() -> dict[str, OtherMpi]:
    try:
        return {each.name: each for each in make(UNPACKED)}
    except NoPackages as error:
        pytest.skip(f"needs mpis: {error}")


@pytest.fixture(params=["openmpi4", "mpich"])
def mpi(request: pytest.FixtureRequest, mpis: dict[str, OtherMpi]) -> OtherMpi:
    return mpis[request.param]


def parent(mpi: OtherMpi, command: str, *arguments: str, ranks: int = RANKS) -> list[str]:
    """tcpx-mpi that starts mpirun itself."""
    return [mpi.python, "-m", "tcpx_mpi", command, *arguments, "--ranks", str(ranks)]


def by_mpirun(mpirun: OtherMpi, library: OtherMpi, *arguments: str) -> list[str]:
    """A user's own mpirun, of the same MPI as the library or of another."""
    return [mpirun.mpirun, "-n", str(RANKS), library.python, "-m", "tcpx_mpi", *arguments]


#: What a user of Open MPI 4 says by --oversubscribe; MPICH asks for nothing.
CROWDED = {"OMPI_MCA_rmaps_base_oversubscribe": "1"}


def checked(result: Result, rows: int) -> None:
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0] * rows, result.text


@pytest.mark.parametrize("pattern", ["ring", "mesh"])
def test_more_ranks_than_cores_check_every_byte(
    pattern: str, mpi: OtherMpi, tmp_path: Path
) -> None:
    checked(run(parent(mpi, "run", pattern, *QUICK), tmp_path), 2)
    own = by_mpirun(mpi, mpi, "run", pattern, *QUICK)
    checked(run(own, tmp_path, CROWDED), 2)


def test_the_library_is_the_one_that_was_meant(mpi: OtherMpi, tmp_path: Path) -> None:
    command = by_mpirun(mpi, mpi, "preflight", "--plugin", "softtcpx", "--json")
    result = run(command, tmp_path, CROWDED)
    assert result.code == 0, result.text
    found = {each["check"]: each["found"] for each in json.loads(result.out)["checks"]}
    assert found["MPI library"].startswith(mpi.library)


def test_a_preflight_of_a_hostfile_starts_one_rank_on_its_node(
    mpi: OtherMpi, tmp_path: Path
) -> None:
    lines = {"openmpi4": "localhost slots=4\n", "mpich": "localhost:4\n"}
    (tmp_path / "hosts").write_text(lines[mpi.name])
    command = [mpi.python, "-m", "tcpx_mpi", "preflight", "--plugin", "softtcpx"]
    result = run([*command, "--hostfile", "hosts"], tmp_path)
    assert result.code == 0, result.text
    assert "1 node answered for 1 name" in result.out
    assert mpi.library in result.out


@pytest.mark.parametrize("case", hostfile_cases.CASES, ids=repr)
def test_a_hostfile_is_read_as_its_launcher_reads_it(
    case: hostfile_cases.Case, mpi: OtherMpi, tmp_path: Path
) -> None:
    """The launcher is the judge of what the unit tests promise."""
    if hostfile_cases.expected_of(case, mpi.name) == "":
        return  # nothing is promised
    hostfile_cases.require_expected(case, mpi.mpirun, mpi.name, tmp_path)


@pytest.mark.parametrize("held", [True, False])
def test_mpi_as_a_peer_is_held_to_tcp_or_the_short_cut_is_said(
    held: bool, mpi: OtherMpi, tmp_path: Path
) -> None:
    arguments = ("--plugin", "softtcpx", "--sizes", "64K", "-n", "64", "--hdf5", "none")
    # A user who asks the library for memory has it.
    short = {"OMPI_MCA_btl": "vader,self", "UCX_TLS": "posix,self", "MPIR_CVAR_NOLOCAL": "0"}
    command = parent(mpi, "run", "ring", *arguments, "--against", "mpi", ranks=2)
    result = run(command, tmp_path, {} if held else short)
    checked(result, 1)
    assert ("peer mpi sent fewer bytes than its payload" in result.out) is not held, result.text


@pytest.mark.parametrize(
    ("arguments", "environ", "code"),
    [
        (("--chunk", "3M"), {}, 2),
        (("--plugin", "softtcpx"), {"NCCL_SOCKET_IFNAME": "nosuch0"}, 2),
        (QUICK, {"SOFTTCPX_TRAP_CORRUPT_AT": "3"}, 5),
        ((*QUICK, "--stall-timeout", "2s"), {"SOFTTCPX_TRAP_STOP_AT": "3"}, 6),
        (QUICK, {"SOFTTCPX_TRAP_ERROR_AT": "20", "SOFTTCPX_TRAP_ERROR_CODE": "3"}, 13),
    ],
    ids=["option", "devices", "wrong bytes", "stall", "plugin error"],
)
def test_every_rank_ends_with_the_exit_code_of_its_cause(
    arguments: Sequence[str], environ: dict[str, str], code: int, mpi: OtherMpi, tmp_path: Path
) -> None:
    own = by_mpirun(mpi, mpi, "run", "ring", *arguments)
    result = run(own, tmp_path, {**CROWDED, **environ})
    assert result.code == code, result.text
    assert len(result.errors) == 1, result.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks_in_good_order(
    number: signal.Signals, mpi: OtherMpi, tmp_path: Path
) -> None:
    sizes = ("-b", "1K", "-e", "1M", "-f", "2", "-n", "2000")
    command = parent(mpi, "run", "ring", "--plugin", "softtcpx", *sizes, "-N", "0",
                     "--check-memory", "64M", "--hdf5", "none")  # fmt: skip
    with started(command, tmp_path) as job:
        job.wait_for_row(1024)
        job.send(number)
        result = job.finish()
    assert result.code == 128 + number, result.text


@pytest.fixture
def every(mpis: dict[str, OtherMpi]) -> dict[str, OtherMpi]:
    """The unpacked ones and that of the environment."""
    try:
        return {**mpis, "openmpi5": of_this_environment()}
    except NoPackages as error:
        pytest.skip(f"needs mpis: {error}")


def mixed(launcher: OtherMpi, library: OtherMpi) -> list[str]:
    """The mpirun of one MPI, with ranks that have the library of another and what that needs."""
    theirs = [word for name in launcher.environ for word in ("-u", name)]
    ours = [f"{name}={value}" for name, value in library.environ.items()]
    if library.name == "mpich":  # mpi4py's wheel looks for Open MPI first where its mpirun is
        (file,) = library.directory.glob("lib/libmpi*")
        ours.append(f"MPI4PY_LIBMPI={file}")
    python = ["env", *theirs, *ours, library.python]
    return [launcher.mpirun, "-n", str(RANKS), *python, "-m", "tcpx_mpi", "run", "ring", *QUICK]


@pytest.mark.parametrize(
    ("launcher", "library"),
    [
        ("openmpi5", "openmpi4"),
        ("openmpi5", "mpich"),
        ("openmpi4", "mpich"),
        ("mpich", "openmpi5"),
    ],
)
def test_an_mpirun_of_another_mpi_is_refused_in_one_line(
    launcher: str, library: str, every: dict[str, OtherMpi], tmp_path: Path
) -> None:
    result = run(mixed(every[launcher], every[library]), tmp_path, CROWDED)
    assert result.code == 4, result.text
    assert len(result.errors) == 1, result.text
    assert f"started {RANKS} ranks, but the MPI library sees 1" in result.errors[0]
    assert "RuntimeWarning" not in result.err, result.text


def test_the_mpirun_of_open_mpi_4_starts_ranks_of_open_mpi_5_on_this_machine(
    every: dict[str, OtherMpi], tmp_path: Path
) -> None:
    checked(run(mixed(every["openmpi4"], every["openmpi5"]), tmp_path, CROWDED), 2)


#: An installed MPI finds its libraries on the far node; these have to be told of them.
AGENT = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
exec {agent} "$host" "export {exports}; $*"
"""


@dataclass(frozen=True)
class Words:
    """How an MPI is told of nodes: a hostfile's line, mpirun's options, the agent's variable."""

    line: str
    options: tuple[str, ...]
    agent: str


WORDS = {
    "openmpi4": Words(
        "{address} slots=2",
        ("-hostfile", "hosts", "--bind-to", "none", "--mca", "btl_tcp_if_include", "eth0",
         "--mca", "oob_tcp_if_include", "eth0", "-x", "NCCL_SOCKET_IFNAME"),
        "OMPI_MCA_plm_rsh_agent",
    ),
    "mpich": Words("{address}:2", ("-f", "hosts", "-iface", "eth0"), "HYDRA_LAUNCHER_EXEC"),
}  # fmt: skip


def login(mpi: OtherMpi, nodes: Cluster) -> list[str]:
    """`env` with what a user of this MPI has set on the first node, whose hostfile is `hosts`."""
    words, first = WORDS[mpi.name], nodes.nodes[0]
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in mpi.environ.items())
    for node in nodes.nodes:  # Open MPI 4.1's daemons want to find the agent, too
        agent = node.file("agent")
        agent.write_text(AGENT.format(agent=CLUSTER / "agent.sh", exports=exports))
        agent.chmod(0o755)
    lines = [words.line.format(address=node.address("eth0")) for node in nodes.nodes]
    first.file("hosts").write_text("\n".join(lines) + "\n")
    return ["env", f"{words.agent}={WORK}/agent", "NCCL_SOCKET_IFNAME=eth1,eth2"]


def test_a_second_node_is_reached_by_a_launch_agent(mpi: OtherMpi, tmp_path: Path) -> None:
    with cluster_or_skip() as nodes:
        program = [mpi.python, "-m", "tcpx_mpi", "run", "ring", *QUICK]
        mpirun = [mpi.mpirun, *WORDS[mpi.name].options, "-n", str(RANKS), *program]
        result = run(nodes.nodes[0].command(*login(mpi, nodes), *mpirun), tmp_path)
    checked(result, 2)
    assert "on tcpx-node-0 device  1" in result.out
    assert "on tcpx-node-1 device  1" in result.out


def test_a_preflight_of_a_hostfile_reaches_a_second_node(mpi: OtherMpi, tmp_path: Path) -> None:
    with cluster_or_skip() as nodes:
        program = [mpi.python, "-m", "tcpx_mpi", "preflight", "--plugin", "softtcpx"]
        command = [*login(mpi, nodes), *program, "--hostfile", "hosts"]
        result = run(nodes.nodes[0].command(*command), tmp_path)
    assert result.code == 0, result.text
    assert "2 nodes answered for 2 names" in result.out
    assert result.out.count(mpi.library) >= 2, result.text
