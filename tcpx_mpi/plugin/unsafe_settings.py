"""Settings with which TCPX crashes or hangs: what happens, and what to set.

softtcpx shares none of them: it bounds its threads by its sockets, has one socket at least, knows
neither retries nor bindings, and needs no GPU. NCCL_DYNAMIC_CHUNK_SIZE, 0 of which TCPX hangs
with, is refused for every plugin where it is smaller than --chunk (`prepare_environment`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.cpu_bindings import RX_VARIABLE, TX_VARIABLE, parse_bindings
from tcpx_mpi.plugin.current_gpu import hides_all_gpus
from tcpx_mpi.plugin.find import is_tcpx
from tcpx_mpi.plugin.sockets import MAX_DATA_SOCKETS, MAX_THREADS, THREADS_VARIABLE, c_number


@dataclass(frozen=True)
class FatalValue:
    """Some values of a variable, with what happens and what to do in place of them."""

    variable: str
    holds: Callable[[str, Mapping[str, str]], bool]
    happens: str
    instead: str


#: From here on TCPX takes chunks of 128 KiB without a word, and loses bounce pages.
_TOO_LARGE_A_CHUNK = 2**31 - 1
_TELEMETRY = "NCCL_GPUDIRECTTCPX_TELEMETRY_EXPORT_STATS_TO_FILE"
_TELEMETRY_PATH = "NCCL_GPUDIRECTTCPX_TELEMETRY_EXPORTER_PATH"

#: In the order in which a run meets them. 0, and more than 16, threads or sockets are 1 to TCPX.
FATAL = (
    FatalValue(
        "CUDA_VISIBLE_DEVICES", lambda text, _: hides_all_gpus(text),
        "hides all GPUs, and TCPX ends a process without one", "name some, or unset it",
    ),
    FatalValue(
        THREADS_VARIABLE, lambda text, _: MAX_DATA_SOCKETS < c_number(text) <= MAX_THREADS,
        "leaves a connection of TCPX no data socket, and nothing ever moves",
        f"use {MAX_DATA_SOCKETS} or less, which is how many sockets there are at most",
    ),
    FatalValue(
        "NCCL_DYNAMIC_CHUNK_SIZE", lambda text, _: c_number(text) >= _TOO_LARGE_A_CHUNK,
        "makes TCPX cut messages at 128 KiB and lose bounce pages until none is left",
        "use 524288",
    ),
    FatalValue(
        "NCCL_GPUDIRECTTCPX_CONNECTION_RETRY", lambda text, _: text != "" and c_number(text) == 0,
        "makes every connect of TCPX fail", "use 3, or unset it",
    ),
    FatalValue(
        _TELEMETRY,
        lambda text, environ: c_number(text) != 0 and not environ.get(_TELEMETRY_PATH, ""),
        "without a path to write to makes TCPX crash at init",
        f"set {_TELEMETRY_PATH}, or unset it",
    ),
)  # fmt: skip


def fatal_value(plugin: str, environ: Mapping[str, str]) -> str | None:
    """The fate of the plugin of that name with this value, if it would die or hang, and after a
    colon or semicolon the remedy; None: nothing that is known."""
    if not is_tcpx(plugin):
        return None
    for fatal in FATAL:
        text = environ.get(fatal.variable)
        if text is not None and fatal.holds(text.strip(), environ):
            return f"{fatal.variable} ({text}) {fatal.happens}; {fatal.instead}"
    # TCPX drops what it cannot read, and crashes where nothing is left.
    for name in (TX_VARIABLE, RX_VARIABLE):
        try:
            parse_bindings(name, environ.get(name, ""))
        except UsageError as error:
            return str(error)
    return None


def refuse_fatal_values(plugin: str, environ: Mapping[str, str]) -> None:
    """Raises UsageError if `fatal_value` knows of any; to be called before init."""
    if found := fatal_value(plugin, environ):
        raise UsageError(found)
