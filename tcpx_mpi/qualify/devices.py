"""The NICs and GPUs that ranks of a run drive, and what is said against each. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NIC, GPU = "NIC", "GPU"
#: Before the rank that drives it.
_OF_A_GPU = "the GPU of "


@dataclass(frozen=True)
class Device:
    """One of a node, and the ranks that drive it."""

    node: str
    kind: str
    #: Of a NIC; of a GPU its number.
    name: str
    ranks: tuple[int, ...]

    @property
    def shown(self) -> str:
        return f"{self.kind} {self.name}"


def devices_of(events: Sequence[Mapping[str, Any]]) -> list[Device]:
    """Those of a run, by what it told of its ranks; none if it did not come so far."""
    header: Mapping[str, Any] = next((each for each in events if each["event"] == "header"), {})
    ranks: dict[tuple[str, str, str], list[int]] = {}
    for each in header.get("config", {}).get("devices", ()):
        names = {NIC: each["nic"], GPU: "" if each["gpu"] is None else str(each["gpu"])}
        for kind, name in names.items():
            if name:
                ranks.setdefault((each["hostname"], kind, name), []).append(each["rank"])
    return [Device(*key, tuple(of_device)) for key, of_device in ranks.items()]


def is_against(device: Device, text: str) -> bool:
    """Whether a finding is about this very device."""
    if device.kind == NIC:
        return bool(re.search(rf"{device.shown} of {re.escape(device.node)}(?![\w#-])", text))
    return any(text.startswith(_OF_A_GPU + each) for each in _ranks(device))


def is_suspect(device: Device, text: str) -> bool:
    """Whether a finding is about a rank that drives it, and may be its doing."""
    known = text.startswith(_OF_A_GPU)  # a rank stands there for its GPU
    return not known and any(each in text for each in _ranks(device))


def _ranks(device: Device) -> list[str]:
    """The ranks as findings name them: a rank's place is behind its name."""
    return [f"rank {rank} on {device.node} (" for rank in device.ranks]
