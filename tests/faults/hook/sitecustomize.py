"""In PYTHONPATH of ranks: a fault at a phase of which no plugin knows (`tests/faults/plant.py`).

PLANT_PHASE and PLANT_RANK say where, PLANT_DO what: as in `tests/refplugin/planted.cc`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
from types import ModuleType

#: Phase -> the module and function whose how many-th call it is, and whether the fault comes when
#: that returns.
CALLS = {
    "start": ("tcpx_mpi.launch.watch", "begin", 1, False),
    "MPI_Init": ("tcpx_mpi.launch.watch", "waits_for_mpi", 1, True),
    "between": ("tcpx_mpi.run.measure", "Measurement.measure", 2, False),
    "writing": ("tcpx_mpi.run.recorder", "Output.row", 2, False),
    "report": ("tcpx_mpi.run.recorder", "Output.end", 1, False),
}
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def act(what: str) -> None:
    path = os.environ["PLANT_WAIT"]
    open(f"{path}.at", "a").close()
    if what in SIGNALS:
        os.kill(os.getpid(), SIGNALS[what])
    elif what == "exit":
        ctypes.CDLL(None).exit(0)  # as a library does
    elif what == "abort":
        os.abort()
    elif what == "throw":
        raise KeyError("unforeseen")
    elif what == "memory":
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), most))
    elif what == "wait":
        while not os.path.exists(f"{path}.go"):
            time.sleep(0.002)  # a poll: the rank is held here until the fault is there


class Finder(importlib.abc.MetaPathFinder):
    """Puts the fault into a module when that has been read."""

    def __init__(self, name: str, function: str, number: int, after: bool) -> None:
        self.name, self.function, self.left, self.after = name, function, number, after

    def find_spec(
        self, name: str, path: object, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        read = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            read(module)
            self.put_into(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def put_into(self, module: ModuleType) -> None:
        owner: object = module
        *path, last = self.function.split(".")
        for part in path:
            owner = getattr(owner, part)
        real = getattr(owner, last)

        @functools.wraps(real)
        def call(*arguments: object, **named: object) -> object:
            self.left -= 1
            if self.left == 0 and not self.after:
                act(os.environ["PLANT_DO"])
            value = real(*arguments, **named)
            if self.left == 0 and self.after:
                act(os.environ["PLANT_DO"])
            return value

        setattr(owner, last, call)


phase = os.environ.get("PLANT_PHASE", "")
its_rank = os.environ.get("PLANT_RANK") == os.environ.get("OMPI_COMM_WORLD_RANK", "none")
if phase and its_rank and "tcpx_mpi" in sys.orig_argv:
    if phase == "finalize":  # behind all that this program does, and before MPI_Finalize
        atexit.register(act, os.environ["PLANT_DO"])
    else:
        sys.meta_path.insert(0, Finder(*CALLS[phase]))
