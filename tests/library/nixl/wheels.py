"""The backend in real NIXL, of several versions; run by `make test SUITE=nixl`, not collected by
`make test`: a wheel has 339 MB. They are kept in build/nixl."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jobs
import network_faults as faults
import psutil
import pytest
from launcher import Launcher, cluster_or_skip
from nodes import Cluster
from ten_lines import DONE, LIMIT_S, TEN_LINES, passes, run, ucx_beside_it

from tcpx_mpi.records import read_run

TREE = Path(__file__).resolve().parents[3]
WHEELS = TREE / "build" / "nixl"
AGENT = Path(__file__).parent / "agent.py"
LARGE = Path(__file__).parent / "large.py"
#: The oldest with this layout, one between, the newest.
VERSIONS = ("1.0.1", "1.3.2", "1.5.1")
RUN_EXAMPLE = Path(__file__).parent / "run_example.py"
#: Two agents, and what the cases do with them.
CASE = """
import time
import numpy as np
import tcpx_mpi.nixl
tcpx_mpi.nixl.enable()
from nixl_cu12._api import nixl_agent, nixl_agent_config

T = ["TCPX"]
a, b = (nixl_agent(name, nixl_agent_config(backends=T)) for name in "ab")
data, room = np.arange(1 << 20, dtype=np.uint8), np.zeros(1 << 20, np.uint8)

def place(memory):
    return (memory.ctypes.data, memory.size, 0, "")

of_a = a.register_memory([place(data)], "DRAM", backends=T)
of_b = b.register_memory([place(room)], "DRAM", backends=T)
a.add_remote_agent(b.get_agent_metadata())

def end(agent, request):
    limit = time.monotonic() + 60
    try:
        state = agent.transfer(request)
        while state == "PROC" and time.monotonic() < limit:
            state = agent.check_xfer_state(request)
    except Exception:
        return "ERR"
    return state

def move(note=b""):
    descs = (a.get_xfer_descs([place(m)[:3]], "DRAM") for m in (data, room))
    try:
        request = a.initialize_xfer("WRITE", *descs, "b", note, backends=T)
    except Exception:
        return "ERR"
    return end(a, request)

def notes(agent, count=1):
    found, limit = {}, time.monotonic() + 60
    while sum(map(len, found.values())) < count and time.monotonic() < limit:
        for name, texts in agent.get_new_notifs().items():
            found.setdefault(name, []).extend(texts)
    return found

"""


@pytest.fixture(scope="module", params=VERSIONS)
def environ(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where Python finds this version of NIXL."""
    return with_nixl(request.param)


def with_nixl(version: str) -> dict[str, str]:
    folder = WHEELS / version
    if not (folder / "nixl_cu12").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--target", str(folder), f"nixl-cu12=={version}"]
        got = subprocess.run(command, capture_output=True, text=True)
        if got.returncode != 0:
            pytest.skip(f"needs nixl: nixl-cu12=={version} cannot be had: {got.stderr[-300:]}")
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith(("NIXL_", "TCPX_NIXL_"))}  # fmt: skip
    stand_in = Path(__file__).parent / "stand_in"  # of torch, behind a real one
    return {**ours, "PYTHONPATH": f"{folder}:{stand_in}"}


def test_the_ten_lines_of_the_page_move_every_byte(environ: dict[str, str]) -> None:
    assert passes(environ, "-c", TEN_LINES).splitlines()[-1] == DONE


@pytest.mark.parametrize("operation", ["write", "read"])
@pytest.mark.parametrize(
    "options",
    [
        ("--size", "1,4K,100K,16M"),
        ("--size", "4000K", "--descriptors", "1000"),
        ("--size", "64K,16M", "--no-progress-thread"),
    ],
    ids=["sizes", "blocks", "no-thread"],
)
def test_two_processes_move_every_byte(
    environ: dict[str, str], operation: str, options: tuple[str, ...]
) -> None:
    command = ("-m", "tcpx_mpi", "nixl", "--op", operation, "--iters", "10", "--warmup", "0")
    assert "0 OK" in passes(environ, *command, *options)


