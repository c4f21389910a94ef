"""How a fault is put into a run: by the plugin or a hook of Python in the rank itself, or from
outside while the rank is held in its phase. In namespaces of the cell's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fault_matrix import PLUGIN_CALL, STALL_S, Cell
from fuse_disk import FuseDisk
from jobs import Job

from tcpx_mpi.plugin.find import bundled_dir

HOOK = Path(__file__).parent / "hook"
INTERFACE, ADDRESS = "eth1", "10.9.1.1"
DISK_BYTES = 16 << 20
#: What a rank does by itself, by the names of `planted.cc` and of the hook.
_ITSELF = {"kill": "kill", "stop": "stop", "exit": "exit", "abort": "abort", "hang": "hang",
           "hang all": "hang", "exception": "throw", "memory": "memory"}  # fmt: skip
#: Where a call is not the first of its kind: that of the second row's middle, of any pattern.
_AT = {"mid-row": "{mid_row}"}


def environment(cell: Cell, place: Path, mid_row: int) -> dict[str, str]:
    """What plants the fault, or holds its rank."""
    found = {
        "PLANT_REAL": os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"),
        "PLANT_DO": _ITSELF.get(cell.fault, "wait"),
        "PLANT_WAIT": str(place / "fault"),
        "NCCL_SOCKET_IFNAME": INTERFACE,
    }
    if cell.fault != "hang all":
        found["PLANT_RANK"] = str(cell.rank)
    if cell.phase in PLUGIN_CALL:
        found["PLANT_CALL"] = PLUGIN_CALL[cell.phase]
        found["PLANT_AT"] = str(mid_row if cell.phase == "mid-row" else 1)
    else:
        found["PLANT_PHASE"] = cell.phase
        found["PYTHONPATH"] = str(HOOK)
    return found


class Ground:
    """The namespaces of a cell: an interface, a disk at `disk`, and what can befall them."""

    def __init__(self, cell: Cell, place: Path) -> None:
        self._cell, self._place = cell, place
        self.disk = place / "disk"
        self.disk.mkdir()
        _run(f"ip link set lo up && ip link add {INTERFACE} type veth peer name cable && "
             f"ip addr add {ADDRESS}/24 dev {INTERFACE} && ip link set {INTERFACE} up && "
             "ip link set cable up && mount -t tmpfs tests /dev/shm")  # fmt: skip
        self._fuse: FuseDisk | None = None
        if cell.fault in ("disk hangs", "EIO"):
            self._fuse = FuseDisk(self.disk)
        else:
            _run(f"mount -t tmpfs -o size={DISK_BYTES} tests {self.disk}")

    def befall(self, job: Job) -> float:
        """Put the fault into a run that gets there; when that was."""
        at, go = self._place / "fault.at", self._place / "fault.go"
        _until(at.exists, f"rank in {self._cell.phase}", job)
        if self._cell.fault not in _ITSELF:
            self._faults()[self._cell.fault](job)
            if self._cell.fault not in ("term", "int"):
                go.touch()
        return at.stat().st_mtime

    def recover(self) -> None:
        """Let the disk be read again."""
        if self._fuse is not None:
            self._fuse.begin("")

    def _faults(self) -> dict[str, Callable[[Job], None]]:
        fuse = self._fuse
        return {
            "term": lambda job: job.send(signal.SIGTERM),
            "int": lambda job: job.send(signal.SIGINT),
            "cut": lambda _: _run(f"ss -KntH src {ADDRESS}"),
            "link": lambda _: _run(f"ip addr flush dev {INTERFACE}"),
            "loss": lambda _: _run(f"nft 'add table inet fault; add chain inet fault in "
                                   f"{{ type filter hook input priority 0; }}; "
                                   f"add rule inet fault in ip daddr {ADDRESS} drop'"),
            "full": lambda _: self._fill(),
            "disk hangs": lambda _: fuse and fuse.begin("hang"),
            "EIO": lambda _: fuse and fuse.begin("EIO"),
            "freezer": _freeze,
        }  # fmt: skip

    def _fill(self) -> None:
        with open(self.disk / "filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return


def _freeze(job: Job) -> None:
    """All that the job is, by a cgroup, for longer than its deadlines."""
    root = Path("/sys/fs/cgroup/unified")
    group = (
        root if root.is_dir() else root.parent
    ) / f"tcpx-mpi-tests-{os.stat('/proc/self/ns/pid').st_ino}"
    group.mkdir()
    try:
        for pid in job.processes():
            (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.freeze").write_text("1")
        time.sleep(STALL_S + 1)  # what is tested is that time goes by
        (group / "cgroup.freeze").write_text("0")
        for pid in job.processes():
            (group.parent / "cgroup.procs").write_text(str(pid))
    finally:
        while (group / "cgroup.procs").read_text():
            time.sleep(0.005)  # a poll: they end in their own time
        group.rmdir()


def _run(command: str) -> None:
    subprocess.run(command, shell=True, check=True, capture_output=True)


def _until(condition: Callable[[], bool], what: str, job: Job) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert not job.has_ended() or condition(), f"ended before there was a {what}"
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.005)  # a poll with a deadline
