"""Where a rank's work was seen: CPUs of its threads, counters of its NIC. What was asked for is in
the settings; this is what happened, so that the two can be held against each other.

Read before and after each batch, never within one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.records import Proof

_NIC_COUNTERS = {
    "nic_sent": ("tx_bytes",),
    "nic_received": ("rx_bytes",),
    "nic_packets": ("tx_packets", "rx_packets"),
    "nic_drops": ("tx_dropped", "rx_dropped", "tx_errors", "rx_errors"),
}


@dataclass(frozen=True)
class ThreadState:
    """A thread at one instant; -1 where the kernel does not say, 0 run time if it is gone."""

    cpu: int
    run_ns: int
    migrations: int
    preemptions: int


def thread_ids() -> frozenset[int]:
    """The threads of this process."""
    return frozenset(map(int, os.listdir("/proc/self/task")))


def thread_state(thread: int, root: str = "/proc/self/task") -> ThreadState:
    """What the kernel says of a thread of this process."""
    folder = f"{root}/{thread}"
    # The name in parentheses may hold anything; the CPU is the 37th word behind it.
    words = _read(f"{folder}/stat").rpartition(")")[2].split()
    schedule = dict(
        line.replace(" ", "").split(":", 1)
        for line in _read(f"{folder}/sched").splitlines()
        if ":" in line
    )
    run = _read(f"{folder}/schedstat").split()
    return ThreadState(
        cpu=int(words[36]) if len(words) > 36 else -1,
        run_ns=int(run[0]) if run else 0,
        migrations=int(schedule.get("se.nr_migrations", -1)),
        preemptions=int(schedule.get("nr_involuntary_switches", -1)),
    )


def nic_counters(interface: str, root: str = "/sys/class/net") -> dict[str, int]:
    """Counters of a network interface by the name of their field in `Proof`; -1 unknown."""
    folder = f"{root}/{interface}/statistics"
    found = {}
    for name, files in _NIC_COUNTERS.items():
        texts = [_read(f"{folder}/{file}") for file in files]
        found[name] = sum(map(int, texts)) if interface and all(texts) else -1
    return found


def process_cpu_ns(process: int) -> int:
    """CPU time of all threads of a process; -1 where the kernel does not say, or it is gone."""
    # Made of a process as clock_getcpuclockid does it: its scheduled time.
    clock = (~process << 3) | 2
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return -1


class Witness:
    """Watches one rank's batches of a row; `proof` is what it saw in all of them.

    `waiting`: processes that have nothing to do in these batches.
    """

    def __init__(
        self,
        driver: Any,
        plugin_threads: Collection[int],
        interface: str,
        waiting: Sequence[int] = (),
    ) -> None:
        self._driver = driver
        self._waiting = waiting
        self._plugin_threads = sorted(plugin_threads)
        self._interface = interface
        self._driver_cpus: set[int] = set()
        self._plugin_cpus: set[int] = set()
        self._counted: dict[str, int] = {}
        self._rtt_us = -1

    def before(self) -> None:
        """A batch is about to run."""
        self._threads = self._states()
        self._nic = nic_counters(self._interface)
        self._waiting_ns = self._waiting_cpu()

    def after(self, sockets: Mapping[str, Any]) -> None:
        """The batch is over."""
        self._driver_cpus.update(self._driver.cpus_seen())
        before, now = self._threads, self._states()
        own = self._driver.thread_id()
        self._count("driver_migrations", before[own].migrations, now[own].migrations)
        self._count("driver_preemptions", before[own].preemptions, now[own].preemptions)
        for thread in self._plugin_threads:
            if now[thread].run_ns > before[thread].run_ns:
                self._plugin_cpus.add(now[thread].cpu)
            self._count("plugin_migrations", before[thread].migrations, now[thread].migrations)
        for name, value in nic_counters(self._interface).items():
            self._count(name, self._nic[name], value)
        for used, now_used in zip(self._waiting_ns, self._waiting_cpu(), strict=True):
            self._count("waiting_cpu_ns", used, now_used)
        self._rtt_us = max(self._rtt_us, int(sockets.get("rtt_us") or -1))

    def proof(self, remote_bytes: int) -> Proof:
        """All batches together; `remote_bytes` is the payload exchanged with other nodes."""
        return Proof(
            driver_cpus=cpu_list_text(tuple(self._driver_cpus)),
            plugin_threads=len(self._plugin_threads),
            plugin_cpus=cpu_list_text(tuple(self._plugin_cpus)),
            remote_bytes=remote_bytes,
            rtt_us=self._rtt_us,
            **self._counted,
        )

    def _waiting_cpu(self) -> list[int]:
        return [process_cpu_ns(process) for process in self._waiting]

    def _states(self) -> dict[int, ThreadState]:
        threads = [self._driver.thread_id(), *self._plugin_threads]
        return {thread: thread_state(thread) for thread in threads}

    def _count(self, name: str, before: int, now: int) -> None:
        known = before >= 0 and now >= before and self._counted.get(name, 0) >= 0
        self._counted[name] = self._counted.get(name, 0) + now - before if known else -1


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
