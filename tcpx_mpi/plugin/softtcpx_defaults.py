"""Defaults of a run: progress threads; workers, channels and chunks of softtcpx.

One TCP stream moves a sixth of what a GPU's PCIe link does, and one thread in host memory as much
as its core copies: so a good figure takes many, each with a core of its own. Pure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tcpx_mpi.config.settings import BY_CORES, IN_GPU_MEMORY, Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.plugin.find import is_softtcpx
from tcpx_mpi.plugin.sockets import (
    THREADS_VARIABLE,
    integer_variable,
    most_sockets_of_softtcpx,
    threads_of_softtcpx,
)

WORKERS_VARIABLE = "SOFTTCPX_WORKERS"
#: How long softtcpx's kernel for small copies stays without one, us: longer than messages of a
#: pattern are apart, and soon gone.
STAY_VARIABLE = "SOFTTCPX_STAY_US"
_STAY_US = 200
#: Variables by which a user has said how many threads softtcpx has.
_USERS = (WORKERS_VARIABLE, THREADS_VARIABLE)
#: What softtcpx has at most.
_MOST_WORKERS = 16
#: Of each rank's cores: the progress thread's, and one for what else there is.
_OTHER_THREADS = 2
#: A message of which each channel is to have as many chunks; so it has of those of twice the size.
_SHARED_BYTES = 32 << 20
_PAGE = 4096
#: Bytes that one stream sends during the fixed cost of a copy: 6 us at 6.7 GB/s, by the times of
#: messages in chunks of 32 to 472 KiB (docs/reference/performance.md).
_COPY_BYTES = 40 << 10
#: Cores that a rank has for itself before host memory is moved by more than one thread: one
#: of them is for all else. And threads that it then has at most.
_FEWEST_CORES = 4
_MOST_THREADS = 8
#: Sockets that a caller of ours tries directly are counted over the callers of a device.
DIRECT_VARIABLE = "SOFTTCPX_DIRECT_SOCKETS"
_DIRECT_A_THREAD = 4
#: Where chunks come from that are not the user's: for all messages, and for large ones.
_EVEN = ": as many on each channel"
_FITTED = ", of large messages: as many on each channel"


def cores_for(hosts: Sequence[Host]) -> int:
    """Cores a rank, alike on all: what the fullest node has for each."""
    nodes: dict[str, list[Host]] = {}
    for host in hosts:
        nodes.setdefault(host.node, []).append(host)
    return min(
        len(set().union(*(host.cpus for host in ranks))) // len(ranks) for ranks in nodes.values()
    )


def workers_for(hosts: Sequence[Host]) -> int:
    """Workers a rank in GPUs' memory: what the cores leave."""
    return max(1, min(_MOST_WORKERS, cores_for(hosts) - _OTHER_THREADS))


def progress_threads_for(settings: Settings, hosts: Sequence[Host]) -> int:
    """Progress threads a rank of our own plugin in host memory, where they are left to the cores.

    Each moves the bytes of channels of its own, so that nobody is woken: a message of one chunk is
    as it is with one thread.
    """
    if settings.progress_threads:
        return settings.progress_threads
    cores = cores_for(hosts)
    return min(_MOST_THREADS, cores - 1) if cores >= _FEWEST_CORES else 1


