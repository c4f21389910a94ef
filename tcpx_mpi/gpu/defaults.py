"""What a run in GPUs' memory sets where nobody has: workers, channels and chunks of softtcpx.

One TCP stream moves a sixth of what a GPU's PCIe link does, so a good figure takes many, each with
a core of its own. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from tcpx_mpi.config import Settings
from tcpx_mpi.topology import Host

WORKERS_VARIABLE = "SOFTTCPX_WORKERS"
#: Variables by which a user has said how many threads softtcpx has.
_THREADS_VARIABLE = "NCCL_SOCKET_NTHREADS"
_USERS = (WORKERS_VARIABLE, _THREADS_VARIABLE)
#: What softtcpx has at most.
_MOST_WORKERS = 16
#: What it takes for a whole number: C's strtoll, and nothing behind.
_WHOLE = re.compile(r"\s*[+-]?[0-9]+", re.ASCII)
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
    if workers := _number(environ, WORKERS_VARIABLE, 0, _MOST_WORKERS, 0):
        return workers
    threads = _number(environ, _THREADS_VARIABLE, 0, 1 << 20, 0)
    return min(threads, _number(environ, "SOFTTCPX_MAX_SOCKETS", 1, _MOST_WORKERS, 8))


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


def _number(environ: Mapping[str, str], name: str, least: int, most: int, fallback: int) -> int:
    text = environ.get(name, "")
    value = int(text) if _WHOLE.fullmatch(text) else fallback
    return value if least <= value <= most else fallback
