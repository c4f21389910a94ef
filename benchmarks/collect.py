"""Measures every figure of docs/performance.md on this machine and keeps the results as evidence.

Usage: python benchmarks/collect.py [NAME ...] [--list]     (all, or those named)

Figures go to docs/evidence/measured.json with the command and its values; `page.py --write` then
puts them into the page. The files that the quickstart shows are kept whole
(the same samples, compressed).
Wants an idle machine, and iperf3.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil

from tcpx_mpi.launch import mpirun as launch
from tcpx_mpi.records import SideKey, read_run
from tcpx_mpi.report import summarise_row
from tcpx_mpi.stats.ratios import strongest

REPOSITORY = Path(__file__).resolve().parents[1]
EVIDENCE = REPOSITORY / "docs" / "evidence"
NATIVE = REPOSITORY / "build" / "benchmarks"
LAUNCHES = 3

_ONE = "--channels 1 --plugin softtcpx"
#: Name of the file -> the arguments of `tcpx-mpi run`.
RUNS = {
    "pair-1MiB": f"pair --ranks 2 -b 1M -e 1M -n 480 -w 60 {_ONE} --against raw,mpi",
    "pair-64MiB": f"pair --ranks 2 -b 64M -e 64M -n 48 -w 6 {_ONE} --against raw,mpi",
    "pingpong-8B": f"pingpong --ranks 2 -b 8 -e 8 -n 800 -w 400 {_ONE} --against raw,mpi",
    "ring-1MiB": f"ring --ranks 4 -b 1M -e 1M -n 160 -w 20 {_ONE} --against raw",
    "mesh-1MiB": f"mesh --ranks 8 -b 1M -e 1M -n 48 -w 8 {_ONE} --against raw",
    "emulated-1MiB": f"pair --ranks 2 -b 1M -e 1M -n 480 -w 60 {_ONE} --memory emulated "
    "--against raw",
}
#: The run whose report the quickstart shows.
SHOWN = "pair-1MiB"
#: Of the report in the main README, and of the picture in the quickstart, which has the median of
#: several launches.
RING = "ring --ranks 2 --plugin softtcpx --sizes 4K,16K,64K,256K,1M,4M,16M -n 64 --against raw"
OF_PICTURE = "ring --ranks 2 --plugin softtcpx --sizes 4K,64K,1M,16M -n 64 --against raw --runs 7"
#: Name -> pattern and size of ours; pattern, bytes, iterations and slots of mpi_pingpong.
#: A stream's slots are, as ours, twice the last-level cache of most machines.
BESIDE_MPI_IN_C = {
    "pingpong-8B": ("pingpong", "8", "pingpong 8 3200 400"),
    "pair-1MiB": ("pair", "1M", "stream 1048576 480 60"),
}


def collect_run(name: str) -> None:
    """Several launches of one run: its figures, and those of its peers."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        for number in range(LAUNCHES):
            result = os.path.join(place, f"{number}.h5")
            run_once(RUNS[name], result, place)
            if name == SHOWN and number == 0:
                compress(Path(result), EVIDENCE / f"{name}.0.h5", place)
            run = read_run(result)
            row = summarise_row(run.header, run.rows[-1])
            if row.wrong_found:
                sys.exit(f"collect: {name}: {row.wrong_found} wrong bytes")
            raw = [each.name for each in run.header.baselines if each.kind == "raw"]
            best = strongest(row.ratios, raw)
            assert best is not None
            own = row.ratios[SideKey("raw")]
            figures = {"": own.ours, ":raw": own.theirs, ":to-raw": own.ratio,
                       ":to-best-raw": best.ratio}  # fmt: skip
            if SideKey("mpi") in row.ratios:
                figures[":to-mpi4py"] = row.ratios[SideKey("mpi")].ratio
            for what, value in figures.items():
                found.setdefault(what, []).append(value)
    unit = "us" if name.startswith("pingpong") else "GB/s"
    notes = {"": "", ":raw": "raw TCP, equal streams", ":to-raw": "ratio to raw TCP, equal streams",
             ":to-best-raw": "ratio to raw TCP at its best",
             ":to-mpi4py": "ratio to MPI, called from Python"}  # fmt: skip
    for what, values in found.items():
        keep(f"{name}{what}", f"tcpx-mpi run {RUNS[name]}", "x" if ":to-" in what else unit, values,
             notes[what])  # fmt: skip