@pytest.mark.parametrize(
    "options",
    [
        ("--initiators", "0-1", "--targets", "2-3", "--op", "write", "--batch", "3"),
        ("--initiators", "0", "--targets", "1-3", "--op", "read", "--descriptors", "300"),
        ("--initiators", "0-2", "--targets", "3", "--op", "read", "--kv", "deepseek-v3-small"),
    ],
    ids=["2-to-2", "1-to-3", "3-to-1"],
)
def test_initiators_and_targets_move_every_byte(
    environ: dict[str, str], options: tuple[str, ...]
) -> None:
    size = () if "--kv" in options else ("--size", "5000,300K")
    command = ("-m", "tcpx_mpi", "nixl", "--iters", "10", "--warmup", "0", *size, *options)
    assert "0 OK" in passes(environ, *command)


def test_threads_of_an_initiator_share_its_requests() -> None:
    command = ("-m", "tcpx_mpi", "nixl", "--targets", "1-2", "--batch", "4", "--threads", "3")
    assert "0 OK" in passes(with_nixl(VERSIONS[-1]), *command, "--size", "70K", "--iters", "20")
    refused = run(with_nixl(VERSIONS[0]), *command, "--size", "70K")
    assert refused.returncode == 4
    assert "--threads (3): this NIXL's nixl_agent_config has no sync_mode" in refused.stderr


@pytest.mark.timeout(700)
def test_a_request_of_more_than_4_gib_moves_every_byte() -> None:
    if psutil.virtual_memory().available < 12 << 30:
        pytest.skip("needs memory: 12 GiB of it")
    assert passes(with_nixl(VERSIONS[-1]), str(LARGE)).endswith(" bytes right\n")


def test_ucx_of_the_wheel_takes_turns_with_it(tmp_path: Path) -> None:
    file = tmp_path / "o.h5"
    options = ("--size", "64K", "--iters", "10", "--against", "ucx", "--hdf5", str(file))
    assert "beside ucx" in passes(with_nixl(VERSIONS[-1]), "-m", "tcpx_mpi", "nixl", *options)
    assert "beside ucx" in passes(with_nixl(VERSIONS[-1]), "-m", "tcpx_mpi", "report", str(file))


@pytest.mark.parametrize("transport", ["nonsense", "self"])
def test_a_ucx_of_the_wheel_that_cannot_leaves_our_rows(transport: str, tmp_path: Path) -> None:
    file = tmp_path / "o.h5"
    environ = {**with_nixl(VERSIONS[-1]), "UCX_TLS": transport}
    options = ("--size", "4K,64K", "--iters", "10", "--against", "ucx", "--hdf5", str(file))
    out = passes(environ, "-m", "tcpx_mpi", "nixl", *options)
    assert "n/a: the initiator over UCX: nixlBackendError: NIXL_ERR_BACKEND" in out
    assert "# Out of bounds values : 0 OK" in out
    run = read_run(str(file))
    assert [(row.size_bytes, row.sides) for row in run.rows] == [(4096, {}), (65536, {})]


def test_one_agent_may_have_ucx_beside_it() -> None:
    if said := ucx_beside_it(with_nixl(VERSIONS[-1])):
        print(f"{VERSIONS[-1]}: {said}")


#: Of a checkout of NIXL: two agents that find each other by NIXL's own listening thread.
EXAMPLES = ("basic_two_peers.py", "expanded_two_peers.py")


@pytest.fixture(scope="module")
def examples() -> Path:
    """The examples of NIXL's sources, which are not ours to keep."""
    sources = os.environ.get("NIXL_SOURCES", "")
    folder = Path(sources) / "examples" / "python"
    if not sources or not folder.is_dir():
        pytest.skip("NIXL_SOURCES names no checkout of github.com/ai-dynamo/nixl")
    return folder


