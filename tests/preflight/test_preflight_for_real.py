"""A whole preflight: of this machine, of a noexec mount, of two nodes over a real mpirun."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostfile_cases
import pytest
from gpus import stand_in
from jobs import Result, mpirun, run, tcpx_mpi
from launcher import cluster_or_skip
from nodes import WORK, Cluster
from variants import variant

from tcpx_mpi.plugin.find import bundled_dir

pytestmark = pytest.mark.multirank


def checks(result: Result) -> dict[tuple[str, str], dict[str, Any]]:
    """(node, check) -> finding, of a preflight with --json."""
    document = json.loads(result.out)
    assert document["exit_code"] == result.code, result.text
    return {(each["node"], each["check"]): each for each in document["checks"]}


def test_this_machine_is_checked_and_each_finding_is_a_line(tmp_path: Path) -> None:
    result = run(tcpx_mpi("preflight", "--plugin", "softtcpx"), tmp_path)
    assert result.code == 0, result.text
    *table, last = result.out.splitlines()
    assert all(line.startswith(("OK  ", "warning  ")) for line in table), result.text
    assert last.startswith("# ")
    for words in (
        "libnccl-net-softtcpx.so sha256",
        "plugin devices",
        "lo 127.0.0.1 MTU",
        "wmem_max",
    ):
        assert words in result.out
    found = checks(run(tcpx_mpi("preflight", "--plugin", "softtcpx", "--json"), tmp_path))
    host = os.uname().nodename
    assert len(found) == len(table)
    assert found[host, "plugin devices"]["found"].startswith("1: lo ")


@pytest.mark.parametrize(
    ("environ", "options", "check", "says", "code"),
    [
        ({"NCCL_SOCKET_IFNAME": "nosuch0"}, (), "interfaces", "which is none of", 4),
        variant({}, ("--plugin", "/nosuch/libnccl-net-x.so"), "plugin file", "no such file", 3),
        variant(
            {"UCCL_TCPX_PLUGIN_PATH": "/nosuch.so"}, (), "plugin file", "UCCL_TCPX_PLUGIN_PATH", 3
        ),
        ({"UCCL_TCPX_CHUNK_BYTES": "abc"}, (), "settings", "'abc' is not a size", 2),
    ],
)
def test_a_check_that_fails_gives_its_exit_code(
    environ: dict[str, str], options: tuple[str, ...], check: str, says: str, code: int,
    tmp_path: Path,
) -> None:  # fmt: skip
    result = run(tcpx_mpi("preflight", "--json", *options), tmp_path, environ)
    assert result.code == code, result.text
    finding = checks(result)[os.uname().nodename, check]
    assert finding["status"] == "FAILED"
    assert says in finding["found"]
    assert finding["remedy"]


ENDS_ITS_PROCESS = """
#include <stdio.h>
#include <stdlib.h>
static int init(void *log) { (void)log; fprintf(stderr, "no CUDA device\\n"); exit(1); }
struct { const char *name; int (*init)(void *); void *rest[18]; } ncclNetPlugin_v7 = {"ends", init};
"""


def test_a_plugin_that_ends_its_process_ends_no_preflight(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs compiler: no cc, gcc or clang in PATH")
    library, source = tmp_path / "libnccl-net-ends.so", tmp_path / "ends.c"
    source.write_text(ENDS_ITS_PROCESS)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=60)
    result = run(tcpx_mpi("preflight", "--json", "--plugin", str(library)), tmp_path)
    finding = checks(result)[os.uname().nodename, "plugin file"]
    assert result.code == 3, result.text
    assert "ended its process with exit code 1: no CUDA device" in finding["found"]


NOEXEC = """
mount -t tmpfs -o noexec none "$1" || exit 77
cp "$2" "$1/libnccl-net-x.so" && shift 2 && exec "$@"
"""


def test_a_noexec_mount_is_found_before_the_plugin_is_loaded(tmp_path: Path) -> None:
    mounted = [shutil.which("unshare") or "unshare", "-m", "sh", "-c", NOEXEC, "sh",
               str(tmp_path), f"{bundled_dir()}/libnccl-net-null.so"]  # fmt: skip
    if shutil.which("unshare") is None or subprocess.run([*mounted, "true"]).returncode:
        pytest.skip("needs mounts: root must be able to mount a tmpfs in a namespace of its own")
    library = tmp_path / "libnccl-net-x.so"
    options = ("preflight", "--json", "--plugin", str(library))
    result = run([*mounted, *tcpx_mpi(*options)], tmp_path)
    finding = checks(result)[os.uname().nodename, "plugin file"]
    assert result.code == 3, result.text
    assert f"{library} is on {tmp_path}, which is mounted noexec" in finding["found"]
    assert "copy the file to an executable mount" in finding["remedy"]


@pytest.mark.parametrize(
    ("faults", "code", "says"),
    [
        ({}, 0, "2 Fake GPU: buffers in GPU memory (CUDA 13.0, NVRTC 13.0, CuPy 0"),
        ({"FAKENVRTC_FAIL": "1"}, 4, "2 Fake GPU, which cannot be used: nvrtcCompileProgram"),
    ],
    ids=["usable", "no kernel"],
)
def test_gpus_are_tried_as_a_rank_would_use_them(
    faults: dict[str, str], code: int, says: str, tmp_path: Path
) -> None:
    # With a cache of its own, where no kernel is compiled already.
    environ = {**stand_in(2).variables, "XDG_CACHE_HOME": str(tmp_path), **faults}
    result = run(tcpx_mpi("preflight", "--json", "--plugin", "softtcpx"), tmp_path, environ)
    finding = checks(result)[os.uname().nodename, "GPUs"]
    assert result.code == code, result.text
    assert finding["found"].startswith(says)


def test_ranks_of_one_node_are_checked_once(tmp_path: Path) -> None:
    result = run(mpirun(3, "preflight", "--plugin", "softtcpx", "--json"), tmp_path)
    assert result.code == 0, result.text
    assert {node for node, _ in checks(result)} == {os.uname().nodename}


def test_an_mpirun_that_binds_a_rank_to_one_core_is_a_warning(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs cpus: one core of one is no binding")
    mpirun_command, *rest = mpirun(2, "preflight", "--plugin", "softtcpx", "--json")
    result = run([mpirun_command, "--bind-to", "core", *rest], tmp_path)
    assert result.code == 0, result.text
    finding = checks(result)[os.uname().nodename, "CPUs"]
    assert finding["status"] == "warning"
    assert finding["found"].startswith("bound to one: ")
    assert "--bind-to none" in finding["remedy"]


def test_a_hostfile_for_ranks_that_are_started_is_refused(tmp_path: Path) -> None:
    result = run(mpirun(2, "preflight", "--hostfile", "hosts"), tmp_path)
    assert result.code == 2, result.text
    assert len(result.errors) == 1, result.text
    assert "--hostfile (hosts)" in result.errors[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("localhost slots=2\nno.such.host.invalid slots=2\n", "no.such.host.invalid (line 2)"),
        ("localhost slot=2\n", "line 1 has 'slot=2', which Open MPI"),
        ("localhost slots=2\n127.0.0.1 slots=2\n", "are one node, 127.0.0.1"),
        ("localhost slots=2\r\n", "line 1 ends in CR LF"),
        ("localhost:2\n", "write `localhost slots=2`"),
        ("localhost\nlocalhost slots=2\n", "as line 1 does already"),
        ("", "names no host"),
    ],
)
def test_a_hostfile_that_cannot_be_is_refused_before_mpirun(
    text: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text(text, newline="")
    result = run(tcpx_mpi("preflight", "--hostfile", "hosts"), tmp_path)
    assert result.code == 2, result.text
    assert len(result.errors) == 1, result.text
    assert says in result.errors[0]
    assert result.err.count("\n") == 1, "mpirun has lines of its own"


@pytest.mark.parametrize("case", hostfile_cases.CASES, ids=repr)
def test_a_hostfile_is_read_as_open_mpi_5_reads_it(
    case: hostfile_cases.Case, tmp_path: Path
) -> None:
    command = mpirun(1, "--version")[0]
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    if "(Open MPI) 5" not in said.stdout:
        pytest.skip("needs mpi: Open MPI 5; make test SUITE=mpis has Open MPI 4 and MPICH")
    hostfile_cases.require_expected(case, command, "openmpi5", tmp_path)


@pytest.mark.parametrize(
    ("text", "found", "warned"),
    [
        ("localhost username=root slots=2\n", "1 node, 2 slots", ""),
        variant("localhost cpu=2\n", "1 node, 2 slots", ""),
        variant("localhost\nlocalhost\nlocalhost\n", "1 node, 3 slots", ""),
        variant("localhost\n", "1 node, as many slots as each has cores", ""),
        ("localhost 2\n", "1 node, as many slots", "passes over '2'"),
    ],
)
def test_a_hostfile_that_mpirun_takes_is_taken(
    text: str, found: str, warned: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text(text)
    result = run(tcpx_mpi("preflight", "--plugin", "softtcpx", "--hostfile", "hosts"), tmp_path)
    assert result.code == 0, result.text
    assert found in result.out
    assert "1 node answered for 1 name" in result.out
    assert warned in result.out


def test_an_mpirun_that_starts_nothing_is_said_in_one_line_of_ours(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("192.0.2.1 slots=1\n")  # an address that nobody has
    # In place of ssh: it finds no node either, without waiting for one.
    environ = {"PRTE_MCA_plm_ssh_agent": "/bin/false", "OMPI_MCA_plm_rsh_agent": "/bin/false"}
    result = run(tcpx_mpi("preflight", "--hostfile", "hosts"), tmp_path, environ)
    assert result.code == 4, result.text
    assert len(result.errors) == 1, result.text
    assert "mpirun started no rank that answered" in result.errors[0]
    assert sys.executable in result.errors[0]


# --- Two nodes -----------------------------------------------------------------------------------


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with cluster_or_skip() as made:
        yield made


def hostfile_preflight(nodes: Cluster, place: Path) -> Result:
    """By an operator on the first node, with MPI on the control network as variables."""
    environ = {
        "PRTE_MCA_prte_if_include": "eth0",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "NCCL_SOCKET_IFNAME": "eth1",
    }
    options = ("preflight", "--hostfile", "hosts", "--plugin", "softtcpx", "--json")
    return run(nodes.nodes[0].command("tcpx-mpi", *options), place, environ)


def test_two_nodes_that_are_alike_pass(nodes: Cluster, tmp_path: Path) -> None:
    result = hostfile_preflight(nodes, tmp_path)
    assert result.code == 0, result.text
    found = checks(result)
    for node in nodes.nodes:
        address = node.address("eth1")
        assert found[node.name, "interfaces"]["found"] == f"eth1 {address} MTU 1500"
        assert found[node.name, "plugin devices"]["found"].startswith("1: eth1 ")
    assert found["", "hostfile"]["found"].endswith("2 nodes, 4 slots")
    assert found["", "same MTU"]["found"] == "1500"


def test_what_differs_on_the_second_node_is_named(nodes: Cluster, tmp_path: Path) -> None:
    first, second = nodes.nodes
    second.run("ip", "link", "set", "eth1", "mtu", "1400")
    first.file("hosts").write_text(nodes.hostfile((2, 1)))
    (metadata,) = Path(sysconfig.get_path("purelib")).glob("tcpx_mpi-*.dist-info/METADATA")
    text = re.sub(r"^Version: .*", "Version: 99.1", metadata.read_text(), flags=re.M)
    second.file("METADATA").write_text(text)
    second.run("mount", "--bind", f"{WORK}/METADATA", str(metadata))
    result = hostfile_preflight(nodes, tmp_path)
    assert result.code == 2, "a run would refuse slots that differ so"
    found = checks(result)
    assert f"{second.name} has 99.1 " in found["", "same tcpx-mpi"]["found"]
    assert found["", "same MTU"]["found"] == f"{first.name} has 1500, {second.name} has 1400"
    uneven = f"uneven: {first.address('eth0')} 2, {second.address('eth0')} 1"
    assert uneven in found["", "hostfile"]["found"]


def test_a_data_interface_that_is_down_fails_its_node(nodes: Cluster, tmp_path: Path) -> None:
    first, second = nodes.nodes
    second.run("ip", "link", "set", "eth1", "down")
    result = hostfile_preflight(nodes, tmp_path)
    assert result.code == 4, result.text
    found = checks(result)
    assert "eth1 of NCCL_SOCKET_IFNAME is down" in found[second.name, "interfaces"]["found"]
    assert found[second.name, "interfaces"]["remedy"] == "ip link set eth1 up"
    # The other end of the cable is not down by itself: to set it up would not help.
    assert "is enabled, but has no link" in found[first.name, "interfaces"]["found"]
    for node in nodes.nodes:
        assert found[node.name, "plugin devices"]["status"] == "FAILED"