def collect_ring() -> None:
    """The run that the main README shows."""
    keep_run(RING, EVIDENCE / "ring.h5")


def collect_picture() -> None:
    """The launches that `benchmarks/README.md` draws."""
    keep_run(OF_PICTURE, EVIDENCE / "ring-launches.h5")


def keep_run(arguments: str, kept: Path) -> None:
    """One `tcpx-mpi run`, and its file."""
    with tempfile.TemporaryDirectory() as place:
        result = os.path.join(place, "run.h5")
        run_once(arguments, result, place)
        compress(Path(result), kept, place)


def run_once(arguments: str, result: str, place: str) -> None:
    """One launch of `tcpx-mpi run` in the folder `place`."""
    command = [*_tcpx_mpi(), "run", *arguments.split(), "--hdf5", result]
    subprocess.run(command, check=True, cwd=place, stdout=subprocess.DEVNULL)


def compress(source: Path, target: Path, place: str) -> None:
    """The same file with compressed datasets; target is replaced.

    Paths lose what is before this repository, and before the directory `place` of the run.
    """

    def local(value: Any) -> Any:
        if isinstance(value, bytes):
            return local(value.decode()).encode()
        if isinstance(value, str):
            for folder in (str(REPOSITORY), place):
                value = value.replace(f"{folder}/", "").replace(folder, ".")
            return value
        return value

    target.unlink(missing_ok=True)
    # The formats of HDF5 1.10, which every h5py reads, take half the room of the first ones.
    with h5py.File(source, "r") as old, h5py.File(target, "w", libver=("v110", "v110")) as new:
        new.attrs.update({name: local(value) for name, value in old.attrs.items()})

        def copy(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Group):
                made = new.require_group(name)
            else:
                data = item[()]
                for column in data.dtype.names or ():
                    if data.dtype[column].kind == "O":
                        data[column] = [local(value) for value in data[column]]
                if data.dtype.kind == "O":
                    data = np.array([local(value) for value in data], dtype=object)
                small = item.size < 64 or item.dtype.kind in "OV"
                filters = {} if small else {"compression": "gzip", "shuffle": True}
                made = new.create_dataset(name, data=data, dtype=item.dtype, **filters)
            made.attrs.update({name: local(value) for name, value in item.attrs.items()})

        old.visititems(copy)


def collect_ceiling() -> None:
    """raw TCP from one buffer in turns with iperf3 -l 1M on the loopback interface."""
    iperf3 = "iperf3 -c 127.0.0.1 -p {port} -C cubic -l 1M -w 4M -t 2 -J"
    ceiling = [*_tcpx_mpi(), "selftest", "--ceilings", "--interface", "lo"]
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(2 * LAUNCHES - 1):
        port = 5300 + number
        with subprocess.Popen(["iperf3", "-s", "-1", "-p", str(port)], stdout=subprocess.DEVNULL):
            time.sleep(0.5)  # iperf3 does not say when it listens
            done = subprocess.run(
                iperf3.format(port=port).split(), check=True, capture_output=True, text=True
            )
        theirs.append(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8e9)
        text = subprocess.run(ceiling, check=True, capture_output=True, text=True).stdout
        found = re.findall(r"raw TCP, same buffer +1 MiB +\d +([\d.]+) GB/s", text)
        ours.append(max(map(float, found)))
    command = "tcpx-mpi selftest --ceilings --interface lo"
    keep("raw-in-cache", command, "GB/s", ours, "best of 1, 2, 4 streams")
    keep("iperf3", iperf3.format(port="PORT"), "GB/s", theirs, "in turns with raw-in-cache")


