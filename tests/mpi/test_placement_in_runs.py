"""Placement and profiles in real runs: what is asked for is in the header and in the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Result, run, tcpx_mpi

from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.records import Run, read_run

pytestmark = pytest.mark.multirank

COMMON = ("--ranks", "2", "--plugin", "softtcpx", "--sizes", "64K", "-n", "4", "--spool", "spool")


def data_nic() -> str:
    """The interface that softtcpx takes first here."""
    nics = this_machine().nics
    hidden = ("docker", "virbr", "veth", "br-", "cni", "flannel", "podman")
    up = [nic.name for nic in nics if nic.up and not nic.name.startswith(hidden)]
    return min(up, key=lambda name: (name == "lo", name))


def ran(place: Path, *arguments: str, **environ: str) -> tuple[Result, Run]:
    # A profile's interface goes before it.
    environ = {"NCCL_SOCKET_IFNAME": data_nic(), **environ}
    result = run(tcpx_mpi("run", *arguments, *COMMON, "--hdf5", "o.h5"), place, environ)
    assert result.code == 0, result.text
    return result, read_run(str(place / "o.h5"))


def test_a_profile_sets_what_the_user_has_not_and_every_source_is_kept(place: Path) -> None:
    nic, cpus = data_nic(), sorted(os.sched_getaffinity(0))
    (place / "mine.toml").write_text(
        f'control_nic = "{nic}"\ndata_nics = ["{nic}"]\n'
        f'[tx_bindings]\n{nic} = "{cpus[-1]}"\n'
        '[environment]\nNCCL_NSOCKS_PERTHREAD = "2"\nNCCL_GPUDIRECTTCPX_RECV_SYNC = "1"\n'
    )
    result, found = ran(place, "ring", "--profile", "mine.toml", NCCL_GPUDIRECTTCPX_RECV_SYNC="0")
    sources = {name: (value, source) for name, value, source in found.header.settings}
    ours = "profile mine.toml"
    assert sources["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] == (nic, ours)
    assert sources["NCCL_GPUDIRECTTCPX_TX_BINDINGS"] == (f"{nic}:{cpus[-1]}-{cpus[-1]}", ours)
    assert sources["OMPI_MCA_btl_tcp_if_include"] == (nic, ours)
    assert sources["NCCL_NSOCKS_PERTHREAD"] == ("2", ours)
    assert sources["NCCL_GPUDIRECTTCPX_RECV_SYNC"] == ("0", "environment")
    # It reached the plugin before that read it.
    assert "sockets and workers in use=2 and" in found.header.facts["plugin_said"]
    assert {info.nic for info in found.header.ranks} == {nic}
    assert {info.plugin_cpus for info in found.header.ranks} == {str(cpus[-1])}
    assert f"plugin CPUs {cpus[-1]}" in result.out
    assert [row.wrong for row in result.rows] == [0]


def test_a_placement_file_puts_ranks_and_memory_where_it_says(place: Path) -> None:
    bound = "from tcpx_mpi import _native; raise SystemExit(not _native.bind_memory_to(0))"
    if subprocess.run([sys.executable, "-c", bound], check=False).returncode:
        pytest.skip("needs mempolicy: the kernel lets no process bind its memory here")
    nic, cpu = data_nic(), max(os.sched_getaffinity(0))
    (place / "places.toml").write_text(
        f'[[rank]]\nlocal_rank = 1\nnic = "{nic}"\ncpu = {cpu}\nmemory_node = 0\n'
    )
    alone = cpu_list_text(sorted(os.sched_getaffinity(0))[:2])
    result, found = ran(place, "pair", "--placement", "places.toml", "--cpus", alone)
    first, second = found.header.ranks
    assert (first.memory_node, second.memory_node) == (-1, 0)
    assert second.progress_cpu == cpu
    assert (first.nic, second.nic) == (nic, nic)
    assert "memory on node 0" in next(x for x in result.out.splitlines() if "#  Rank  1" in x)


def test_pair_has_fewer_channels_where_its_sockets_would_be_too_many(place: Path) -> None:
    one_thread = ("--progress-threads", "1")  # of several each has a channel
    result, found = ran(place, "pair", "--nic", data_nic(), *one_thread, NCCL_NSOCKS_PERTHREAD="8")
    assert ("channels", "1", "default with 2 ranks a NIC") in found.header.settings
    assert found.header.plan.channels == 1
    # 16 sockets, and none of them between two nodes: no NIC has them.
    assert "data connections on" not in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nic", "nosuch9"], "has no NIC nosuch9: it has"),
        (["--gpu", "0"], "GPU 0 is asked for and"),
    ],
)
def test_what_this_node_lacks_is_one_line_on_all_ranks(
    place: Path, arguments: list[str], words: str
) -> None:
    result = run(tcpx_mpi("run", "ring", *COMMON, "--hdf5", "o.h5", *arguments), place)
    assert result.code == 2, result.text
    assert len(result.errors) == 1
    assert words in result.errors[0]
    assert not (place / "o.h5").exists()
