"""GPU facts of a row: each rank's GPU before and after, and its unpack time."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class GpuState:
    """A GPU at one instant; -1 is unknown."""

    sm_mhz: int = -1
    memory_mhz: int = -1
    temperature_c: int = -1
    power_mw: int = -1
    #: NVML's bits, `THROTTLES` among them.
    throttle_reasons: int = -1


@dataclass(frozen=True)
class GpuRow:
    """A rank's GPU in a row: before the first timed batch and after the last; -1 is unknown."""

    sm_mhz_before: int = -1
    sm_mhz_after: int = -1
    memory_mhz_before: int = -1
    memory_mhz_after: int = -1
    temperature_c_before: int = -1
    temperature_c_after: int = -1
    power_mw_before: int = -1
    power_mw_after: int = -1
    throttle_reasons_before: int = -1
    throttle_reasons_after: int = -1
    #: The GPU's own time for the unpacks of one untimed batch, by its events, and how many bytes
    #: and launches that were.
    unpack_gpu_ns: int = -1
    unpack_bytes: int = -1
    unpack_launches: int = -1


#: NVML's reasons that make a GPU slower than it was asked to be. Being idle, and clocks that an
#: administrator has set, are others.
THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}


#: Of these, the one that is usual under load: it was chosen, as clocks are.
POWER_CAP = THROTTLES[0x04]


def throttled(reasons: int) -> list[str]:
    """The reasons that slow a GPU down, in words; nothing if that is unknown."""
    return [word for bit, word in THROTTLES.items() if reasons > 0 and reasons & bit]


def gpu_row(before: GpuState, after: GpuState, **unpack: int) -> GpuRow:
    """The row of a GPU out of its two states and its time for the unpack, where that is known."""
    states = {
        f"{item.name}_{when}": getattr(state, item.name)
        for when, state in (("before", before), ("after", after))
        for item in fields(GpuState)
    }
    return GpuRow(**states, **unpack)
