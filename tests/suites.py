"""The suites of `make test SUITE=NAME`: what each is, what it runs, and what it needs.

python tests/suites.py         the list of them
python tests/suites.py NAME    runs one
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parent
#: Where Debian has programs for administrators, which may be missing in a user's PATH.
SBIN = ("/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Suite:
    """A suite; a program in `needs` has alternatives between "|"."""

    about: str
    pytest: tuple[str, ...] = ()  # its arguments; paths are below tests/
    script: tuple[str, ...] = ()  # in place of pytest
    environ: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    get: str = ""  # how to get what it needs


def _sanitized(sanitizer: str) -> Suite:
    return Suite(
        f"native code, contract and runs under the {sanitizer} sanitizer: minutes",
        ("-o", "faulthandler_timeout=600", "sanitizers/under_sanitizer.py"),
        environ={"SANITIZER": sanitizer, "TCPX_MPI_REQUIRE": "mpi,compiler,sanitizer"},
        needs=("g++",),
        get="apt-get install g++",
    )


SUITES = {
    "unit": Suite("the tests that start no MPI and build nothing", ("unit",)),
    "native": Suite(
        "the native tests, those of kernels as on a GPU, too",
        ("-m", "variant or not variant", "native"),
    ),
    "mpi": Suite("runs of several ranks on this machine", ("mpi",)),
    "conform": Suite(
        "`conform` over softtcpx and faulty plugins, each fault against every clause: 2 minutes",
        ("-m", "variant or not variant", "conform"),
    ),
    "variants": Suite(
        "other ways to the same lines: signals, odd plugins, large worlds and so on: 8 minutes",
        ("-m", "variant", "mpi", "cluster", "unit"),
    ),
    "mutants": Suite(
        "broken copies of the sources, all of which must be caught",
        ("-m", "variant or not variant", "mutants"),
    ),
    "browser": Suite(
        "the HTML report in a real browser",
        ("-m", "variant or not variant", "browser"),
        needs=("chromium|chromium-browser|google-chrome",),
        get="apt-get install chromium",
    ),
    "gpu": Suite(
        "everything in the memory of this machine's GPUs (no network: WHEELHOUSE=DIR)",
        ("-p", "no:benchmark", "-n", "4", "gpu", "contract/test_softtcpx_gpu*.py"),
        # softtcpx's contract on the machine's own driver.
        environ={"TCPX_MPI_REQUIRE": "gpu,mpi,compiler", "TCPX_MPI_LIBCUDA": "libcuda.so.1"},
    ),
    "abi": Suite(
        "every pattern, clause and contract test by every version of softtcpx's table: 20 minutes",
        (
            "-m",
            "variant or not variant",
            "abi/every_version.py",
            "abi/conform_in_full.py",
            "contract/test_contract_*.py",
            "contract/test_softtcpx_tables.py",
        ),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
    ),
    "nccl": Suite(
        "NCCL over softtcpx on this machine's GPUs, 2 to 4 ranks, every byte checked: 15 minutes",
        ("-p", "no:benchmark", "nccl/over_softtcpx.py", "nccl/several_peers.py"),
        environ={"TCPX_MPI_REQUIRE": "gpu,nccl"},
    ),
    "mpis": Suite(
        "runs over Open MPI 4.1 and MPICH, unpacked in build/mpis: 2 minutes",
        ("mpis/matrix.py",),
        environ={"TCPX_MPI_REQUIRE": "mpis"},
        needs=("apt-get", "dpkg-deb"),
        get="Debian's packages are used; on a new machine run apt-get update first",
    ),
    "collectives": Suite(
        "every program of nccl-tests, all forms, 2, 3, 4 and 8 ranks: an hour",
        ("collectives/all_programs.py",),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
    ),
    "slurm": Suite(
        "the jobs under a real Slurm of two nodes on this machine",
        ("slurm/under_slurm.py",),
        environ={"TCPX_MPI_REQUIRE": "mpi,slurm"},
        needs=("slurmctld", "munged"),
        get="apt-get install --no-install-recommends slurm-wlm munge libpmix-dev",
    ),
    "pods": Suite(
        "two pods of a real podman on this machine, by a launch agent",
        ("pods/in_pods.py",),
        environ={"TCPX_MPI_REQUIRE": "mpi,pods"},
        needs=("podman",),
        get="apt-get install --no-install-recommends podman runc netavark aardvark-dns catatonit "
        "iptables",
    ),
    "docs": Suite(
        "every command of docs/ that needs neither a cluster nor a GPU: 5 minutes",
        ("docs/commands_run.py",),
        environ={"TCPX_MPI_REQUIRE": "mpi"},
    ),
    "roots": Suite(
        "README word for word on fresh Debian 12 and 13, as an ordinary user: 10 minutes, as root",
        ("-s", "-o", "faulthandler_timeout=2400", "roots/fresh_roots.py"),
        needs=("debootstrap", "unshare", "chroot"),
        get="apt-get install debootstrap",
    ),
    "nixl": Suite(
        "the backend in NIXL 1.0, 1.3 and 1.5, wheels of 339 MB each, kept in build/nixl",
        ("nixl/wheels.py",),
        environ={"TCPX_MPI_REQUIRE": "nixl"},
    ),
    "wheel": Suite(
        "make wheel, and each of what it made in an empty environment: 10 minutes, a package index",
        ("wheel/in_empty_venv.py",),
    ),
    "asan": _sanitized("address"),
    "tsan": _sanitized("thread"),
    "fuzz": Suite(
        "10^6 inputs for each parser of softtcpx and of NIXL's stream (FUZZ_RUNS=1000000)",
        script=("fuzz/fuzz.py", os.environ.get("FUZZ_RUNS", "1000000")),
        needs=("clang++",),
        get="apt-get install clang libclang-rt-14-dev",
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


def missing(suite: Suite, path: str) -> list[str]:
    """The programs that a suite needs and that are not in `path`."""
    return [
        program
        for program in suite.needs
        if not any(shutil.which(name, path=path) for name in program.split("|"))
    ]


def main(argv: list[str]) -> int:
    """Runs a suite, or lists them; the exit code."""
    if not argv:
        print("\n".join(f"  SUITE={name:8} {suite.about}" for name, suite in SUITES.items()))
        return 0
    suite = SUITES.get(argv[0])
    if suite is None:
        print(f"SUITE={argv[0]} is none of {', '.join(SUITES)}", file=sys.stderr)
        return 2
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath), *SBIN])
    if lacking := missing(suite, path):
        print(f"SUITE={argv[0]} needs {' and '.join(lacking)}: {suite.get}", file=sys.stderr)
        return 2
    environ = {**os.environ, **suite.environ, "PATH": path}
    return subprocess.run(command_of(suite), env=environ, cwd=TESTS.parent).returncode


def _paths(argument: str) -> list[str]:
    """What a path below tests/ stands for; other arguments stay as they are."""
    return sorted(str(path) for path in TESTS.glob(argument)) or [argument]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
