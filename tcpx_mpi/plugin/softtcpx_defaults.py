"""What a run in GPUs' memory sets where nobody has: workers, channels and chunks of softtcpx.

One TCP stream moves a sixth of what a GPU's PCIe link does, so a good figure takes many, each with
a core of its own. Pure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tcpx_mpi.config.settings import IN_GPU_MEMORY, Settings
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.plugin.find import is_softtcpx
from tcpx_mpi.plugin.sockets import (
    THREADS_VARIABLE,
    most_sockets_of_softtcpx,
    threads_of_softtcpx,
    whole_number,
)

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
#: What one stream sends while the copy engine does what it does for each copy: 6 us at 6.7 GB/s,
#: by the times of messages in chunks of 32 to 472 KiB (docs/reference/performance.md).
_COPY_BYTES = 40 << 10
#: Where chunks come from that are not the user's: for all messages, and for large ones.
_EVEN = f"{IN_GPU_MEMORY}: as many on each channel"
_FITTED = f"{IN_GPU_MEMORY}, of large messages: as many on each channel"


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

    By its own rule (`load_settings` of its api/settings.cc): workers beyond their limits count
    as none, and threads are bounded by SOFTTCPX_MAX_SOCKETS.
    """
    if workers := whole_number(environ, WORKERS_VARIABLE, 0, _MOST_WORKERS, 0):
        return workers
    return min(threads_of_softtcpx(environ), most_sockets_of_softtcpx(environ))


def worker_variables(workers: int, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, value, source) of what to set for so many workers; nothing over the user's word."""
    if any(environ.get(name, "").strip() for name in _USERS):
        return []
    return [(WORKERS_VARIABLE, str(workers), f"{IN_GPU_MEMORY}, by the cores of a rank")]


def with_defaults(
    settings: Settings, plugin: str, environ: Mapping[str, str], peers: int, shared: bool
) -> Settings:
    """With channels and chunks for the workers of our own plugin, where GPUs' memory is moved;
    `shared`: of GPUs that several ranks have."""
    workers = workers_asked_for(environ) if is_softtcpx(plugin) else 0
    if settings.memory != "cuda" or not workers:
        return settings
    return with_even_chunks(with_channels(settings, workers, peers), shared)


def with_channels(settings: Settings, workers: int, peers: int) -> Settings:
    """With a channel to each of `peers` for every worker, where channels were not asked for."""
    if settings.sources["channels"] != "default":
        return settings
    source = f"{IN_GPU_MEMORY} with {workers} workers"
    return dataclasses.replace(
        settings,
        channels=max(1, workers // max(peers, 1)),
        sources={**settings.sources, "channels": source},
    )


def with_even_chunks(settings: Settings, shared: bool = False) -> Settings:
    """With chunks, none larger than before, of which each channel has as many, where chunks were
    not asked for: a message ends with the channel that has most.

    On a GPU of several ranks they are for all messages: there each copy and launch waits for turns
    of processes, and how many are worth it was not measured.
    """
    if settings.sources["chunk_bytes"] != "default":
        return settings
    each = -(-_SHARED_BYTES // (settings.chunk_bytes * settings.channels))
    chunk = -(-_SHARED_BYTES // (each * settings.channels * _PAGE)) * _PAGE
    return dataclasses.replace(
        settings,
        chunk_bytes=chunk,
        sources={**settings.sources, "chunk_bytes": _EVEN if shared else _FITTED},
    )


def are_chunks_fitted(source: str) -> bool:
    """Whether a row has chunks of its own (`chunk_of`), by where `chunk_bytes` comes from."""
    return source == _FITTED


def chunk_of(settings: Settings, message_bytes: int, messages: int) -> int:
    """The chunk of a row whose largest message has so many bytes, of `messages` at once.

    Time of n chunks a message that go side by side: each takes its turn at the copy engine, T_copy
    for a chunk however small it is, and one stream has what there is to send at its own pace:
    n * messages * T_copy + message_bytes / (n * B_stream), which is least where a chunk has
    sqrt(messages * message_bytes * T_copy * B_stream) bytes.
    """
    if not are_chunks_fitted(settings.sources["chunk_bytes"]):
        return settings.chunk_bytes
    parts = round(math.sqrt(message_bytes / (max(messages, 1) * _COPY_BYTES)))
    if parts <= 1:
        return settings.chunk_bytes
    even = -(-message_bytes // (min(parts, settings.channels) * _PAGE)) * _PAGE
    return min(even, settings.chunk_bytes)
