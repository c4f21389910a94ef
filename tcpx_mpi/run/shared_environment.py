"""Environment variables that must be equal on all ranks, and reasons for those that may differ."""

from __future__ import annotations

from collections.abc import Mapping

from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.records import filter_environment

#: What steers a plugin, ours or another, or this tool.
PREFIXES = ("NCCL_", "UCCL_TCPX_", "SOFTTCPX_", "TCPX_")

_OWN_PREFIX = "TCPX_MPI_"
_PLACES = "names a place, which each node has its own of"
_TALK = "changes what is logged, not what is moved"
_SETTING = "is a setting: compared as what it means, after the command line"

#: Name, or its beginning with a `*` -> why it may differ between ranks.
MAY_DIFFER: dict[str, str] = {
    "NCCL_SOCKET_IFNAME": "interfaces have other names on other nodes",
    "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "interfaces have other names on other nodes",
    "NCCL_GPUDIRECTTCPX_CTRL_DEV": "interfaces have other names on other nodes",
    "NCCL_GPUDIRECTTCPX_TX_BINDINGS": "CPUs of a node or a rank",
    "NCCL_GPUDIRECTTCPX_RX_BINDINGS": "CPUs of a node or a rank",
    "NCCL_IGNORE_CPU_AFFINITY": "CPUs of a node or a rank",
    "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": _PLACES,
    "NCCL_NET_PLUGIN": "which plugin it is, is compared by content",
    "NCCL_CONF_FILE": _PLACES,
    "NCCL_TOPO_*": _PLACES,
    "NCCL_GRAPH_*": _PLACES,
    "NCCL_HOSTID": "identifies a node",
    "NCCL_DEBUG*": _TALK,
    "NCCL_DYNAMIC_CHUNK_SIZE": "is compared with the plugin, after its default was derived",
    "SOFTTCPX_TRAP_*": "a fault on purpose, often meant for one side",
    "SOFTTCPX_SEED": "orders bounce pages of one rank",
    **{variable: _SETTING for option in OPTIONS for variable in option.variables},
}


def shared_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environ` that every rank must have alike, in the order of their names.

    One that is set to nothing counts as not set, as shells make it.
    """
    # A secret is hidden, and so alike everywhere: it is named in no error.
    return {
        name: value
        for name, value in filter_environment(environ).items()
        if name.startswith(PREFIXES) and value.strip() and reason_to_differ(name) is None
    }


def reason_to_differ(name: str) -> str | None:
    """Why a variable may differ between ranks; None: it may not."""
    if name.startswith(_OWN_PREFIX):
        return "set by this tool"
    for pattern, reason in MAY_DIFFER.items():
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return reason
    return None