def listens(pid: int, port: int) -> bool:
    return any(
        (each.pid, each.status, each.laddr.port) == (pid, psutil.CONN_LISTEN, port)
        for each in psutil.net_connections("tcp")
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_two_peers_of_nixls_examples_move_every_byte(examples: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environ = {**with_nixl(VERSIONS[-1]), "NIXL_LOG_LEVEL": "WARN"}
    command = [sys.executable, str(RUN_EXAMPLE), str(examples / name), "--ip", "127.0.0.1"]
    command += ["--port", port, "--mode"]
    with subprocess.Popen([*command, "target"], env=environ) as target:
        try:
            while target.poll() is None and not listens(target.pid, int(port)):
                time.sleep(0.05)  # the initiator asks once
            passes(environ, *command[1:], "initiator")
            assert target.wait(LIMIT_S) == 0
        finally:
            target.kill()


def test_nixls_example_of_partial_metadata_is_right(examples: Path) -> None:
    environ = {**with_nixl(VERSIONS[-1]), "NIXL_ETCD_ENDPOINTS": ""}
    passes(environ, str(RUN_EXAMPLE), str(examples / "partial_md_example.py"))


@pytest.mark.parametrize(
    "body",
    [
        # An empty notification arrives as one.
        "a.send_notif('b', b''); got = notes(b); assert got == {'a': [b'']}, got",
        # A request is posted again and again, each time with its notification.
        "for i in range(50): move(b'%d' % i)\n"
        "found = [n for n in notes(b, 50)['a']]\n"
        "assert sorted(found, key=int) == [b'%d' % i for i in range(50)], found",
        # Memory that is registered anew is other memory, until its metadata is loaded again.
        "b.deregister_memory(of_b, backends=T)\n"
        "b.register_memory([place(room)], 'DRAM', backends=T)\n"
        "assert move() == 'ERR'\n"
        "a.remove_remote_agent('b'); a.add_remote_agent(b.get_agent_metadata())\n"
        "assert move() == 'DONE'",
        # An agent within itself.
        "here = a.get_xfer_descs([(data.ctypes.data, 4096, 0)], 'DRAM')\n"
        "there = a.get_xfer_descs([(data.ctypes.data + 8192, 4096, 0)], 'DRAM')\n"
        "r = a.initialize_xfer('WRITE', here, there, 'a', b'own', backends=T)\n"
        "assert end(a, r) == 'DONE' and (data[:4096] == data[8192:12288]).all()\n"
        "assert notes(a) == {'a': [b'own']}",
        # Who removes a remote is not asked by it any more.
        "b.add_remote_agent(a.get_agent_metadata()); assert move() == 'DONE'\n"
        "b.remove_remote_agent('a')\n"
        "assert move() == 'ERR'",
    ],
    ids=["empty-note", "again", "anew", "itself", "removed"],
)
def test_a_case_of_nixls_agents(environ: dict[str, str], body: str) -> None:
    assert passes(environ, "-c", CASE + body + "\nprint('right')\n").splitlines()[-1] == "right"


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with cluster_or_skip() as made:
        yield made


def test_a_slow_target_on_another_node_is_named_over_softtcpx(
    nodes: Cluster, tmp_path: Path
) -> None:
    """Ranks 2 and 3 are asked on the second node, each by a device of the plugin."""
    command = Launcher(nodes).command(
        "nixl", "--initiators", "0-1", "--targets", "2-3", "--size", "64K", "-n", "12", "-w", "1",
        "--device", "0,1", PYTHONPATH=with_nixl(VERSIONS[-1])["PYTHONPATH"],
        NCCL_SOCKET_IFNAME="eth1,eth2", TCPX_NIXL_INTERFACE="eth0",
    )  # fmt: skip
    with faults.slow_arrivals(nodes.nodes, at=1, interface="eth2", rate="3mbit"):
        done = jobs.run(command, tmp_path)
    assert done.code == 0, done.text
    slow = [line for line in done.out.splitlines() if line.startswith("# Slow ")]
    assert len(slow) == 1, done.text
    assert ": rank 3 on tcpx-node-1 " in slow[0], done.text


def test_agents_on_two_nodes_write_and_read(nodes: Cluster) -> None:
    environ = with_nixl(VERSIONS[-1])
    target, initiator = (
        subprocess.Popen(
            node.command(f"PYTHONPATH={environ['PYTHONPATH']}", sys.executable, str(AGENT), role),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for node, role in zip(nodes.nodes, ("target", "initiator"), strict=True)
    )  # fmt: skip
    with target, initiator:
        assert target.stdout
        assert initiator.stdin
        said = []
        for line in target.stdout:  # until it ends, which it does in time
            said.append(line)
            if line.startswith("told "):
                initiator.stdin.write(line)
                initiator.stdin.flush()
        said.append(initiator.communicate(timeout=LIMIT_S)[0])
        assert [target.wait(), initiator.returncode] == [0, 0], "".join(said)[-4000:]
