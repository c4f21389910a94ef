"""The environment of NCCL beside the plugin: its own, and held to TCP."""

from __future__ import annotations

import pytest

from tcpx_mpi.baselines.nccl.presets import PRESETS, apart, companion_environment, nccl_variables
from tcpx_mpi.config.options import NCCL_HELD, NCCL_PRESETS


def test_the_presets_that_can_be_asked_for_are_there() -> None:
    assert set(PRESETS) == set(NCCL_PRESETS)
    assert PRESETS["default"] == {}


@pytest.mark.parametrize("preset", list(PRESETS))
def test_nccl_is_held_to_its_own_sockets_on_the_interface_of_the_plugin(preset: str) -> None:
    found = nccl_variables(preset, (), "eth1")
    assert NCCL_HELD.items() <= found.items()
    assert found["NCCL_NET_PLUGIN"] == "none"
    assert (found["NCCL_P2P_DISABLE"], found["NCCL_SHM_DISABLE"]) == ("1", "1")
    # Without the sign it would take eth10, too.
    assert found["NCCL_SOCKET_IFNAME"] == "=eth1"
    assert "NCCL_SOCKET_IFNAME" not in nccl_variables(preset, (), "")


def test_what_the_user_sets_wins_over_the_preset() -> None:
    found = nccl_variables("tuned", ("NCCL_BUFFSIZE=1", "NCCL_ALGO=Ring,Tree"), "eth1")
    assert found["NCCL_BUFFSIZE"] == "1"
    assert found["NCCL_ALGO"] == "Ring,Tree"
    assert found["NCCL_SOCKET_NTHREADS"] == "4"


def test_ranks_of_one_gpu_are_on_hosts_of_their_own_to_nccl() -> None:
    assert apart("node-1", 0) == {}
    hosts = [apart(node, turn)["NCCL_HOSTID"] for node in ("node-1", "node-2") for turn in (1, 2)]
    assert len(set(hosts)) == len(hosts)


def test_a_companion_is_no_rank_and_has_no_plugin() -> None:
    rank = {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/x", "CUDA_VISIBLE_DEVICES": "1", "HOME": "/root",
        "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMI_RANK": "1", "PRTE_X": "1",
        "NCCL_NET_PLUGIN": "tcpx", "NCCL_NSOCKS_PERTHREAD": "7", "NCCL_DYNAMIC_CHUNK_SIZE": "1",
        "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth3", "UCCL_TCPX_DEBUG": "1", "SOFTTCPX_CPUS": "1",
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET",
    }  # fmt: skip
    assert companion_environment({}, {}) == {"NCCL_DEBUG": "WARN"}
    found = companion_environment(rank, {"NCCL_NET_PLUGIN": "none"})
    assert found == {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/x", "CUDA_VISIBLE_DEVICES": "1", "HOME": "/root",
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET", "NCCL_NET_PLUGIN": "none",
    }  # fmt: skip
