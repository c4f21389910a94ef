"""What of NCCL can be reached from Python on this machine, step by step: `python nccl_probe.py`.

Prints a line for each step and needs nothing of this repository, so that it can be run before
anything is built. It also times NCCL between two processes over TCP, which share a GPU where there
is only one.

    python tests/gpu/nccl_probe.py            what can be imported, then one message
    python tests/gpu/nccl_probe.py --import   only what can be imported
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import importlib
import importlib.metadata
import multiprocessing
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

#: As the peer has it (`tcpx_mpi.baselines.nccl.presets`), and as NCCL has it by itself.
SOCKETS_ONLY = {
    "NCCL_NET_PLUGIN": "none",
    "NCCL_NET": "Socket",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
}
TUNED = {
    "NCCL_NSOCKS_PERTHREAD": "2",
    "NCCL_SOCKET_NTHREADS": "4",
    "NCCL_MIN_NCHANNELS": "8",
    "NCCL_MAX_NCHANNELS": "8",
    "NCCL_MIN_P2P_NCHANNELS": "8",
    "NCCL_MAX_P2P_NCHANNELS": "8",
    "NCCL_P2P_NET_CHUNKSIZE": "1048576",
    "NCCL_BUFFSIZE": "16777216",
}
SIZES = (8192, 1 << 20, 64 << 20)
ROUNDS = 20
PATIENCE_S = 60.0


def say(what: str, step: Callable[[], Any]) -> Any:
    """Runs one step and prints how it went; None where it failed."""
    try:
        found = step()
    except Exception as error:
        print(f"{what:<34} FAILED {type(error).__name__}: {error}", flush=True)
        return None
    print(f"{what:<34} {found}", flush=True)
    return found


def package(name: str) -> str:
    return f"{name} {importlib.metadata.version(name)}"


def libraries() -> list[str]:
    """Files libnccl.so.2 below the folders from which Python imports."""
    places = [f"{folder}/nvidia/nccl/lib/libnccl.so*" for folder in sys.path]
    return sorted({found for place in places for found in glob.glob(place)})


def by_ctypes() -> str:
    """The version that the loader's own libnccl.so.2 says, or the first one of a wheel."""
    errors = []
    for name in ["libnccl.so.2", *libraries()]:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            errors.append(str(error))
            continue
        version = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(version))
        return f"{version.value} from {name}"
    raise OSError("; ".join(errors))


def imports() -> int:
    """Everything that can be said without a second GPU; the number of GPUs."""
    say("python", lambda: f"{platform.python_version()} {sys.executable}")
    for name in ("cupy-cuda12x", "cupy-cuda13x", "nccl4py", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
                 "cuda-pathfinder", "torch"):  # fmt: skip
        say(f"package {name}", lambda name=name: package(name))
    say("files of libnccl", libraries)
    say("libnccl by ctypes", by_ctypes)
    say("import nccl.core", lambda: importlib.import_module("nccl.core").__file__)
    cupy = say("import cupy", lambda: importlib.import_module("cupy"))
    if cupy is None:
        return 0
    nccl = say("import cupy.cuda.nccl", lambda: importlib.import_module("cupy.cuda.nccl"))
    say("cupy.cuda.nccl.available", lambda: nccl.available)
    say("NCCL that CuPy was built for", lambda: nccl.get_build_version())
    say("NCCL that CuPy runs", lambda: nccl.get_version())
    say("NCCL in this process", mapped_nccl)
    say("methods of NcclCommunicator", lambda: methods(nccl.NcclCommunicator))
    say("unique id", lambda: len(nccl.get_unique_id()))
    say("driver, runtime", lambda: (cupy.cuda.runtime.driverGetVersion(),
                                    cupy.cuda.runtime.runtimeGetVersion()))  # fmt: skip
    return say("GPUs", lambda: cupy.cuda.runtime.getDeviceCount()) or 0


def mapped_nccl() -> list[str]:
    """The files of NCCL that this process has mapped."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libnccl" in line})


def methods(kind: Any) -> str:
    return " ".join(name for name in dir(kind) if not name.startswith("_"))


def timed(rank: int, gpu: int, environment: dict[str, str], identity: Any, results: Any) -> None:
    """One of two processes: rank 0 sends, rank 1 receives, with and without an event a message."""
    os.environ.update(environment)
    if gpu != rank:
        os.environ["NCCL_HOSTID"] = "another"  # it takes a GPU of a host once
    import cupy
    from cupy.cuda import nccl

    with cupy.cuda.Device(gpu):
        if rank == 0:
            unique = nccl.get_unique_id()
            identity.put(unique)
            identity.put(unique)  # each of the two takes one
        comm = nccl.NcclCommunicator(2, identity.get(timeout=PATIENCE_S), rank)
        stream = cupy.cuda.Stream(non_blocking=True)
        memory = cupy.zeros(SIZES[-1], dtype=cupy.uint8)
        call = comm.send if rank == 0 else comm.recv
        cupy.cuda.Device(gpu).synchronize()
        for size in SIZES:
            for events in (False, True, False, True):
                marks = [cupy.cuda.Event() for _ in range(ROUNDS)]
                for measured in (False, True):
                    start = time.perf_counter()
                    cpu = time.process_time()
                    for mark in marks:
                        nccl.groupStart()
                        call(memory.data.ptr, size, nccl.NCCL_UINT8, 1 - rank, stream.ptr)
                        nccl.groupEnd()
                        if events:
                            mark.record(stream)
                    launched = time.perf_counter()
                    marks[-1].record(stream)
                    while not marks[-1].done:
                        pass
                    took, cpu = time.perf_counter() - start, time.process_time() - cpu
                    if measured and rank == 1:
                        results.put(
                            f"{size:>9} B, events {events!s:<5}: {1e6 * took / ROUNDS:9.1f} us "
                            f"({1e6 * (launched - start) / ROUNDS:.1f} us to launch), "
                            f"{size * ROUNDS / took / 1e9:6.2f} GB/s, "
                            f"{cpu / (size * ROUNDS / 1e9):.3f} CPU s/GB"
                        )
        time.sleep(0.2)  # what still spins shows itself
        before = time.process_time()
        time.sleep(0.5)
        idle = (time.process_time() - before) / 0.5
        results.put(f"rank {rank}: {100 * idle:.2f} % of a CPU while idle")
        results.put(None)
        comm.destroy()


def pair(name: str, gpus: int, environment: dict[str, str]) -> None:
    """Two processes, a GPU each where there are two."""
    context = multiprocessing.get_context("spawn")
    identity, results = context.Queue(), context.Queue()
    ranks = [
        context.Process(
            target=timed, args=(rank, rank % gpus, environment, identity, results), daemon=True
        )
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    try:
        left = len(ranks)
        while left:
            line = results.get(timeout=PATIENCE_S)
            left -= line is None
            if line is not None:
                print(f"{name:<8} {line}", flush=True)
    except Exception:
        traceback.print_exc()
        print(f"{name:<8} FAILED, exit codes {[process.exitcode for process in ranks]}")
    finally:
        for process in ranks:
            process.join(5)
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--import", dest="only_import", action="store_true")
    arguments = parser.parse_args()
    gpus = imports()
    if arguments.only_import:
        return
    if not gpus:
        print("needs gpu: to send a message")
        return
    pair("default", gpus, SOCKETS_ONLY)
    pair("tuned", gpus, {**SOCKETS_ONLY, **TUNED})


if __name__ == "__main__":
    main()
