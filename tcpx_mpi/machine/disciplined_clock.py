"""The program that keeps this node's time, by its own word: chrony, or ptp4l with a clock of the
NIC.

A word is how far the time that it keeps is ahead of CLOCK_MONOTONIC, and a bound on that. Two nodes
with words of one kind know how their clocks stand to each other without a message between them.
Where nothing keeps the time, nothing is started: this takes a look for two programs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_S = 2.0
#: What chrony calls its source where it has none, and keeps a time of its own.
_OWN_TIME = "7F7F0101"


@dataclass(frozen=True)
class Word:
    """A program's word on this node's clock."""

    #: As findings call it: "chrony", "PTP".
    name: str
    #: Whose time it is: words of two nodes go together if this is alike.
    of: str
    #: That time less CLOCK_MONOTONIC.
    ahead_ns: int
    bound_ns: int


def word(
    devices: Path = Path("/dev"), read: Callable[[int], int] = time.clock_gettime_ns
) -> Word | None:
    """The better word that this node has; None where nobody keeps its time. `devices` is where
    clocks of NICs are, `read` the time of a clock by the kernel's number for it."""
    found = [each for each in (_of_ptp4l(devices, read), _of_chrony(read)) if each is not None]
    return min(found, key=lambda each: each.bound_ns, default=None)


def _asked(*command: str) -> str:
    """The output of a program; "" if it is not there, says that it fails, or says nothing."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def chrony_bound_ns(text: str) -> int | None:
    """The bound by `chronyc -c tracking`: CLOCK_REALTIME against the true time; None if it is not
    synchronised, or to itself alone, or this is something else.

    The bound is NTP's own: what is left to correct, half of the delay to the root, and the root's
    dispersion.
    """
    fields = text.strip().split(",")
    if len(fields) != 14 or fields[13] == "Not synchronised" or fields[0].upper() == _OWN_TIME:
        return None
    try:
        left, delay, dispersion = (abs(float(fields[at])) for at in (4, 10, 11))
    except ValueError:
        return None
    return round((left + delay / 2 + dispersion) * 1e9)


def _of_chrony(read: Callable[[int], int]) -> Word | None:
    bound = chrony_bound_ns(_asked("chronyc", "-c", "tracking"))
    if bound is None:
        return None
    ahead, width = _ahead(time.CLOCK_REALTIME, read)
    return Word("chrony", "UTC", ahead, bound + width)


def ptp_bound_ns(text: str) -> tuple[str, int] | None:
    """The bound by ptp4l's `pmc`: whose time it follows, and how far the clock of the NIC is from
    that at most; None if it follows nobody.

    Half of the round trip to the master is the path's delay, so that this is the bound, whatever
    the path is like, and the offset that is left comes on top.
    """
    told = dict(re.findall(r"^\s*(\w+)\s+(\S+)\s*$", text, re.M))
    if told.get("gmPresent") != "true":
        return None
    try:
        left = abs(float(told["offsetFromMaster"]))
        delay = abs(float(told["meanPathDelay"]))
        return told["gmIdentity"], round(left + delay)
    except (KeyError, ValueError):
        return None


def _of_ptp4l(folder: Path, read: Callable[[int], int]) -> Word | None:
    devices = sorted(folder.glob("ptp[0-9]*"))
    if not devices:
        return None
    pmc = ("pmc", "-u", "-b", "0")
    found = ptp_bound_ns(_asked(*pmc, "GET TIME_STATUS_NP", "GET CURRENT_DATA_SET"))
    # Which of several clocks is kept ptp4l does not say.
    if found is None or len(devices) > 1:
        return None
    try:
        device = os.open(devices[0], os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        ahead, width = _ahead((~device << 3) | 3, read)  # as the kernel numbers clocks of devices
    except OSError:
        return None
    finally:
        os.close(device)
    return Word("PTP", found[0], ahead, found[1] + width)


def _ahead(clock: int, read: Callable[[int], int]) -> tuple[int, int]:
    """A clock less CLOCK_MONOTONIC, and half of the time that the best of some reads took."""
    best: tuple[int, int] | None = None
    for _ in range(16):
        before = time.monotonic_ns()
        there = read(clock)
        took = time.monotonic_ns() - before
        if best is None or took < best[1]:
            best = there - before - took // 2, took
    assert best is not None
    return best[0], best[1] // 2 + 1
