"""The place in which a rank's work was seen: CPUs of its threads, counters of its NIC. What was
asked for is in the settings; this is what happened, so that the two can be held against each other.

Read before and after each batch, never within one; what the whole node had, at the row's ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.records import ObservedPlacement

_NIC_COUNTERS = {
    "nic_sent": ("tx_bytes",),
    "nic_received": ("rx_bytes",),
    "nic_packets": ("tx_packets", "rx_packets"),
    "nic_drops": ("tx_dropped", "rx_dropped", "tx_errors", "rx_errors"),
}

#: The numbers of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. Those of guests
#: are in the first two already.
_IDLE = (3, 4)
_STEAL = 7
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

#: What is looked for stands nearer to the beginning of every file that is read here.
_LONGEST_BYTES = 1 << 16


@dataclass(frozen=True)
class ThreadState:
    """A thread at one instant; -1 if the kernel does not say, 0 run time if it is gone."""

    cpu: int
    run_ns: int
    migrations: int
    preemptions: int


def thread_ids() -> frozenset[int]:
    """The threads of this process."""
    return frozenset(map(int, os.listdir("/proc/self/task")))


class Kernel:
    """The kernel's word on threads of this process and on network interfaces.

    It makes the texts anew for every read; opened once for all, they take a fifth of the time.
    """

    def __init__(
        self,
        tasks: str = "/proc/self/task",
        nics: str = "/sys/class/net",
        stat: str = "/proc/stat",
    ) -> None:
        self._tasks, self._nics, self._stat = tasks, nics, stat
        self._descriptors: dict[str, int] = {}

    def thread(self, thread: int) -> ThreadState:
        folder = f"{self._tasks}/{thread}"
        # The name in parentheses may hold anything; the CPU is the 37th word behind it.
        words = self._text(f"{folder}/stat").rpartition(")")[2].split()
        schedule = dict(
            line.replace(" ", "").split(":", 1)
            for line in self._text(f"{folder}/sched").splitlines()
            if ":" in line
        )
        run = self._text(f"{folder}/schedstat").split()
        return ThreadState(
            cpu=int(words[36]) if len(words) > 36 else -1,
            run_ns=int(run[0]) if run else 0,
            migrations=int(schedule.get("se.nr_migrations", -1)),
            preemptions=int(schedule.get("nr_involuntary_switches", -1)),
        )

    def nic(self, interface: str) -> dict[str, int]:
        """Counters of a network interface, by field of `ObservedPlacement`; -1 unknown."""
        folder = f"{self._nics}/{interface}/statistics"
        found = {}
        for name, files in _NIC_COUNTERS.items():
            texts = [self._text(f"{folder}/{file}") for file in files]
            found[name] = sum(map(int, texts)) if interface and all(texts) else -1
        return found

    def node(self) -> dict[str, int]:
        """CPU time of the node since its start, by field of `ObservedPlacement`; -1 unknown."""
        words = self._text(self._stat).partition("\n")[0].split()[1 : _STEAL + 2]
        ticks = [int(word) for word in words]
        if len(ticks) <= _STEAL:
            return {"node_wanted_ns": -1, "node_stolen_ns": -1}
        wanted = sum(ticks) - sum(ticks[place] for place in _IDLE)
        return {"node_wanted_ns": wanted * _TICK_NS, "node_stolen_ns": ticks[_STEAL] * _TICK_NS}

    def close(self) -> None:
        """Closes the files; asked again, it opens them again."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _text(self, path: str) -> str:
        """A file's text now; "" if it cannot be read, or is gone."""
        try:
            if path not in self._descriptors:
                self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptors[path], _LONGEST_BYTES, 0).decode().strip()
        except OSError:
            return ""


def process_cpu_ns(process: int) -> int:
    """CPU time of all threads of a process; -1 if the kernel does not say, or it is gone."""
    # Made of a process as clock_getcpuclockid does it: its scheduled time.
    clock = (~process << 3) | 2
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return -1


class PlacementObserver:
    """Watches one rank's batches of a row, from now on; `seen` is what it saw in all of them.

    `waiting`: processes that have nothing to do in these batches.
    """

    def __init__(
        self,
        timed_loop: Any,
        plugin_threads: Collection[int],
        interface: str,
        kernel: Kernel | None = None,
        waiting: Sequence[int] = (),
    ) -> None:
        self._loop = timed_loop
        self._kernel = kernel or Kernel()
        self._waiting = waiting
        self._plugin_threads = sorted(plugin_threads)
        self._interface = interface
        self._loop_cpus: set[int] = set()
        self._plugin_cpus: set[int] = set()
        self._counted: dict[str, int] = {}
        self._rtt_us = -1
        self._node = self._kernel.node()

    def before(self) -> None:
        """A batch is about to run."""
        self._threads = self._states()
        self._nic = self._kernel.nic(self._interface)
        self._waiting_ns = self._waiting_cpu()

    def after(self, sockets: _native.SocketTotals) -> None:
        """The batch is over."""
        self._loop_cpus.update(self._loop.cpus_seen())
        before, now = self._threads, self._states()
        own = self._loop.thread_id()
        self._count("driver_migrations", before[own].migrations, now[own].migrations)
        self._count("driver_preemptions", before[own].preemptions, now[own].preemptions)
        for thread in self._plugin_threads:
            if now[thread].run_ns > before[thread].run_ns:
                self._plugin_cpus.add(now[thread].cpu)
            self._count("plugin_migrations", before[thread].migrations, now[thread].migrations)
        for name, value in self._kernel.nic(self._interface).items():
            self._count(name, self._nic[name], value)
        for used, now_used in zip(self._waiting_ns, self._waiting_cpu(), strict=True):
            self._count("waiting_cpu_ns", used, now_used)
        self._rtt_us = max(self._rtt_us, sockets["rtt_us"] or -1)

    def seen(self, remote_bytes: int) -> ObservedPlacement:
        """All batches together, once they are over; `remote_bytes` is the payload exchanged with
        other nodes."""
        for name, value in self._kernel.node().items():
            self._count(name, self._node[name], value)
        self._kernel.close()
        return ObservedPlacement(
            driver_cpus=cpu_list_text(tuple(self._loop_cpus)),
            plugin_threads=len(self._plugin_threads),
            plugin_cpus=cpu_list_text(tuple(self._plugin_cpus)),
            remote_bytes=remote_bytes,
            rtt_us=self._rtt_us,
            **self._counted,
        )

    def _waiting_cpu(self) -> list[int]:
        return [process_cpu_ns(process) for process in self._waiting]

    def _states(self) -> dict[int, ThreadState]:
        threads = [self._loop.thread_id(), *self._plugin_threads]
        return {thread: self._kernel.thread(thread) for thread in threads}

    def _count(self, name: str, before: int, now: int) -> None:
        known = before >= 0 and now >= before and self._counted.get(name, 0) >= 0
        self._counted[name] = self._counted.get(name, 0) + now - before if known else -1
