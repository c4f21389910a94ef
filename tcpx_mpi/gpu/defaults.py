"""What a run in GPUs' memory sets where nobody has: workers, channels and chunks of softtcpx.

One TCP stream moves a sixth of what a GPU's PCIe link does, so a good figure takes many, each with
a core of its own. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tcpx_mpi.config import Settings
from tcpx_mpi.socket_counts import THREADS_VARIABLE, most_sockets_of_softtcpx, whole_number
from tcpx_mpi.topology import Host

WORKERS_VARIABLE = "SOFTTCPX_WORKERS"
#: Variables by which a user has said how many threads softtcpx has.
_USERS = (WORKERS_VARIABLE, THREADS_VARIABLE)
#: What softtcpx has at most.
_MOST_WORKERS = 16
#: Of each rank's cores: the progress thread's, and one for what else there is.
_OTHER_THREADS = 2
#: A message of which each channel is to have as many chunks; so it has of those of twice the size.
_SHARED_BYTES = 32 << 20
_PAGE = 4096


def workers_for(hosts: Sequence[Host]) -> int:
    """Workers a rank, alike on all: what the cores of the fullest node leave each."""
    nodes: dict[str, list[Host]] = {}
    for host in hosts:
        nodes.setdefault(host.node, []).append(host)
    cores = min(
        len(set().union(*(host.cpus for host in ranks))) // len(ranks) for ranks in nodes.values()
    )
    return max(1, min(_MOST_WORKERS, cores - _OTHER_THREADS))


def workers_asked_for(environ: Mapping[str, str]) -> int:
    """How many workers softtcpx makes of the environment, whoever set it; 0: none.

    By its own rule (`load_settings` of native/softtcpx/settings.cc): a value beyond its limits
    counts as none, and threads are bounded by SOFTTCPX_MAX_SOCKETS.
    """
    if workers := whole_number(environ, WORKERS_VARIABLE, 0, _MOST_WORKERS, 0):
        return workers
    threads = whole_number(environ, THREADS_VARIABLE, 0, 1 << 20, 0)
    return min(threads, most_sockets_of_softtcpx(environ))


def worker_variables(workers: int, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, value, source) of what to set for so many workers; nothing over the user's word."""
    if any(environ.get(name, "").strip() for name in _USERS):
        return []
    return [(WORKERS_VARIABLE, str(workers), "default in GPU memory, by the cores of a rank")]


def with_channels(settings: Settings, workers: int, peers: int) -> Settings:
    """With a channel to each of `peers` for every worker, where channels were not asked for."""
    if settings.sources["channels"] != "default":
        return settings
    source = f"default in GPU memory with {workers} workers"
    return dataclasses.replace(
        settings,
        channels=max(1, workers // max(peers, 1)),
        sources={**settings.sources, "channels": source},
    )


def with_even_chunks(settings: Settings) -> Settings:
    """With chunks, none larger than before, of which each channel has as many, where chunks were
    not asked for: a message ends with the channel that has most."""
    if settings.sources["chunk_bytes"] != "default":
        return settings
    each = -(-_SHARED_BYTES // (settings.chunk_bytes * settings.channels))
    chunk = -(-_SHARED_BYTES // (each * settings.channels * _PAGE)) * _PAGE
    if chunk == settings.chunk_bytes:
        return settings
    source = f"default in GPU memory: as many on each of {settings.channels} channels"
    return dataclasses.replace(
        settings, chunk_bytes=chunk, sources={**settings.sources, "chunk_bytes": source}
    )
