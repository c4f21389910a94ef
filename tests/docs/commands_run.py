"""The commands of docs/, page by page and word for word, in a folder with the files that they name.

Run by `make test SUITE=docs`; `PAGES=how-to/gates.md` runs one page. Runs are made short by options
that are put behind those of the page.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Result, run, tcpx_mpi
from page_commands import REPOSITORY, Command, documented

import tcpx_mpi as package

#: Behind a run's own options, so that it takes seconds.
SHORT = "-n 8 -w 2 --check-memory 64M --spool ."
SIZES = "--sizes 64K"
#: Of the limits that `files` has.
SIZES_OF_GATE = "-b 64K -e 64M -f 4"
#: Where it is not 0: what the command of a page ends with here.
EXIT_CODES = {
    "tcpx-mpi plugins --plugin tcpx": {3},  # it is not here
    "tcpx-mpi doctor": {9},  # the log is one of sockets
    # Launches on a machine with other work: any verdict.
    "tcpx-mpi compare": {0, 10, 11},
    "tcpx-mpi ab": {0, 10, 11},
    "tcpx-mpi tune": {0, 11},
    "tcpx-mpi gate RUN.h5": {0, 9, 11},
    "tcpx-mpi run ring --ranks 4 --gate": {0, 9, 11},
    "tcpx-mpi run ring --ranks 4 -b 64K -e 64M -f 4 --gate": {0, 9, 11},
    "mpirun -n 4 tcpx-mpi run ring": {0, 9, 11},
}
LIMIT_S = 300.0

_ALL = documented()
PAGES = [page for page in dict.fromkeys(command.page for command in _ALL)
         if page in os.environ.get("PAGES", page)]  # fmt: skip


def shortened(text: str) -> str:
    """A command of a page with fewer iterations and launches."""
    runs = re.search(r"tcpx-mpi (run|ab|tune) (\S+)", text)
    if runs is None or runs[2] == "smoke":  # which is one message
        return text
    wanted = SIZES_OF_GATE if "--gate" in text else SIZES
    sizes = "" if re.search(r" (-b|-e|--sizes) ", text) else f" {wanted}"
    if runs[1] == "tune":  # whose profile is there already, as it may recommend nothing
        text = re.sub(r"--within \S+", "--within 60s", text).replace("tuned.toml", "found.toml")
        return f"{text}{sizes} {SHORT}"
    if runs[1] == "ab":
        return text.replace(runs[0], f"{runs[0]}{sizes} {SHORT} --runs 2")
    text = re.sub(r"--runs \d+", "--runs 2", text)
    short = SHORT.replace("-n 8", "-n 40") if "--rate" in text else SHORT  # fewer say nothing of it
    return re.sub(r"(; done)?$", rf"{sizes} {short}\1", text, count=1)  # of a loop: within it


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that pages name, as their readers would have them."""
    folder = tmp_path_factory.mktemp("files")
    for name, arguments in {
        "o.h5": "run ring --ranks 2 --against raw --sizes 64K --trace 64",
        "all.h5": "run pairs --all --ranks 2 --sizes 64K",
        "pairs-2.h5": "run pairs --all --ranks 2 --sizes 64K",
        **{f"night-{n}.h5": "run ring --ranks 4 -b 64K -e 64M -f 4" for n in range(1, 6)},
    }.items():
        command = f"{arguments} {SHORT} --hdf5 {name}".split()
        assert run(tcpx_mpi(*command), folder, limit_s=LIMIT_S).code == 0
    for name in ("before", "RUN", "tcpx-mpi-ring-20261121-093000"):
        shutil.copy(folder / "night-1.h5", folder / f"{name}.h5")
    shutil.copy(folder / "night-2.h5", folder / "after.h5")
    nights = [f"night-{n}.h5" for n in range(1, 6)]
    limits = tcpx_mpi("gate", "--calibrate", *nights, "--output", "LIMITS.toml")
    assert run(limits, folder).code == 0
    shutil.copy(REPOSITORY / "tests/unit/data/nccl_tests_table.txt", folder / "all_reduce.log")
    log = "n0:7:7 [0] NCCL INFO Using network Socket\n"
    log += "n0:7:7 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
    (folder / "job.log").write_text(log)
    (folder / "space.toml").write_text("channels = [1, 2, 4]\n")
    (folder / "tuned.toml").write_text('[run]\nchannels = "4"\n')
    for rank in range(2):
        (folder / f"rank-{rank}.log.gz").write_bytes(gzip.compress(log.encode()))
    plugin = Path(package.__path__[0]) / "libnccl-net-softtcpx.so"
    shutil.copy(plugin, folder / "libnccl-net-mine.so")
    (folder / "mine.toml").write_text("[known]\n")
    return folder


@pytest.fixture
def place(files: Path, tmp_path: Path, page: str) -> Iterator[Path]:
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    if page == "how-to/clusters.md":  # its night-2.h5 is of another pattern than that of gates
        shutil.copy(files / "pairs-2.h5", tmp_path / "night-2.h5")
    for tree in ("docs", "jobs", "hostfiles"):
        (tmp_path / tree).symlink_to(REPOSITORY / tree)
    yield tmp_path
    shutil.rmtree(tmp_path)


def follow(command: Command, place: Path) -> Result:
    return run(["bash", "-c", shortened(command.text)], place, limit_s=LIMIT_S)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_does_what_it_says(page: str, place: Path) -> None:
    for command in _ALL:
        if command.page != page or command.left_out:
            continue
        ends = [codes for start, codes in EXIT_CODES.items() if command.text.startswith(start)]
        result = follow(command, place)
        expected = ends[0] if ends else {0}
        assert result.code in expected, f"{shortened(command.text)}\n{result.text}"
        assert "Traceback" not in result.text, f"{command.text}\n{result.text}"
