"""What is read of threads and NICs around a batch, and how it adds up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tcpx_mpi.transport.observed_placement import (
    Kernel,
    PlacementObserver,
    process_cpu_ns,
    thread_ids,
)

STAT = "7 (a name) with) S 1 " + " ".join(["0"] * 34) + " 5 0 0"


def thread_folder(root: Path, thread: int, cpu: int = 5, run_ns: int = 100, moves: int = 3) -> None:
    folder = root / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    fields = STAT.split(" ")
    fields[-3] = str(cpu)
    (folder / "stat").write_text(" ".join(fields))
    (folder / "schedstat").write_text(f"{run_ns} 2 3\n")
    (folder / "sched").write_text(
        f"x (7, #threads: 2)\n---\nse.nr_migrations   :  {moves}\nnr_involuntary_switches  : 4\n"
    )


def nic_folder(root: Path, sent: int, received: int, dropped: int = 0) -> None:
    folder = root / "eth1" / "statistics"
    folder.mkdir(parents=True, exist_ok=True)
    values = {"tx_bytes": sent, "rx_bytes": received, "tx_packets": 2, "rx_packets": 3}
    values |= {"tx_dropped": dropped, "rx_dropped": 1, "tx_errors": 2, "rx_errors": 3}
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


def test_a_thread_is_read_whatever_its_name(tmp_path: Path) -> None:
    thread_folder(tmp_path, 7)
    found = Kernel(tasks=str(tmp_path)).thread(7)
    assert (found.cpu, found.run_ns, found.migrations, found.preemptions) == (5, 100, 3, 4)


def test_a_thread_that_is_gone_is_unknown(tmp_path: Path) -> None:
    found = Kernel(tasks=str(tmp_path)).thread(7)
    assert (found.cpu, found.run_ns, found.migrations, found.preemptions) == (-1, 0, -1, -1)


def test_the_kernel_itself_is_understood() -> None:
    found = Kernel().thread(threading.get_native_id())
    assert found.cpu in os.sched_getaffinity(0) | set(range(os.cpu_count() or 1))
    assert found.run_ns > 0
    assert threading.get_native_id() in thread_ids()


def test_counters_of_a_nic(tmp_path: Path) -> None:
    nic_folder(tmp_path, sent=10, received=20, dropped=4)
    assert Kernel(nics=str(tmp_path)).nic("eth1") == {
        "nic_sent": 10, "nic_received": 20, "nic_packets": 5, "nic_drops": 10,
    }  # fmt: skip
    assert set(Kernel(nics=str(tmp_path)).nic("eth2").values()) == {-1}
    assert set(Kernel(nics=str(tmp_path)).nic("").values()) == {-1}


def test_a_file_is_opened_once_and_read_anew(tmp_path: Path) -> None:
    kernel = Kernel(tasks=str(tmp_path))
    assert kernel.thread(7).cpu == -1  # not there yet
    opened = len(os.listdir("/proc/self/fd"))
    for cpu in (2, 3):
        thread_folder(tmp_path, 7, cpu=cpu)
        assert kernel.thread(7).cpu == cpu
    assert len(os.listdir("/proc/self/fd")) == opened + 3
    kernel.close()
    assert len(os.listdir("/proc/self/fd")) == opened


def test_a_thread_that_ends_while_it_is_watched_is_unknown() -> None:
    kernel, done = Kernel(), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert thread.native_id is not None
    assert kernel.thread(thread.native_id).cpu >= 0
    done.set()
    thread.join()
    while thread.native_id in thread_ids():
        pass  # the kernel ends it in its own time
    found = kernel.thread(thread.native_id)
    assert (found.cpu, found.run_ns, found.migrations) == (-1, 0, -1)
    kernel.close()


class Loop:
    """Thread 7, seen on another CPU in each batch."""

    def __init__(self) -> None:
        self.batches = iter([[0], [2, 3]])

    def thread_id(self) -> int:
        return 7

    def cpus_seen(self) -> list[int]:
        return next(self.batches)


def test_batches_add_up(tmp_path: Path) -> None:
    threads, nics = tmp_path / "task", tmp_path / "net"
    thread_folder(threads, 7)
    thread_folder(threads, 8, cpu=1)  # busy
    thread_folder(threads, 9, cpu=6)  # asleep: where it last ran says nothing
    nic_folder(nics, 0, 0)
    observer = PlacementObserver(Loop(), [8, 9], "eth1", Kernel(str(threads), str(nics)))
    for number in (1, 2):
        observer.before()
        thread_folder(threads, 7, moves=3 + number)
        thread_folder(threads, 8, cpu=number, run_ns=100 + number, moves=3 + 2 * number)
        nic_folder(nics, sent=100 * number, received=10 * number)
        observer.after({"rtt_us": 40 - number})
    seen = observer.seen(remote_bytes=123)
    assert (seen.driver_cpus, seen.driver_migrations, seen.driver_preemptions) == ("0,2-3", 2, 0)
    assert (seen.plugin_threads, seen.plugin_cpus, seen.plugin_migrations) == (2, "1-2", 4)
    assert (seen.nic_sent, seen.nic_received, seen.nic_packets, seen.nic_drops) == (200, 20, 0, 0)
    assert (seen.remote_bytes, seen.rtt_us) == (123, 39)


def test_processes_that_wait_are_watched_with_all_their_threads() -> None:
    code = (
        "import sys, threading, time\n"
        "def burn():\n"
        "    until = time.thread_time() + 0.02\n"
        "    while time.thread_time() < until: pass\n"
        "for line in sys.stdin:\n"
        "    thread = threading.Thread(target=burn)\n"
        "    thread.start(), thread.join()\n"
        "    print(flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        observer = PlacementObserver(Loop(), [], "", waiting=[child.pid])
        before = process_cpu_ns(child.pid)
        observer.before()
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        observer.after({"rtt_us": 0})
        used = process_cpu_ns(child.pid) - before
        assert 20_000_000 <= observer.seen(0).waiting_cpu_ns <= used
        child.kill()
    assert process_cpu_ns(child.pid) == -1
    assert PlacementObserver(Loop(), [], "").seen(0).waiting_cpu_ns == -1


NODE = "cpu  {0} 10 20 {1} {2} 1 2 {3} 7 8\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1 2 3\n"


def test_what_a_hypervisor_gave_to_others_is_a_part_of_what_the_node_wanted(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(NODE.format(100, 5000, 400, 3))
    observer = PlacementObserver(Loop(), [], "", Kernel(str(tmp_path), str(tmp_path), str(stat)))
    stat.write_text(NODE.format(150, 9000, 490, 13))  # idle: nobody's; guests': user's
    seen = observer.seen(0)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert (seen.node_wanted_ns, seen.node_stolen_ns) == (60 * tick_ns, 10 * tick_ns)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7 8\n"])
def test_a_kernel_that_says_nothing_of_stolen_time_leaves_it_unknown(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "stat").write_text(text)
    kernel = Kernel(str(tmp_path), str(tmp_path), str(tmp_path / "stat"))
    assert set(kernel.node().values()) == {-1}
    seen = PlacementObserver(Loop(), [], "", kernel).seen(0)
    assert (seen.node_wanted_ns, seen.node_stolen_ns) == (-1, -1)


def test_this_node_wanted_what_this_thread_used() -> None:
    if Kernel().node()["node_wanted_ns"] <= 0:
        pytest.skip("needs proc-stat: this kernel counts no CPU time of the node")
    observer = PlacementObserver(Loop(), [], "")
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    seen = observer.seen(0)
    assert seen.node_wanted_ns >= 50_000_000  # ticks of 10 ms
    assert 0 <= seen.node_stolen_ns <= seen.node_wanted_ns


def test_a_counter_that_began_anew_is_unknown(tmp_path: Path) -> None:
    nic_folder(tmp_path, 500, 5)
    observer = PlacementObserver(Loop(), [], "eth1", Kernel(str(tmp_path), str(tmp_path)))
    observer.before()
    nic_folder(tmp_path, 2, 7)
    observer.after({"rtt_us": 0})
    seen = observer.seen(0)
    assert (seen.nic_sent, seen.nic_received) == (-1, 2)


def test_what_was_unknown_once_stays_unknown(tmp_path: Path) -> None:
    observer = PlacementObserver(Loop(), [], "eth1", Kernel(str(tmp_path), str(tmp_path)))
    observer.before()
    thread_folder(tmp_path, 7)
    nic_folder(tmp_path, 5, 5)
    observer.after({"rtt_us": 0})
    observer.before()
    thread_folder(tmp_path, 7, moves=9)
    nic_folder(tmp_path, 9, 9)
    observer.after({"rtt_us": 0})
    seen = observer.seen(0)
    assert (seen.driver_migrations, seen.nic_sent, seen.rtt_us) == (-1, -1, -1)
