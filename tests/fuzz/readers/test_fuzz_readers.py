"""Some mutants of every kind of file; `make test SUITE=fuzz-readers` has 10,000 of each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from variants import variant

SCRIPT = Path(__file__).parent / "fuzz_readers.py"


@pytest.mark.parametrize("part", [["hdf5", "journal"], variant([])], ids=["records", "all others"])
def test_no_mutant_of_a_file_is_more_than_one_line(part: list[str]) -> None:
    others = [name for name in READERS if name not in ("hdf5", "journal")]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "quick", *(part or others)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 findings") == len(part or others)


def test_an_unknown_reader_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "1", "nosuch"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no reader nosuch: use hdf5, ")
    assert done.stderr.count("\n") == 1


READERS = (
    "hdf5", "journal", "log of nccl-tests", "json of nccl-tests", "log of nccl", "recorded machine",
    "config", "profile", "placement", "gate", "expectations", "matrix", "hostfile", "plugin trace",
)  # fmt: skip
#: What a reader must not do, and what is said of it; each stands in a process with the others.
PLANTED = {
    "raises": ("int('x')", "ValueError"),
    "hangs": ("while True: pass", "takes more than 2 s"),
    "grows": ("bytearray(600 << 20)[::4096]", "takes 6"),
    "aborts": ("os.abort()", "ended its process"),
    "prints": ("print(chr(27))", "prints"),
    "leaves": ("open('half', 'w'); raise UsageError('no')", "leaves ['half']"),
}
SCRIPT_OF_PLANTED = """
import os, sys
sys.path.insert(0, {folder!r})
import fuzz_readers, readers
from tcpx_mpi.errors import UsageError
def reader(body):
    return readers.Reader(readers._texts([readers._MATRIX], lambda path: exec(body)))
readers.readers = lambda place: {{name: reader(body) for name, body in {bodies!r}.items()}}
sys.exit(fuzz_readers.main(["1"]))
"""


def test_the_fuzzer_sees_what_a_reader_must_not_do() -> None:
    bodies = {name: body for name, (body, _) in PLANTED.items()}
    script = SCRIPT_OF_PLANTED.format(folder=str(SCRIPT.parent), bodies=bodies)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    for name, (_, says) in PLANTED.items():
        assert f"{name}:0 " in done.stdout
        assert says in done.stdout.partition(f"{name}:0 ")[2].partition(" 1 findings")[0]
