"""The suites of `make test SUITE=NAME`: what each is, what it runs, and what it needs.

python tests/suites.py         the list of them
python tests/suites.py NAME    runs one
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import needs
from needs import (
    COMPILER,
    MPIRUN,
    NAMESPACES,
    PACKAGE_INDEX,
    ROOT,
    Need,
    library,
    module,
    part_of_compiler,
    program,
    programs,
)

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Suite:
    """A suite."""

    about: str
    pytest: tuple[str, ...] = ()  # its arguments; paths are below tests/
    script: tuple[str, ...] = ()  # in place of pytest
    environ: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()


def _sanitized(sanitizer: str, runtime: str) -> Suite:
    return Suite(
        f"native code, contract and runs under the {sanitizer} sanitizer: minutes",
        ("-o", "faulthandler_timeout=600", "sanitizers/under_sanitizer.py"),
        environ={"SANITIZER": sanitizer, "TCPX_MPI_REQUIRE": "mpi,compiler,sanitizer"},
        needs=(
            program("g++", "apt-get install g++"),
            part_of_compiler("g++", runtime, "apt-get install g++, a release that has it"),
            MPIRUN,
        ),
    )


_APT = "apt-get install --no-install-recommends"
_DRIVER = library("libcuda.so.1", "it comes with the driver of a GPU")
_CUPY = module("cupy", "make test SUITE=gpu installs the one that fits the driver")
#: Folders with tests that are marked so and that no suite of their own runs.
_VARIANTS = (
    "mpi", "cluster", "unit", "refplugin", "smoke", "gpu", "softtcpx", "library", "preflight",
    "jobs", "fuzz", "faults", "benchmarks",
)  # fmt: skip
#: Of tests/nccl.
_OVER_NCCL = ("over_softtcpx", "several_peers", "in_place", "under_tap")
#: Of tests/cluster.
_CLUSTER = programs("ip tc ss unshare nsenter mount bash", f"{_APT} iproute2 util-linux")
#: Of tests/faults: interfaces, rules of packets, sockets that are cut; a disk of FUSE, a freezer.
_FAULTS = (
    *programs("ip ss unshare mount", f"{_APT} iproute2 util-linux"),
    program("nft", f"{_APT} nftables"),
    needs.writable("/dev/fuse", "modprobe fuse", "/dev/fuse"),
    needs.writable(
        "a cgroup of version 2",
        "run it as root, in a container with --privileged",
        *(f"/sys/fs/cgroup/{name}cgroup.procs" for name in ("", "unified/")),
    ),
)

SUITES = {
    "unit": Suite("the tests that start no MPI and build nothing", ("unit",)),
    "native": Suite(
        "the native tests, those of kernels as on a GPU, too",
        ("-m", "variant or not variant", "native"),
        environ={"TCPX_MPI_REQUIRE": "compiler"},
        needs=(COMPILER,),
    ),
    "mpi": Suite(
        "runs of several ranks on this machine",
        ("mpi",),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
        needs=(MPIRUN,),
    ),
    "conform": Suite(
        "`conform` over softtcpx and faulty plugins, each fault against every clause: 2 minutes",
        ("-m", "variant or not variant", "conform"),
        environ={"TCPX_MPI_REQUIRE": "compiler"},
        needs=(COMPILER,),
    ),
    "variants": Suite(
        "other ways to the same lines (marked so): 20 minutes",
        ("-m", "variant", *_VARIANTS),
        environ={"TCPX_MPI_REQUIRE": "mpi,netns,compiler"},
        needs=(MPIRUN, COMPILER, ROOT, NAMESPACES, *_CLUSTER, *_FAULTS),
    ),
    "faults": Suite(
        "17 faults in 14 phases of a run, both launchers: ends by code, words, time: 30 minutes",
        ("-n", "4", "faults/all_cells.py", "faults/other_commands.py", "faults/sessions.py"),
        environ={"TCPX_MPI_REQUIRE": "mpi,netns,compiler"},
        needs=(MPIRUN, COMPILER, ROOT, NAMESPACES, *_FAULTS),
    ),
    "tune": Suite(
        "tune by launches: equal settings recommend nothing, a planted one is found (TIMES=20)",
        ("-n", "0", "tune/by_launches.py"),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
        needs=(MPIRUN,),
    ),
    "clocks": Suite(
        "clocks that lie and are days apart, over a slow relay: 4 minutes, on an idle machine",
        ("-s", "-n", "0", "-o", "faulthandler_timeout=600", "clock/by_namespaces.py"),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
        needs=(MPIRUN, ROOT, *programs("unshare", f"{_APT} util-linux")),
    ),
    "qualify": Suite(
        "qualify over two nodes: each fault is named, and where there is none nobody (TIMES=n)",
        ("cluster/qualify_faults.py",),
        environ={"TCPX_MPI_REQUIRE": "mpi,netns"},
        needs=(MPIRUN, ROOT, NAMESPACES, *_FAULTS[:5]),
    ),
    "soak": Suite(
        "patterns with random faults, memory and descriptors flat (SOAK=20m, SEED=1)",
        script=("faults/soak.py", os.environ.get("SOAK", "20m"), os.environ.get("SEED", "1")),
        needs=(MPIRUN, COMPILER, ROOT, NAMESPACES, *_FAULTS),
    ),
    "mutants": Suite(
        "broken copies of the sources, all of which must be caught",
        ("-m", "variant or not variant", "-o", "faulthandler_timeout=700", "mutants"),
        environ={"TCPX_MPI_REQUIRE": "mpi,compiler"},
        needs=(MPIRUN, COMPILER),
    ),
    "browser": Suite(
        "the HTML report in a real browser",
        ("-m", "variant or not variant", "browser"),
        environ={"TCPX_MPI_REQUIRE": "chromium"},
        needs=(program("chromium|chromium-browser|google-chrome", "apt-get install chromium"),),
    ),
    "gpu": Suite(
        "everything in the memory of this machine's GPUs (no network: WHEELHOUSE=DIR)",
        (
            "-m",
            "variant or not variant",
            "-p",
            "no:benchmark",
            "-n",
            "4",
            "gpu",
            "softtcpx/test_softtcpx_gpu*.py",
        ),
        # softtcpx's contract on the machine's own driver.
        environ={"TCPX_MPI_REQUIRE": "gpu,mpi,compiler", "TCPX_MPI_LIBCUDA": "libcuda.so.1"},
        needs=(_DRIVER, _CUPY, MPIRUN, COMPILER),
    ),
    "abi": Suite(
        "every pattern and clause by every version of softtcpx's table: 30 minutes",
        (
            "-m",
            "variant or not variant",
            "abi/every_version.py",
            "abi/conform_in_full.py",
            "conform/test_conform_lawful.py",
        ),
        environ={"TCPX_MPI_REQUIRE": "mpi,compiler"},
        needs=(MPIRUN, COMPILER),
    ),
    "tap": Suite(
        "`conform` of each plugin of the tests and each planted fault, with and without the tap: "
        "20 minutes",
        (
            *("-m", "variant or not variant", "-o", "faulthandler_timeout=3000"),
            *("tap/test_*.py", "tap/conform_under_tap.py"),
        ),
        environ={"TCPX_MPI_REQUIRE": "compiler"},
        needs=(COMPILER,),
    ),
    "nccl": Suite(
        "NCCL over softtcpx on this machine's GPUs, 2 to 4 ranks, every byte checked: 2 minutes",
        ("-p", "no:benchmark", *(f"nccl/{name}.py" for name in _OVER_NCCL)),
        environ={"TCPX_MPI_REQUIRE": "gpu,nccl"},
        needs=(_DRIVER, _CUPY),
    ),
    "mpis": Suite(
        "runs over Open MPI 4.1 and MPICH, unpacked in build/mpis: 2 minutes",
        ("mpis/matrix.py",),
        environ={"TCPX_MPI_REQUIRE": "mpis,netns"},
        needs=(
            *programs("apt-get dpkg", "Debian's packages are used, so Debian or its like"),
            needs.answers(
                "Debian's packages openmpi-bin and mpich",
                "apt-get update",
                *("apt-get", "install", "-s", "--no-install-recommends", "openmpi-bin", "mpich"),
            ),
            MPIRUN,
            ROOT,
            NAMESPACES,
            *_CLUSTER,
        ),
    ),
    "collectives": Suite(
        "every program of nccl-tests, all forms, 2, 3, 4 and 8 ranks: an hour",
        ("collectives/all_programs.py",),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
        needs=(MPIRUN,),
    ),
    "slurm": Suite(
        "the jobs under a real Slurm of two nodes on this machine",
        ("slurm/under_slurm.py", "slurm/qualified_nodes.py"),
        environ={"TCPX_MPI_REQUIRE": "mpi,slurm,pmix"},
        needs=(
            *programs("slurmctld slurmd sbatch srun scontrol scancel", f"{_APT} slurm-wlm"),
            program("munged", f"{_APT} munge"),
            # Slurm loads it by this name when a job asks for PMIx.
            library("libpmix.so", f"{_APT} libpmix-dev"),
            MPIRUN,
        ),
    ),
    "pods": Suite(
        "two pods of a real podman on this machine, by a launch agent",
        ("pods/in_pods.py",),
        environ={"TCPX_MPI_REQUIRE": "mpi,pods"},
        needs=(
            *(
                program(name, f"{_APT} {name}")
                for name in ("podman", "runc", "netavark", "aardvark-dns", "catatonit", "iptables")
            ),
            MPIRUN,
            ROOT,
            NAMESPACES,
        ),
    ),
    "docs": Suite(
        "every command of docs/ that needs neither a cluster nor a GPU: 5 minutes",
        ("-o", "faulthandler_timeout=1200", "docs/commands_run.py"),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
        needs=(MPIRUN, program("bash", f"{_APT} bash")),
    ),
    "roots": Suite(
        "README word for word on fresh Debian 12 and 13, as an ordinary user: 10 minutes, as root",
        ("-s", "-o", "faulthandler_timeout=2400", "roots/fresh_roots.py"),
        needs=(
            program("debootstrap", f"{_APT} debootstrap"),
            program("git", f"{_APT} git"),
            ROOT,
            NAMESPACES,
            needs.page(
                "http://deb.debian.org/debian/dists/trixie/Release", "it is debootstrap's mirror"
            ),
        ),
    ),
    "nixl": Suite(
        "the backend in NIXL 1.0, 1.3 and 1.5, wheels of 339 MB each, kept in build/nixl",
        ("library/nixl/wheels.py",),
        environ={"TCPX_MPI_REQUIRE": "nixl"},
        needs=(needs.fetched_or(TESTS.parent / "build" / "nixl", PACKAGE_INDEX),),
    ),
    "wheel": Suite(
        "make wheel, and each of what it made in an empty environment: 10 minutes, a package index",
        # The first test makes them.
        (
            *("-o", "timeout=2400", "-o", "faulthandler_timeout=2400"),
            "wheel/in_empty_venv.py",
        ),
        needs=(COMPILER, program("make", f"{_APT} make"), PACKAGE_INDEX),
    ),
    "asan": _sanitized("address", "libasan.so"),
    "tsan": _sanitized("thread", "libtsan.so"),
    "fuzz": Suite(
        "10^6 inputs for each parser of softtcpx and of NIXL's stream (FUZZ_RUNS=1000000)",
        script=("fuzz/fuzz.py", os.environ.get("FUZZ_RUNS", "1000000")),
        needs=(
            program("clang++", f"{_APT} clang"),
            part_of_compiler(
                "clang++",
                f"libclang_rt.fuzzer-{os.uname().machine}.a",
                f"{_APT} libclang-rt-14-dev, the number being that of clang",
            ),
        ),
    ),
    "fuzz-readers": Suite(
        "10,000 mutants of each kind of file that is read (FUZZ_RUNS=10000): an hour",
        script=("fuzz/readers/fuzz_readers.py", os.environ.get("FUZZ_RUNS", "10000")),
    ),
}


def command_of(suite: Suite) -> list[str]:
    """The command of a suite, by this Python."""
    if suite.script:
        script, *arguments = suite.script
        return [sys.executable, str(TESTS / script), *arguments]
    return [
        sys.executable,
        "-m",
        "pytest",
        *(part for each in suite.pytest for part in _paths(each)),
    ]


def path_of_suites() -> str:
    """The PATH that a suite runs with: this Python's programs first, an administrator's last."""
    beside = str(Path(sys.executable).parent)
    return os.pathsep.join([beside, os.environ.get("PATH", os.defpath), *needs.SBIN])


def missing(suite: Suite) -> list[Need]:
    """What a suite needs and is not here."""
    path = path_of_suites()
    return [need for need in suite.needs if not need.is_here(path)]


def main(argv: list[str]) -> int:
    """Runs a suite, or lists them; the exit code."""
    if not argv:
        print("\n".join(f"  SUITE={name:8} {suite.about}" for name, suite in SUITES.items()))
        return 0
    suite = SUITES.get(argv[0])
    if suite is None:
        print(f"SUITE={argv[0]} is none of {', '.join(SUITES)}", file=sys.stderr)
        return 2
    if lacking := missing(suite):
        for need in lacking:
            print(f"SUITE={argv[0]} needs {need.what}: {need.get}", file=sys.stderr)
        return 2
    environ = {**os.environ, **suite.environ, "PATH": path_of_suites()}
    return subprocess.run(command_of(suite), env=environ, cwd=TESTS.parent).returncode


def _paths(argument: str) -> list[str]:
    """What a path below tests/ stands for; other arguments stay as they are."""
    return sorted(str(path) for path in TESTS.glob(argument)) or [argument]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
