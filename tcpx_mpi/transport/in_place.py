"""Plugins that put data into GPU memory themselves: whether receives are flushed, and why.

What was received there is visible to whoever reads it once the plugin has flushed it. Where the
network and the GPU keep the order by themselves, NCCL leaves that out; the rule here is NCCL's, but
for machines with C2C (docs/how-to/gpu.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.config.settings import IN_GPU_MEMORY, Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.gpu.driver import ordinal_of
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.records.header import WOULD_FLUSH
from tcpx_mpi.transport.load_plugin import LoadedPlugin
from tcpx_mpi.transport.memory import visible_gpus
from tcpx_mpi.world import World

#: NCCL's own: 1 flushes wherever data is put into a GPU's memory.
FORCE_VARIABLE = "NCCL_NET_FORCE_FLUSH"
#: From this compute capability on a GPU sees what came before in the order in which it came.
_HOPPER = 9


def agree_in_place(
    world: World,
    settings: Settings,
    plugin: LoadedPlugin,
    placement: Placement,
    environ: Mapping[str, str],
) -> Settings:
    """Collective: how a GPU's memory is registered, and whether receives are flushed where the
    plugin puts data in place: alike on all ranks. Raises UsageError alike on all ranks."""
    if settings.memory == "host":
        return settings
    name = plugin.file.name
    with world.agree("GPU memory"):
        properties, gpu = plugin.nic(placement.device), None
        if settings.memory == "cuda":
            devices = visible_gpus()
            ordinal = ordinal_of(placement.gpu_pci, devices)
            gpu = next(each for each in devices if each["ordinal"] == ordinal)
        capability = gpu["capability"] if gpu is not None else None
        need = need_of_flush(name, properties["force_flush"], environ, capability)
        obstacle = obstacle_to_dma_buf(name, properties, plugin.handle.offers_dma_buf, gpu)
    found = world.allgather((is_in_place(properties), need, obstacle), "GPU memory")
    in_place, needs, obstacles = zip(*found, strict=True)
    settings = with_registration(settings, obstacles)
    return with_flush(settings, name, all(in_place), needs)


def undecided(settings: Settings) -> Settings:
    """The settings as they were asked for, for another plugin in the same memory."""
    asked: dict[str, Any] = {
        name: default
        for name, default in (("flush", "auto"), ("registration", "auto"), ("unpack", "kernel"))
        if settings.sources[name].startswith(("auto:", IN_GPU_MEMORY))
    }
    sources = {**settings.sources, **dict.fromkeys(asked, "default")}
    return dataclasses.replace(settings, sources=sources, **asked)


def is_in_place(properties: _native.DeviceProperties) -> bool:
    """Whether the plugin of this device puts data where receives were posted, in any memory."""
    return properties["device_type"] != _native.DEVICE_UNPACK


def need_of_flush(
    plugin: str,
    force_flush: int,
    environ: Mapping[str, str],
    capability: tuple[int, int] | None,
) -> str:
    """Why NCCL would flush receives here; "" if it would not.

    `force_flush` is the device's property; `capability` is the GPU's; None: buffers are emulated,
    and there is none.
    """
    if force_flush:
        return f"plugin {plugin} asks for it (forceFlush)"
    if environ.get(FORCE_VARIABLE, "").strip() == "1":
        return f"{FORCE_VARIABLE}=1"
    if capability is not None and capability[0] < _HOPPER:
        return f"the GPU is older than Hopper (compute capability {'.'.join(map(str, capability))})"
    return ""


def with_flush(settings: Settings, plugin: str, in_place: bool, needs: Sequence[str]) -> Settings:
    """The settings with `--flush auto` decided for all ranks, by what each needs ("" for nothing).

    Raises UsageError if what was typed has no meaning for the plugin.
    """
    if settings.memory_of(sends=False) == "host":
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


def obstacle_to_dma_buf(
    plugin: str, properties: Mapping[str, Any], offered: bool, gpu: Mapping[str, Any] | None
) -> str:
    """Why a rank's GPU memory is not registered as a dma-buf; "" if it may be.

    `offered`: the plugin has regMrDmaBuf. `gpu` is what CUDA says of it; None: it is emulated.
    """
    if not properties["ptr_support"] & _native.PTR_DMABUF:
        return f"plugin {plugin} takes no dma-bufs (ptrSupport {properties['ptr_support']})"
    if not offered:
        return f"plugin {plugin} has no regMrDmaBuf"
    if gpu is None:
        return "host pages that stand for a GPU's are no dma-buf"
    if not gpu["dma_buf"]:
        return f"the driver makes no dma-bufs of GPU {gpu['ordinal']}"
    return ""


def with_registration(settings: Settings, obstacles: Sequence[str]) -> Settings:
    """The settings with `--registration auto` decided for all ranks, by what stands in the way of a
    dma-buf on each ("" for nothing). Raises UsageError if one is asked for and cannot be."""
    if settings.memory == "host" or settings.registration == "regmr":
        return settings
    obstacle = next(filter(None, obstacles), "")
    if settings.registration == "dmabuf":
        if obstacle:
            raise UsageError(f"--registration dmabuf: {obstacle}; use regmr, or leave it out")
        return settings
    why = f"auto: {obstacle or 'the plugin takes dma-bufs, and the driver makes them'}"
    return dataclasses.replace(
        settings,
        registration="regmr" if obstacle else "dmabuf",
        sources={**settings.sources, "registration": why},
    )


def cause_of(settings: Settings, place: _native.WrongPlace) -> str:
    """The likely cause of a wrong byte or element if receives are not flushed; "" elsewhere.

    A byte that is neither what was there before nor what was sent has another cause.
    """
    if not settings.puts_in_place() or settings.flushes():
        return ""
    if place["element"] is None and place["found"][0] != place["expected"][0] ^ 0xFF:
        return ""
    return f": not flushed ({_how(settings)})"


def _how(settings: Settings) -> str:
    typed = not settings.sources["flush"].startswith("auto:")
    return "--flush never" if typed else "--flush auto found no need: see --flush always"
