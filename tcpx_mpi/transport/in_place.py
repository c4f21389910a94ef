"""A plugin that puts data into a GPU's memory itself: whether its receives are flushed, and why.

What was received there is visible to whoever reads it once the plugin has flushed it. Where the
network and the GPU keep the order by themselves, NCCL leaves that out; the rule here is NCCL's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.config.settings import IN_GPU_MEMORY, Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.records.header import WOULD_FLUSH

#: NCCL's own: 1 flushes wherever data is put into a GPU's memory.
FORCE_VARIABLE = "NCCL_NET_FORCE_FLUSH"
#: From this compute capability on a GPU sees what came before in the order in which it came.
_HOPPER = 9


def is_in_place(properties: Mapping[str, Any]) -> bool:
    """Whether the plugin of this device puts data where receives were posted, in any memory."""
    return bool(properties["device_type"] != _native.DEVICE_UNPACK)


def need_of_flush(
    plugin: str,
    properties: Mapping[str, Any],
    environ: Mapping[str, str],
    capability: tuple[int, int] | None,
) -> str:
    """Why NCCL would flush receives here; "" where it would not.

    `capability` is the GPU's; None: buffers are emulated, and there is none.
    """
    if properties["force_flush"]:
        return f"plugin {plugin} asks for it (forceFlush)"
    if environ.get(FORCE_VARIABLE, "").strip() == "1":
        return f"{FORCE_VARIABLE}=1"
    if capability is not None and capability[0] < _HOPPER:
        return f"the GPU is older than Hopper (compute capability {'.'.join(map(str, capability))})"
    return ""


def with_flush(settings: Settings, plugin: str, in_place: bool, needs: Sequence[str]) -> Settings:
    """The settings with `--flush auto` decided for all ranks, by what each needs ("" for nothing).

    Raises UsageError where what was typed has no meaning for the plugin.
    """
    if settings.memory == "host":
        return settings
    if not in_place:
        if settings.flush != "auto":
            raise UsageError(
                f"--flush {settings.flush}: plugin {plugin} hands over fragments, and NCCL "
                "flushes none of them: leave --flush out, or use a plugin that puts data in place"
            )
        return settings
    if not settings.sources["unpack"].startswith("default"):
        raise UsageError(
            f"--unpack {settings.unpack}: plugin {plugin} puts data in place, and there is nothing "
            "to unpack: leave --unpack out"
        )
    need = next(filter(None, needs), "")
    flush, why = settings.flush, settings.sources["flush"]
    if flush == "auto":
        flush = "always" if need else "never"
        none = f"no forceFlush, no {FORCE_VARIABLE}=1, and no GPU older than Hopper"
        why = f"auto: {need or none}"
    elif flush == "never" and need:
        why += WOULD_FLUSH + need
    sources = {
        **settings.sources,
        "flush": why,
        "unpack": f"{IN_GPU_MEMORY}: the plugin puts data in place",
    }
    return dataclasses.replace(settings, flush=flush, unpack="in place", sources=sources)


def cause_of(settings: Settings, verdict: Mapping[str, Any]) -> str:
    """What a wrong byte or element may come of where receives are not flushed; "" elsewhere.

    A byte that is neither what was there before nor what was sent has another cause.
    """
    in_place = settings.memory != "host" and settings.unpack_mode() == "in place"
    if not in_place or settings.flushes():
        return ""
    found, expected = verdict["found"], verdict["expected"]
    if isinstance(found, int) and found != expected ^ 0xFF:
        return ""
    return f": not flushed ({_how(settings)})"


def _how(settings: Settings) -> str:
    typed = not settings.sources["flush"].startswith("auto:")
    return "--flush never" if typed else "--flush auto found no need: see --flush always"
