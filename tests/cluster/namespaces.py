"""Network namespaces by iproute2, and the processes in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


class NoCluster(Exception):
    """This machine or this user cannot have a cluster, or has it already."""


@dataclass(frozen=True)
class Process:
    """A process that no other one is taken for: `start` is in clock ticks since boot."""

    pid: int
    start: int

    @staticmethod
    def of(pid: int) -> Process:
        """Raises OSError where there is none, or one that has ended and is not waited for."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] == "Z":
            raise ProcessLookupError(f"process {pid} has ended")
        return Process(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        try:
            return Process.of(self.pid) == self
        except OSError:
            return False


def ip(*words: str) -> str:
    """Runs iproute2's `ip` and returns what it prints. Raises NoCluster."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoCluster(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def wait_for_carrier(space: str, interface: str) -> None:
    """A veth runs a little after both its ends are up; until then it is no interface to use."""
    deadline = time.monotonic() + 10
    while "LOWER_UP" not in ip("-n", space, "-o", "link", "show", interface):
        if time.monotonic() > deadline:
            raise NoCluster(f"{interface} of {space} does not come up")
        time.sleep(0.005)  # a poll with a deadline: carrier comes late


def end_processes(space: str) -> None:
    """Kills all that runs in a network namespace; it is gone when this returns."""
    while True:
        listed = subprocess.run(
            ["ip", "netns", "pids", space], capture_output=True, text=True, check=False
        )
        pids = [int(pid) for pid in listed.stdout.split()]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)  # the kernel ends them in its own time