def collect_mpi_in_c() -> None:
    """Ours and a program in C over MPI's TCP, launched in turns: ours, C, C, ours, ..."""
    with tempfile.TemporaryDirectory() as place:
        program = mpi_in_c(Path(place))
        for name, (pattern, size, theirs) in BESIDE_MPI_IN_C.items():
            ours = f"run {pattern} --ranks 2 -b {size} -e {size} -n 480 -w 60 {_ONE} --hdf5 none"
            unit = "us" if pattern == "pingpong" else "GB/s"
            found: dict[str, list[float]] = {"ours": [], "mpi": []}
            for number in range(2 * LAUNCHES):
                for side in ("ours", "mpi") if number % 2 == 0 else ("mpi", "ours"):
                    if side == "ours":
                        file = Path(place) / f"{name}.{number}.json"
                        subprocess.run(
                            [*_tcpx_mpi(), *ours.split(), "-J", str(file)],
                            check=True, cwd=place, stdout=subprocess.DEVNULL,
                        )  # fmt: skip
                        us = json.loads(file.read_text())["results"][0]["out_of_place"]["time"]
                    else:
                        us = statistics.mean(run_mpi_in_c(program, theirs)["ns"]) / 1e3
                    figure = us if unit == "us" else (1 << 20) / us / 1e3
                    found[side].append(figure)
            note = "Open MPI over TCP (tcp,self), cubic, by a program in C"
            keep(f"mpi-in-C-{name}", f"mpi_pingpong {theirs} cubic", unit, found["mpi"], note)
            keep(f"beside-it-{name}", f"tcpx-mpi {ours}", unit, found["ours"], "in turns with it")


def mpi_in_c(folder: Path) -> Path:
    """The program, compiled for the MPI that runs are started with."""
    compiler = Path(launch.find_mpirun(os.environ)).with_name("mpicc")
    if not compiler.exists():
        sys.exit(f"collect: mpi-in-c needs mpicc beside mpirun, found no {compiler}")
    program = folder / "mpi_pingpong"
    source = Path(__file__).with_name("mpi_pingpong.c")
    subprocess.run([compiler, "-O2", source, "-o", program], check=True)
    return program


