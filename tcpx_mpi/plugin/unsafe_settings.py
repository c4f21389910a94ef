"""Values of variables that TCPX is known to die of, or to hang with: what happens, what to set.

softtcpx shares none of them: it bounds its threads by its sockets, has one socket at least, knows
neither retries nor bindings, and needs no GPU. NCCL_DYNAMIC_CHUNK_SIZE, 0 of which TCPX hangs
with, is refused for every plugin where it is smaller than --chunk (`prepare_environment`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.cpu_bindings import RX_VARIABLE, TX_VARIABLE, parse_bindings
from tcpx_mpi.plugin.find import is_tcpx
from tcpx_mpi.plugin.sockets import MAX_DATA_SOCKETS, SOCKETS_VARIABLE, THREADS_VARIABLE


@dataclass(frozen=True)
class FatalValue:
    """Some values of a variable, with what happens and what to do in place of them."""

    variable: str
    holds: Callable[[str], bool]
    happens: str
    instead: str


def _is_zero(text: str) -> bool:
    return _whole(text) == 0


def _hides_gpus(text: str) -> bool:
    return text in ("", "-1")


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _too_many_threads(text: str) -> bool:
    threads = _whole(text)
    return threads is not None and threads > MAX_DATA_SOCKETS


_NO_SOCKET = "leaves a connection of TCPX no data socket, and nothing ever moves"

#: In the order in which a run meets them.
FATAL = (
    FatalValue(
        "CUDA_VISIBLE_DEVICES", _hides_gpus, "hides all GPUs, and TCPX ends a process without one",
        "name some, or unset it",
    ),
    FatalValue(
        THREADS_VARIABLE, _too_many_threads, _NO_SOCKET,
        f"use {MAX_DATA_SOCKETS} or less, which is how many sockets there are at most",
    ),
    FatalValue(THREADS_VARIABLE, _is_zero, _NO_SOCKET, "use 1 or more, or unset it"),
    FatalValue(SOCKETS_VARIABLE, _is_zero, _NO_SOCKET, "use 1 or more, or unset it"),
    FatalValue(
        "NCCL_GPUDIRECTTCPX_CONNECTION_RETRY", _is_zero, "makes every connect of TCPX fail",
        "use 3, or unset it",
    ),
)  # fmt: skip


def fatal_value(plugin: str, environ: Mapping[str, str]) -> str | None:
    """What the plugin of that name would die of or hang with, and after a colon or semicolon what
    to do; None: nothing that is known."""
    if not is_tcpx(plugin):
        return None
    for fatal in FATAL:
        text = environ.get(fatal.variable)
        if text is not None and fatal.holds(text.strip()):
            return f"{fatal.variable} ({text}) {fatal.happens}; {fatal.instead}"
    # TCPX drops what it cannot read, and crashes where nothing is left.
    for name in (TX_VARIABLE, RX_VARIABLE):
        try:
            parse_bindings(name, environ.get(name, ""))
        except UsageError as error:
            return str(error)
    return None


def refuse_fatal_values(plugin: str, environ: Mapping[str, str]) -> None:
    """Raises UsageError where `fatal_value` knows of any; to be called before init."""
    if found := fatal_value(plugin, environ):
        raise UsageError(found)
