"""Devices of a plugin, read once and checked: it may answer anything, and differently later."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.plugin.trial import MOST_DEVICES

#: Of a name; those of the kernel's interfaces have 15, and a fused device has several.
_LONGEST_NAME = 200


def read_devices(handle: Any) -> tuple[list[_native.DeviceProperties], list[str]]:
    """The properties of every device, and what is wrong with them, one text each.

    A name that is none is replaced by the device's number. Raises SetupFailed for a number of
    devices that cannot be, PluginError if the plugin refuses.
    """
    count = handle.devices()
    if not 0 <= count <= MOST_DEVICES:
        raise SetupFailed(
            f"the plugin says that it has {count} devices, where 0 to {MOST_DEVICES} can be: is it "
            "built for this version of the table (--abi)?"
        )
    nics, findings = [], []
    for device in range(count):
        nic, again = handle.properties(device), handle.properties(device)
        for what, problem in _problems(nic, again):
            findings.append(f"device {device}: {problem}")
            if what == "name":
                nic["name"] = f"device{device}"
            elif what == "pci_path":
                nic["pci_path"] = ""
        nics.append(nic)
    return nics, findings


def _problems(
    nic: _native.DeviceProperties, again: _native.DeviceProperties
) -> list[tuple[str, str]]:
    """(field, what is wrong with it); `again` is what the plugin says when it is asked again."""
    found = []
    if problem := _problem_of_text(nic["name"], again["name"], is_name=True):
        found.append(("name", f"its name {problem}: its number is used"))
    if problem := _problem_of_text(nic["pci_path"], again["pci_path"], is_name=False):
        found.append(("pci_path", f"its pciPath {problem}: none is used"))
    for field, count in (("maxComms", nic["max_comms"]), ("maxRecvs", nic["max_recvs"])):
        if count < 1:
            found.append((field, f"its {field} is {count}, where 1 or more can be"))
    if nic["speed_mbps"] < 0:
        found.append(("speed_mbps", f"its speed is {nic['speed_mbps']} Mb/s"))
    if not (math.isfinite(nic["latency_us"]) and nic["latency_us"] >= 0):
        found.append(("latency_us", f"its latency is {nic['latency_us']:g} us"))
    return found


def _problem_of_text(text: str, again: str, is_name: bool) -> str:
    r"""The problem of a text, in which other bytes are written \xNN; "": it is one."""
    if is_name and not text:
        return "is empty or NULL"
    if text != again:
        return f'changes from "{text}" to "{again}"'
    if "\\x" in text:
        return f'is no printable text, "{text}"'
    if is_name and (len(text) > _LONGEST_NAME or "/" in text):
        return f'is none of an interface, "{text}"'
    return ""


def names_of(nics: Sequence[_native.DeviceProperties]) -> list[str]:
    """Their names."""
    return [nic["name"] for nic in nics]
