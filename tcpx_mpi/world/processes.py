"""Processes of all ranks: the state of those on this node, read from the kernel."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A rank's process; `where` is equal for those that see each other by their numbers."""

    where: str
    pid: int


def own_process(node: str) -> Process:
    """This one, on the node of that identity. Containers of a node have numbers of their own."""
    return Process(f"{node}/{os.stat('/proc/self/ns/pid').st_ino}", os.getpid())


def state_of(pid: int) -> str:
    """The state of a process of our namespace, one letter as in /proc/PID/stat; "" if it is gone.

    Dead and not yet buried (Z, X) counts as gone. "?" where this process cannot look, as without a
    descriptor left: then nothing is known of that one.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError:
        return "?"
    return stat.rpartition(")")[2].split()[0].strip("ZX")
