"""The speed of runs in GPUs' memory on this machine, beside NCCL: one file a row of figures.

    bench.py FOLDER [NAME ...]      (all of LINES; those of FOUR where there are 4 GPUs)

Two ranks on a GPU each, or on the only one, and four on a GPU each, over loopback, with every
default; a line that fails does not keep the others from being measured, and decides the exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tcpx_mpi import _native

#: Long enough for the clocks of a GPU to settle, and for an interval of the ratio.
LARGE = ("-b", "64M", "-e", "64M", "-n", "160", "-w", "20", "--check-memory", "4G")
SMALL = ("-b", "8K", "-e", "8K", "-n", "4000", "-w", "400")
NCCL = ("--against", "nccl")
MIDDLE = ("-b", "64K", "-e", "16M", "-f", "2", "-n", "200", "-w", "20", "--check-memory", "2G")
LAUNCHES = ("--runs", "3")
LINES: dict[str, tuple[str, ...]] = {
    "pair-64M": ("pair", *LARGE, *NCCL, *LAUNCHES),
    "ring-64M": ("ring", *LARGE, *NCCL, *LAUNCHES),
    "pair-8K": ("pair", *SMALL, *NCCL, *LAUNCHES),
    "pingpong-8K": ("pingpong", *SMALL, *LAUNCHES),
    "pair-middle": ("pair", *MIDDLE, *NCCL, *LAUNCHES),
    "ring-middle": ("ring", *MIDDLE, *NCCL, *LAUNCHES),
    "pair-sizes": ("pair", "-b", "8", "-e", "256M", "-f", "4", "-n", "40", "-w", "5",
                   "--check-memory", "4G"),
}  # fmt: skip
#: Lines of four ranks, which have a GPU each or are not measured.
FOUR = {
    "ring-64M-4": ("ring", *LARGE, *NCCL),
    "mesh-64M-4": ("mesh", *LARGE, *NCCL),
    "alltoall-64M-4": ("alltoall", *LARGE, *NCCL),
    "all_reduce-64M-4": ("all_reduce", *LARGE, *NCCL),
    "fan_in-64M-4": ("fan_in", *LARGE),
    "pairs-64M-4": ("pairs", "--all", *LARGE),
}
LINES |= FOUR
LIMIT_S = 300


def main(folder: str, *names: str) -> int:
    unknown = [name for name in names if name not in LINES]
    if unknown:
        print(f"no line {', '.join(unknown)}: there are {', '.join(LINES)}", file=sys.stderr)
        return 2
    try:
        gpus = len(_native.cuda_devices())
    except _native.CudaUnavailable as error:
        print(f"found no GPU ({error}): install its driver, or use `make bench`", file=sys.stderr)
        return 2
    without = [name for name in FOUR if gpus < 4]
    refused = [name for name in names if name in without]
    if refused:
        print(
            f"{', '.join(refused)}: 4 GPUs needed, {gpus} found; name other lines", file=sys.stderr
        )
        return 2
    results = Path(folder)
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"no folder {folder} for results: {error.strerror}", file=sys.stderr)
        return 2
    try:
        measured = names or [name for name in LINES if name not in without]
        codes = [_measured(results, name, gpus) for name in measured]
    except KeyboardInterrupt:
        return 130
    return next(filter(None, codes), 0)


def _measured(results: Path, name: str, gpus: int) -> int:
    ranks = 4 if name in FOUR else 2
    pattern, *options = LINES[name]
    sharing = ("--share-gpu",) if gpus < ranks else ()
    command = [sys.executable, "-m", "tcpx_mpi", "run", pattern, "--ranks", str(ranks), *sharing,
               "--memory", "cuda", "--plugin", "softtcpx", "--hdf5", str(results / f"{name}.h5"),
               *options]  # fmt: skip
    print("$", " ".join(["tcpx-mpi", *command[3:]]), flush=True)
    # Loopback, so that a machine with other networks measures the same as one without.
    environ = {"NCCL_SOCKET_IFNAME": "lo", **os.environ}
    with subprocess.Popen(command, env=environ) as run:
        try:
            return run.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"{name}: still running after {LIMIT_S} s", file=sys.stderr)
            run.send_signal(signal.SIGINT)  # it keeps what it has, and leaves nothing behind
            run.wait()
            return 6
        except KeyboardInterrupt:
            run.wait()  # it was interrupted, too
            raise


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("usage: bench.py FOLDER [NAME ...]", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
