"""Which variables must be equal on all ranks."""

from __future__ import annotations

import pytest

from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.run.shared_environment import MAY_DIFFER, reason_to_differ, shared_environment


@pytest.mark.parametrize(
    "name",
    ["NCCL_NSOCKS_PERTHREAD", "NCCL_GPUDIRECTTCPX_RECV_SYNC", "SOFTTCPX_SNDBUF", "NCCL_BUFFSIZE"],
)
def test_what_steers_a_plugin_is_shared(name: str) -> None:
    assert shared_environment({name: "1"}) == {name: "1"}
    assert shared_environment({name: " "}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_SOCKET_IFNAME", "NCCL_GPUDIRECTTCPX_TX_BINDINGS", "NCCL_DEBUG_FILE", "HOME",
        "SOFTTCPX_TRAP_LOST_AT", "TCPX_MPI_PARENT", "NCCL_TOPO_FILE", "OMPI_COMM_WORLD_RANK",
    ],
)  # fmt: skip
def test_what_belongs_to_a_node_or_a_rank_is_not(name: str) -> None:
    assert shared_environment({name: "1"}) == {}


def test_a_setting_is_compared_as_a_setting_and_not_again_as_text() -> None:
    for option in OPTIONS:
        assert not shared_environment(dict.fromkeys(option.variables, "1"))


def test_every_exception_has_its_reason() -> None:
    assert all(reason_to_differ(name) for name in MAY_DIFFER if not name.endswith("*"))
    assert reason_to_differ("NCCL_BUFFSIZE") is None


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in str(shared_environment({"NCCL_PROXY_TOKEN": "hunter2"}))