def thread_variables(threads: int, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, value, source) of what to set for so many progress threads, unless it is set."""
    if threads < 2 or environ.get(DIRECT_VARIABLE, "").strip():
        return []
    return [(DIRECT_VARIABLE, str(_DIRECT_A_THREAD * threads), f"{threads} progress threads")]


def with_progress_threads(
    settings: Settings, plugin: str, environ: Mapping[str, str], hosts: Sequence[Host]
) -> Settings:
    """With the number of progress threads: by default one for another plugin, which has threads of
    its own, for workers, and in GPUs' memory.

    Raises UsageError for several in GPUs' memory.
    """
    threads = settings.progress_threads
    if settings.memory == "cuda" and threads > 1:
        raise UsageError(
            f"--progress-threads {threads}: a GPU unpacks by itself, and one thread drives all "
            "that is in its memory: leave it out, or use --memory host"
        )
    if threads:
        return settings
    alone = settings.memory == "cuda" or not is_softtcpx(plugin) or workers_asked_for(environ)
    threads = 1 if alone else progress_threads_for(settings, hosts)
    sources = {**settings.sources, "progress_threads": BY_CORES}
    return dataclasses.replace(settings, progress_threads=threads, sources=sources)


def workers_asked_for(environ: Mapping[str, str]) -> int:
    """The workers that softtcpx takes from the environment, whoever set it; 0: none.

    By its own rule (`load_settings` of its api/settings.cc): workers beyond their limits count
    as none, and threads are bounded by SOFTTCPX_MAX_SOCKETS.
    """
    if workers := integer_variable(environ, WORKERS_VARIABLE, 0, _MOST_WORKERS, 0):
        return workers
    return min(threads_of_softtcpx(environ), most_sockets_of_softtcpx(environ))


def worker_variables(workers: int, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, value, source) of what to set for so many workers; nothing over the user's word."""
    if any(environ.get(name, "").strip() for name in _USERS):
        return []
    return [(WORKERS_VARIABLE, str(workers), f"{IN_GPU_MEMORY}, by the cores of a rank")]


def stay_variables(environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, value, source) of what has a kernel for small copies stay on a GPU that no ranks
    share; nothing over the user's word."""
    if environ.get(STAY_VARIABLE, "").strip():
        return []
    return [(STAY_VARIABLE, str(_STAY_US), f"{IN_GPU_MEMORY}, on a GPU that no ranks share")]


def with_defaults(
    settings: Settings, plugin: str, environ: Mapping[str, str], peers: int, shared: bool
) -> Settings:
    """With channels and chunks for the workers of our own plugin, where GPUs' memory is moved, or
    for several progress threads; `shared`: of GPUs that several ranks have."""
    if settings.memory != "cuda" and settings.progress_threads > 1:
        by_threads = with_channels(settings, settings.progress_threads, peers, BY_CORES)
        return with_even_chunks(by_threads, why=BY_CORES)
    workers = workers_asked_for(environ) if is_softtcpx(plugin) else 0
    if settings.memory != "cuda" or not workers:
        return settings
    return with_even_chunks(with_channels(settings, workers, peers), shared)


def with_channels(
    settings: Settings, movers: int, peers: int, why: str = IN_GPU_MEMORY
) -> Settings:
    """With a channel to each of `peers` for every worker, or progress thread, where channels were
    not asked for."""
    if settings.sources["channels"] != "default":
        return settings
    source = f"{why} with {movers} {'workers' if why == IN_GPU_MEMORY else 'progress threads'}"
    return dataclasses.replace(
        settings,
        channels=max(1, movers // max(peers, 1)),
        sources={**settings.sources, "channels": source},
    )


def with_even_chunks(
    settings: Settings, shared: bool = False, why: str = IN_GPU_MEMORY
) -> Settings:
    """With chunks, as many in each channel and none larger than before, where chunks were
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
        sources={**settings.sources, "chunk_bytes": why + (_EVEN if shared else _FITTED)},
    )


def are_chunks_fitted(source: str) -> bool:
    """Whether a row has chunks of its own (`chunk_of`), by where `chunk_bytes` comes from."""
    return source in (IN_GPU_MEMORY + _FITTED, BY_CORES + _FITTED)


def chunk_of(settings: Settings, message_bytes: int, messages: int) -> int:
    """The chunk of a row whose largest message has so many bytes, of `messages` at once.

    A message of n chunks side by side takes n * messages * T_copy + message_bytes / (n * B_stream):
    each chunk takes T_copy of the copy engine, however small it is, and each stream sends its
    share. That is least for chunks of sqrt(messages * message_bytes * T_copy * B_stream) bytes.
    """
    if not are_chunks_fitted(settings.sources["chunk_bytes"]):
        return settings.chunk_bytes
    parts = round(math.sqrt(message_bytes / (max(messages, 1) * _COPY_BYTES)))
    if parts <= 1:
        return settings.chunk_bytes
    even = -(-message_bytes // (min(parts, settings.channels) * _PAGE)) * _PAGE
    return min(even, settings.chunk_bytes)
