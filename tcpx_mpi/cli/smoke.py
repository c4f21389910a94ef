"""`tcpx-mpi run smoke`: one small message each way between every two ranks, checked.

`tcpx-mpi smoke` is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcpx_mpi import patterns
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError

#: The options of a run that smoke has a use for.
_NAMES = (
    "plugin", "abi", "memory", "unpack", "channels", "chunk", "window_send", "window_recv",
    "profile", "nic", "gpu", "share_gpu", "cpus", "placement", "seed",
    "stall_timeout", "connect_timeout", "setup_timeout", "ranks", "verbose", "config",
)  # fmt: skip
_PAYLOAD_VARIABLE = "UCCL_TCPX_PAYLOAD_BYTES"
#: The length of `Hello from TCPX client!`, which the first tests of TCPX sent.
_PAYLOAD_BYTES = "23"


#: What --help says of what only smoke has.
HELP = (
    ("--payload-bytes SIZE", f"bytes of a message [{_PAYLOAD_BYTES}] (or {_PAYLOAD_VARIABLE})"),
    ("-v, --verbose", "show the descriptors and the first bytes that the plugin delivered"),
)


def refuse_useless(values: Mapping[str, str | None], ignored: Sequence[str]) -> None:
    """Raises UsageError for options of a benchmark, which one message has no use for."""
    useless = [
        "/".join(option.flags)
        for option in OPTIONS
        if option.name not in _NAMES and values.get(option.name) is not None
    ]
    if given := [*useless, *ignored]:
        raise UsageError(
            f"smoke, which sends one message each way, has no use for {', '.join(given)}: "
            "leave it out"
        )


def settings_of(
    values: Mapping[str, str | None], payload_bytes: str | None, environ: Mapping[str, str]
) -> Settings:
    """The settings: one message a pair, no output but the table. Raises UsageError."""
    text = payload_bytes
    if text is None:
        text = environ.get(_PAYLOAD_VARIABLE, "").strip() or _PAYLOAD_BYTES
    try:
        settings = load_settings({**values, **_one_message(text)}, environ)
    except UsageError as error:
        name = "--payload-bytes" if payload_bytes is not None else _PAYLOAD_VARIABLE
        raise UsageError(str(error).replace("--sizes", name)) from None
    if len(settings.sizes) != 1:
        raise UsageError(f"--payload-bytes ({text}) is not one size; write it like 23 or 4K")
    if not settings.checks():
        raise UsageError(
            "smoke checks every byte, which --unpack none (or UCCL_TCPX_UNPACK_IMPL) leaves "
            "scattered: use kernel, d2d or host"
        )
    return settings


def _one_message(size: str) -> dict[str, str]:
    return {
        "pattern": patterns.SMOKE,
        "sizes": size,
        "iters": "1",
        "warmup_iters": "0",
        "check": "1",
        "check_memory": "1",  # as few slots as there can be
        "hdf5": "none",
    }