def run_mpi_in_c(program: Path, arguments: str, congestion: str = "cubic") -> dict[str, Any]:
    """One launch on two ranks that spin, over TCP alone: what it says of itself."""
    environ = {
        **launch.mpirun_environment(os.environ, is_root=os.geteuid() == 0),
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_mpi_yield_when_idle": "0",
    }
    mpirun = [launch.find_mpirun(os.environ), "--bind-to", "none", "-n", "2", str(program)]
    done = subprocess.run(
        [*mpirun, *arguments.split(), congestion],
        check=True, capture_output=True, text=True, env=environ,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    if found["wrong"] or not found["sockets"]:
        sys.exit(f"collect: mpi_pingpong {arguments}: {done.stdout}")
    return found


def collect_startup() -> None:
    """From mpirun to the first timed iteration."""
    arguments = ["run", "pair", "--plugin", "softtcpx", "-b", "1K", "-e", "1K", "--hdf5"]
    seconds = []
    for _ in range(7):
        with tempfile.TemporaryDirectory() as place:
            result = os.path.join(place, "run.h5")
            command = [launch.find_mpirun(os.environ), "-n", "2", *_tcpx_mpi(), *arguments, result]
            begin = time.monotonic_ns()
            subprocess.run(
                command, check=True, cwd=place, stdout=subprocess.DEVNULL,
                env=launch.mpirun_environment(os.environ, is_root=os.geteuid() == 0),
            )  # fmt: skip
            first = int(read_run(result).rows[0].batch_start.min())
            seconds.append((first - begin) / 1e9)
    keep("startup", "mpirun -n 2 tcpx-mpi run pair --plugin softtcpx -b 1K -e 1K", "s", seconds, "")


def collect_engine() -> None:
    """ns a chunk over the null plugin."""
    texts = [_native("bench_engine", "libnccl-net-null.so") for _ in range(5)]
    for label in ("independent", "dependent"):
        found = [
            float(value) for text in texts for value in re.findall(rf"\b{label} ([\d.]+) ns", text)
        ]
        keep(f"engine-{label}", "bench_engine libnccl-net-null.so", "ns a chunk", found, "")


def collect_unpack() -> None:
    """The CPU unpack reference beside memcpy of the same fragments."""
    texts = [_native("bench_unpack") for _ in range(3)]
    for label, size in (("page", 1), ("mss", 1), ("page", 64), ("mss", 64)):
        pattern = rf"{label} +{size} MiB: reference +([\d.]+) .*ratios ([\d.]+)"
        found = [match for text in texts for match in re.findall(pattern, text)]
        where = "in" if size == 1 else "out of"
        note = f"fragments as in {label} mode, {where} the cache"
        name = f"unpack-{label}-{size}MiB"
        keep(name, "bench_unpack", "of memcpy", [float(ratio) for _, ratio in found], note)


def collect_cluster() -> None:
    """Two nodes on this machine, 2 x 2 ranks, 1 MiB messages."""
    speed = [sys.executable, str(REPOSITORY / "benchmarks" / "cluster_speed.py"), "--json"]
    text = subprocess.run(speed, check=True, capture_output=True, text=True).stdout
    notes = {"raw": "ratio to raw over the same veths, equal streams", "4-NICs": "4 NICs beside 1"}
    for name, values in json.loads(text.splitlines()[-1]).items():
        note = next(
            (note for end, note in notes.items() if name.endswith(end)), "launch to first row"
        )
        unit = "s" if name == "cluster-first-row" else "x"
        keep(name, "benchmarks/cluster_speed.py", unit, values, note)


def collect_mesh_of_64() -> None:
    """64 ranks on this machine, from start to footer."""
    arguments = "run mesh --ranks 64 --plugin softtcpx -b 64K -e 64K -n 5 --hdf5 none"
    seconds = []
    for _ in range(2):
        begin = time.monotonic()
        subprocess.run(
            [*_tcpx_mpi(), *arguments.split()], check=True, stdout=subprocess.DEVNULL, cwd="/tmp"
        )
        seconds.append(time.monotonic() - begin)
    keep("mesh-64-ranks", f"tcpx-mpi {arguments}", "s", seconds, "8064 connections, checked")


def keep(name: str, command: str, unit: str, values: Iterable[float], note: str) -> None:
    """One figure into measured.json: all its values."""
    path = EVIDENCE / "measured.json"
    everything = json.loads(path.read_text()) if path.exists() else {}
    everything[name] = {
        "command": command,
        "unit": unit,
        "values": [float(f"{value:.4g}") for value in values],
        "note": note,
        "busy_percent": _busy_percent,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }
    path.write_text(json.dumps(dict(sorted(everything.items())), indent=1) + "\n")
    print(name, everything[name]["values"], flush=True)


def _native(program: str, *plugins: str) -> str:
    """What a program of benchmarks/native printed; it is built first if it must be."""
    cmake: list[list[str | Path]] = [
        ["cmake", "-S", REPOSITORY / "native", "-B", NATIVE, "-DTCPX_MPI_BENCHMARKS=ON"],
        ["cmake", "--build", NATIVE, "--target", program],
    ]
    for command in cmake:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = [NATIVE / "benchmarks" / program, *(NATIVE / plugin for plugin in plugins)]
    return subprocess.run(found, check=True, capture_output=True, text=True).stdout


def _tcpx_mpi() -> list[str]:
    return [sys.executable, "-m", "tcpx_mpi"]


COLLECTORS: dict[str, Callable[[], None]] = {
    **{name: lambda name=name: collect_run(name) for name in RUNS},  # type: ignore[misc]  # a default of a lambda
    "ring": collect_ring,
    "picture": collect_picture,
    "mpi-in-C": collect_mpi_in_c,
    "ceiling": collect_ceiling,
    "startup": collect_startup,
    "engine": collect_engine,
    "unpack": collect_unpack,
    "mesh-64-ranks": collect_mesh_of_64,
    "cluster": collect_cluster,
}


#: Of what is being collected, before it began.
_busy_percent = 0


def main() -> None:
    global _busy_percent
    if "--list" in sys.argv:
        print("\n".join(COLLECTORS))
        return
    asked = sys.argv[1:] or list(COLLECTORS)
    if unknown := [name for name in asked if name not in COLLECTORS]:
        print(f"no collector {unknown[0]!r}: one of {', '.join(COLLECTORS)}", file=sys.stderr)
        sys.exit(2)
    for name in asked:
        _busy_percent = round(psutil.cpu_percent(interval=1.0))
        COLLECTORS[name]()


if __name__ == "__main__":
    main()
