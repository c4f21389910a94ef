"""Hostfiles, what each launcher makes of them, and how to have a real launcher say it."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tcpx_mpi.launch import mpirun as launch

#: Slots by node; None: the node's cores. A text: the launcher does not take the file, and this
#: stands in our refusal.
Expected: TypeAlias = "dict[str, int | None] | str"

_MULTIPLE = "gives slots to n1, as line 1 does already"


@dataclass(frozen=True)
class Case:
    """A file and what is made of it; `intel` where Intel MPI differs from MPICH."""

    text: str
    open_mpi: Expected
    mpich: Expected = field(default="", repr=False)
    intel: Expected = field(default="", repr=False)

    def __repr__(self) -> str:
        return repr(self.text).strip("'")


CASES = [
    Case("n1 slots=2\nn2 slots=2\n", {"n1": 2, "n2": 2}, "does not know: write `n1:2`"),
    Case("# c\n\n  n1\tslots = 2 # c\nroot@n2 slots=2", {"n1": 2, "n2": 2}, "has 'slots'"),
    Case("n1:2\nn2:1\n", "takes for the name of a host: write `n1 slots=2`", {"n1": 2, "n2": 1}),
    Case("n1:\nn2\n", "takes for the name of a host: write `n1 slots=N`", {"n1": 1, "n2": 1}),
    Case("n1:2 # c\nn2:1#c\n", "takes for the name of a host", {"n1": 2, "n2": 1}),
    # Ends of lines, of which Open MPI knows one kind.
    Case("n1 slots=2\r\nn2 slots=2\r\n", "line 1 ends in CR LF", "has 'slots=2'"),
    Case("n1\r\nn2\r\n", "line 1 ends in CR LF", {"n1": 1, "n2": 1}),
    Case("# c\r\nn1 slots=2\n", {"n1": 2}, "has 'slots=2'"),
    Case("n1\n\r\nn2\n", "line 2 ends in CR LF", {"n1": 1, "n2": 1}),
    Case("\ufeffn1\n", "byte order mark", "byte order mark"),
    # A node on several lines.
    Case("n1\nn1\nn1\n", {"n1": 3}, {"n1": 3}),
    Case("n1\nn2\nn1\nn2\n", {"n1": 2, "n2": 2}, {"n1": 2, "n2": 2}),
    Case("n1\nn1 slots=2\n", _MULTIPLE, "has 'slots=2'"),
    Case("n1 slots=2\nn1\n", {"n1": 3}, "has 'slots=2'"),
    Case("n1 slots=2\nn1 slots=3\n", _MULTIPLE, "has 'slots=2'"),
    Case("n1 slots=2 slots=3\n", _MULTIPLE, "has 'slots=2'"),
    Case("n1.a.example slots=2\nn1 slots=2\n", "slots to n1.a.example, as line", "has 'slots=2'"),
    Case("n1.a.example\nn1\n", {"n1.a.example": 2}, {"n1.a.example": 1, "n1": 1}),
    Case("n1:1\nn1:2\nn2:3\n", "takes for the name of a host", {"n1": 3, "n2": 3}),
    # Other words for slots, and their most.
    Case("n1 cpu=2\nn2 count=2\n", {"n1": 2, "n2": 2}, "does not know: write `n1:2`"),
    Case("n1 cpu=2 slots=3\n", _MULTIPLE, "has 'cpu=2'"),
    Case("n1 max_slots=4\nn2 slots-max=3\n", {"n1": 4, "n2": 3}, "has 'max_slots=4'"),
    Case("n1\nn1 max-slots=5\n", {"n1": 2}, "has 'max-slots=5'"),
    Case("n1 slots=2 max_slots=4\n", {"n1": 2}, "has 'slots=2'"),
    Case("n1 slots=4 max_slots=2\n", "'max_slots=2', less than the 4 slots", "has 'slots=4'"),
    Case("n1 slots=2\nn1 max_slots=2\n", "'max_slots=2', less than the 3", "has 'slots=2'"),
    Case("n1\n", {"n1": None}, {"n1": 1}),
    # Whom to log in as, and where.
    Case("n1 username=root slots=2\n", {"n1": 2}, "has 'username=root'"),
    Case("n1 user_name=root port=2222\n", {"n1": None}, "has 'user_name=root'"),
    Case("n1 user=root\n", "'user=root', which Open MPI does not know", {"n1": 1}),
    Case("n1:2 binding=user:0\n", "takes for the name", {"n1": 2}, "has 'binding=user:0'"),
    # Addresses.
    Case("10.0.0.1 slots=2\n10.0.0.2 slots=1\n", {"10.0.0.1": 2, "10.0.0.2": 1}, "has 'slots=2'"),
    Case("::1 slots=2\n", {"::1": 2}, "takes no IPv6 address"),
    Case("2001:db8::7\n2001:db8::8\n", {"2001:db8::7": None, "2001:db8::8": None}, "no IPv6"),
    Case("[::1] slots=2\n", "'[::1]', which is no host name", "takes no IPv6 address"),
    # What is no hostfile.
    Case("n1 slot=2\n", "'slot=2', which Open MPI does not know", "has 'slot=2'"),
    Case("n1 slots=many\n", "'slots=many': slots are a whole number", "has 'slots=many'"),
    Case("n1 slots=0\n", "slots are a whole number of 1 or more", "has 'slots=0'"),
    Case("n1;n2\n", "'n1;n2', which is no host name", ""),
    Case("# only this\n", "names no host", "names no host"),
]  # fmt: skip


#: Refused by us alone: MPICH runs here where a file has no hosts, and looks any bytes up.
ABOVE_THE_LAUNCHER = ("names no host", "byte order mark")


def mpirun_version(name: str) -> str:
    """What an mpirun of ours says of itself, as preflight has it."""
    return {
        "openmpi5": "mpirun (Open MPI) 5.0.11",
        "openmpi4": "mpirun.openmpi (OpenRTE) 4.1.4",
        "mpich": "HYDRA build details: Version: 4.0.2",
        "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929",
    }[name]


def expected_of(case: Case, name: str) -> Expected:
    """What one of these makes of a case; "" where nothing is promised."""
    if name.startswith("openmpi"):
        return case.open_mpi
    return (case.intel or case.mpich) if name == "intel" else case.mpich


def require_expected(case: Case, mpirun: str, name: str, place: Path) -> None:
    """Has a real launcher read the file; nothing is started, but by MPICH, and that here."""
    expected = expected_of(case, name)
    (place / "hosts").write_text(case.text, newline="")
    ask = _of_mpich if name == "mpich" else _of_open_mpi
    code, said, found = ask(mpirun, name, place, expected)
    if isinstance(expected, str):
        refused = code != 0 or "parse error" in said or 0 in found.values()
        as_name = any(re.search(r"^[^:]+:\d*$", node) for node in found)
        assert refused or as_name or expected in ABOVE_THE_LAUNCHER, (said, found)
        return
    assert set(found) == set(expected), said
    for node, slots in expected.items():
        assert slots is None or found[node] == slots, said


def _of_open_mpi(
    mpirun: str, name: str, place: Path, expected: Expected
) -> tuple[int, str, dict[str, int]]:
    """Its own table of what it has to give, by its own names: without a domain."""
    dry = ["--rtos", "donotlaunch", "--display", "allocation"]
    pattern = r"^\s+(\S+): slots=(\d+)"
    if name == "openmpi4":
        dry = ["--do-not-launch", "--display-allocation"]
        pattern = r"Data for node: (\S+)\s+Num slots: (\d+)"
    nodes = len(expected) if isinstance(expected, dict) else 1
    command = [mpirun, "--hostfile", "hosts", *dry, "--map-by", "ppr:1:node", "-n", str(nodes)]
    done = _run([*command, "true"], place)
    said = done.stdout + done.stderr
    found = {node: int(slots) for node, slots in re.findall(pattern, said, re.M)}
    full = {each.partition(".")[0]: each for each in expected if not each[0].isdigit()}
    # Open MPI 4 ends a dry run in a failure of its own: what it calls the file counts.
    bad = re.search("parse error|bad parameter|multiple definitions|No nodes|already filled", said)
    code = int(bad is not None) if name == "openmpi4" else done.returncode
    return code, said, {full.get(node, node): slots for node, slots in found.items()}


def _of_mpich(
    mpirun: str, name: str, place: Path, expected: Expected
) -> tuple[int, str, dict[str, int]]:
    """Starts as many ranks as there are slots, each of which says on which node it would be."""
    agent = place / "agent"
    agent.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n'
        'export NODE="${1#*@}"; shift; exec sh -c "$*"\n'
    )
    agent.chmod(0o755)
    ranks = sum(slots or 1 for slots in expected.values()) if isinstance(expected, dict) else 1
    command = [mpirun, "-launcher-exec", str(agent), "-f", "hosts", "-n", str(ranks)]
    done = _run([*command, "sh", "-c", "echo node $NODE"], place)
    nodes = re.findall(r"^node (\S+)$", done.stdout, re.M)
    return done.returncode, done.stdout + done.stderr, {each: nodes.count(each) for each in nodes}


def _run(command: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    environ = launch.mpirun_environment(os.environ, is_root=os.geteuid() == 0)
    return subprocess.run(
        command, cwd=place, env=environ, capture_output=True, check=False, timeout=60,
        stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace",
    )  # fmt: skip
