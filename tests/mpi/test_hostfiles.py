"""The hostfiles that are shipped, and the command that stands in each."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from jobs import SLOTS, run

from tcpx_mpi.preflight.hostfile import read_hostfile
from tcpx_mpi.preflight.hostfile_forms import Launcher

pytestmark = pytest.mark.multirank

TREE = Path(__file__).parents[2]
HOSTFILES = sorted((TREE / "hostfiles").glob("*.txt"))
#: What tests say by variables, so that an option which is missing would go unseen.
UNSET = ("PRTE_MCA_rmaps_default_mapping_policy", "PRTE_MCA_hwloc_default_binding_policy")


def command_in(hostfile: Path) -> list[str]:
    (line,) = re.findall(r"^#   (mpirun .*)$", hostfile.read_text(), re.M)
    return shlex.split(line)


def test_the_command_for_this_machine_runs_as_it_stands(place: Path) -> None:
    hostfile = TREE / "hostfiles" / "local.txt"
    (place / "hostfiles").mkdir()
    (place / "hostfiles" / "local.txt").symlink_to(hostfile)
    clean = ["env", *(f"--unset={name}" for name in UNSET)]
    clean.append(f"PATH={Path(sys.executable).parent}:/usr/bin:/bin")
    small = ("--plugin", "softtcpx", "--sizes", "17", "-n", "5", "--hdf5", "none",
             "--check-memory", SLOTS)  # fmt: skip
    result = run([*clean, *command_in(hostfile), *small], place)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0]
    (slots,) = [host.slots for host in read_hostfile(str(hostfile), Launcher("Open MPI")).lines]
    assert len(re.findall(r"^#  Rank ", result.out, re.M)) == slots


@pytest.mark.parametrize("hostfile", HOSTFILES, ids=lambda path: path.stem)
def test_a_hostfile_can_be_read_and_its_command_names_it(hostfile: Path) -> None:
    assert read_hostfile(str(hostfile), Launcher("Open MPI")).lines
    command = command_in(hostfile)
    assert command[1:5] == ["-hostfile", f"hostfiles/{hostfile.name}", "--bind-to", "none"]
