"""Settings that take the place of what the cores would have given, and what else that changes.

A number of workers, for example, says how many channels there are, too. A run says so in its
header: nobody asks for a twentieth of the bandwidth. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.plugin.find import is_softtcpx
from tcpx_mpi.plugin.sockets import THREADS_VARIABLE
from tcpx_mpi.plugin.softtcpx_defaults import (
    WORKERS_VARIABLE,
    are_chunks_fitted,
    with_defaults,
    with_progress_threads,
    worker_variables,
    workers_asked_for,
    workers_for,
)
from tcpx_mpi.units import format_size

#: What each of them gives itself.
_VARIABLES = {WORKERS_VARIABLE: "workers", THREADS_VARIABLE: "workers"}
_FIELDS = {"progress_threads": "progress threads", "channels": "channels", "chunk_bytes": "chunk"}
#: SOFTTCPX_WORKERS=2, so 2 channels in place of 16; medians of 3 launches (performance.md).
_MEASURED = "; a ring of 64 MiB on 2 H100s fell from 17.9 to 6.4 GB/s by 2 channels in place of 16"


def turned_off(
    settings: Settings,
    plugin: str,
    environ: Mapping[str, str],
    ours: Sequence[str],
    hosts: Sequence[Host],
    peers: int,
    shared: bool,
) -> list[str]:
    """A line for each setting that changes others. `settings` are those before anything was derived
    by the cores, `ours` the variables that this program set."""
    if not is_softtcpx(plugin):
        return []
    given = {name: value for name, value in environ.items() if name not in ours}

    def derived(of: Settings, variables: Mapping[str, str]) -> dict[str, str]:
        return _derived(of, plugin, variables, hosts, peers, shared)

    now = derived(settings, given)
    lines = []
    for name, own in _VARIABLES.items():
        if value := given.get(name, "").strip():
            rest = {other: text for other, text in given.items() if other != name}
            changed = list(_changed(derived(settings, rest), now, own))
            lines += _line(f"{name}={value}", changed, settings.memory)
    options = {option.field: option for option in OPTIONS}
    for field, own in _FIELDS.items():
        option = options[field]
        if settings.sources[field] != "default":
            free = dataclasses.replace(
                settings, **{field: option.default},  # type: ignore[arg-type]  # of that field
                sources={**settings.sources, field: "default"},
            )  # fmt: skip
            changed = list(_changed(derived(free, given), now, own))
            value = getattr(settings, field)
            text = format_size(value) if own == "chunk" else str(value)
            lines += _line(f"{option.option} {text}", changed, settings.memory)
    return lines


def _derived(
    settings: Settings, plugin: str, environ: Mapping[str, str], hosts: Sequence[Host],
    peers: int, shared: bool,
) -> dict[str, str]:  # fmt: skip
    """The outcome of settings and variables, in words."""
    if settings.memory == "cuda":
        ours = worker_variables(workers_for(hosts), environ)
        environ = {**environ, **{name: value for name, value, _ in ours}}
    made = with_progress_threads(settings, plugin, environ, hosts)
    made = with_defaults(made, plugin, environ, peers, shared)
    fitted = "fitted to each size" if are_chunks_fitted(made.sources["chunk_bytes"]) else "one"
    return {
        "workers": str(workers_asked_for(environ)),
        "progress threads": str(made.progress_threads),
        "channels": str(made.channels),
        "chunk": f"{format_size(made.chunk_bytes)}, {fitted}",
    }


def _changed(
    free: Mapping[str, str], now: Mapping[str, str], own: str
) -> Iterator[tuple[str, str, str]]:
    """(what, what it would be, what it is)"""
    for what, would in free.items():
        if what != own and now[what] != would:
            yield what, would, now[what]


def _line(given: str, changed: Sequence[tuple[str, str, str]], memory: str) -> list[str]:
    if not changed:
        return []
    parts = "; ".join(f"{what} {is_now}, by the cores {would}" for what, would, is_now in changed)
    channels = next((each for each in changed if each[0] == "channels"), None)
    fall = channels is not None and 2 * int(channels[2]) <= int(channels[1])
    cost = _MEASURED if fall and memory == "cuda" else ""
    return [f"{given} turns derived settings off: {parts}{cost}; leave it out, or set these too"]
