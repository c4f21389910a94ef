"""NCCL's environment in the companion process, independent of the ranks' own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcpx_mpi.config.options import NCCL_HELD

#: "default" is NCCL as it comes. "tuned" was the best of five tunings between two H200s over
#: loopback TCP: eight sockets for each of eight channels, large pieces, deep buffers.
PRESETS: dict[str, dict[str, str]] = {
    "default": {},
    "tuned": {
        "NCCL_NSOCKS_PERTHREAD": "2",
        "NCCL_SOCKET_NTHREADS": "4",
        # Of collectives, and of sends and receives, which have a number of their own.
        "NCCL_MIN_NCHANNELS": "8",
        "NCCL_MAX_NCHANNELS": "8",
        "NCCL_MIN_P2P_NCHANNELS": "8",
        "NCCL_MAX_P2P_NCHANNELS": "8",
        # Without it a send to one peer has two of them, whatever the others say.
        "NCCL_NCHANNELS_PER_NET_PEER": "8",
        "NCCL_P2P_NET_CHUNKSIZE": "1048576",
        "NCCL_BUFFSIZE": "16777216",
    },
}

#: What NCCL tells hosts apart by, where it is set.
HOST_ID = "NCCL_HOSTID"

#: What a launcher tells its ranks: a companion is no rank, and must not take itself for one.
_LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "MPIR_", "MPI4PY_")
#: What steers plugins, ours or another, and the NCCL of somebody else.
_PLUGINS = ("NCCL_", "UCCL_", "SOFTTCPX_", "TCPX_DEBUG", "TCPX_PERF")
#: What NCCL says is kept for when it fails, as much of it as the user has asked for.
_SAID = "NCCL_DEBUG"


def nccl_variables(preset: str, own: Sequence[str], interface: str) -> dict[str, str]:
    """NCCL's variables: those that hold it to TCP, the preset's, then the user's KEY=VALUE."""
    # The name alone would be a prefix to NCCL, which eth10 has too.
    where = {"NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}
    users = dict(setting.split("=", 1) for setting in own)
    return {**NCCL_HELD, **where, **PRESETS[preset], **users}


def apart(node: str, turn: int) -> dict[str, str]:
    """The variables for the rank that is number `turn` on its GPU, from 0.

    NCCL takes a GPU of a host once, though over TCP ranks could share it: those after the first
    have a host of their own to it.
    """
    return {HOST_ID: f"{node}-{turn}"} if turn else {}


def companion_environment(
    environ: Mapping[str, str], variables: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a companion: the rank's without launcher and plugins, then `variables`."""
    gone = (*_LAUNCHERS, *_PLUGINS)
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(gone) or name.startswith(_SAID)
    }
    return {_SAID: "WARN", **kept, **variables}
