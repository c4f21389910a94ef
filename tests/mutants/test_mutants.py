"""The sources, broken on purpose one way at a time: what shall detect it must detect it.

A patch names what detects it: a native test, or one of four runs of the benchmark with what the
broken copy makes of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from broken_copy import REPOSITORY, BrokenCopy, Patch, find_tool, patched, read_patch

from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.launch import find_mpirun

# Two ranks: ragged messages of 25 chunks over real sockets, and of 7 chunks that are scattered and
# put together again; a plugin that delivers nothing, so
# that every byte of every iteration must be wrong; and a run that does not ask for the check.
RUNS = {
    "checked": "ring --ranks 2 --plugin softtcpx -b 100003 -e 100003 -n 6 --chunk 4K",
    "emulated": "ring --ranks 2 --plugin softtcpx --memory emulated -b 100003 -e 100003 -n 6 "
    "--chunk 16K",
    "null": "pair --ranks 2 --plugin null -b 4 -e 4 -n 2000",
    "unchecked": "pair --ranks 2 --plugin null -b 4K -e 4K -n 5 -c 0",
}
SOUND = {
    "checked": "exit 0, wrong 0",
    "emulated": "exit 0, wrong 0",
    "null": "exit 5, wrong 8004",  # one warm-up
    "unchecked": "exit 0, wrong N/A",
}
ALWAYS = ["--hdf5", "none", "--stall-timeout", "2"]

PATCHES = [read_patch(path) for path in sorted((Path(__file__).parent / "patches").iterdir())]
NATIVE = sorted(p.detected_by.split()[1] for p in PATCHES if p.detected_by.startswith("native "))
#: The ways to break a benchmark that must be known here, come what may.
MUST_BE_THERE = ("swapped_chunk", "dropped_chunk", "stale_slot", "flipped_byte", "removed_check")


@pytest.fixture(scope="session")
def copy() -> BrokenCopy:
    """The copy, sound and built."""
    cmake = find_tool("cmake")
    if cmake is None or not any(map(find_tool, ("c++", "g++", "clang++"))):
        pytest.skip("needs compiler: cmake or a C++ compiler is not found")
    copy = BrokenCopy(REPOSITORY / "build" / "mutants", cmake)
    copy.refresh()
    copy.configure()
    copy.make(*sorted({f"test_{name.split('.')[0]}" for name in NATIVE}))
    copy.install()
    return copy


@pytest.fixture(scope="session")
def mpi_copy(copy: BrokenCopy) -> BrokenCopy:
    """The copy, on a machine where it can be run."""
    try:
        find_mpirun(os.environ)
    except PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")
    return copy


def test_the_ways_to_break_it_are_all_there() -> None:
    assert {p.name for p in PATCHES} >= set(MUST_BE_THERE)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.name)
def test_a_patch_still_fits_the_sources(patch: Patch) -> None:
    text = (REPOSITORY / patch.file).read_text()
    assert patched(text, patch) != text


@pytest.mark.timeout(700)  # the first case builds
def test_the_copy_is_what_runs(copy: BrokenCopy) -> None:
    found = copy.python("-c", "import tcpx_mpi._native as n; print(n.__file__)")
    assert Path(found.stdout.strip()).parent.resolve() == copy.folder / "tcpx_mpi", found.stderr


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", sorted(set(NATIVE)))
def test_the_sound_copy_passes_the_native_test(copy: BrokenCopy, name: str) -> None:
    assert copy.native_test(name) == 0


@pytest.mark.multirank
@pytest.mark.timeout(700)
@pytest.mark.parametrize("run", RUNS)
def test_the_sound_copy_passes_the_run(mpi_copy: BrokenCopy, run: str) -> None:
    assert mpi_copy.verdict([*RUNS[run].split(), *ALWAYS]) == SOUND[run]


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    "patch", [p for p in PATCHES if p.detected_by.startswith("native ")], ids=lambda p: p.name
)
def test_a_native_test_detects(copy: BrokenCopy, patch: Patch) -> None:
    copy.apply(patch)
    try:
        code = copy.native_test(patch.detected_by.removeprefix("native "))
    finally:
        copy.revert(patch)
    assert code not in (0, 2), f"not detected ({code}): {patch.why}"  # 2: no such test


@pytest.mark.multirank
@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    "patch", [p for p in PATCHES if p.detected_by.startswith("run ")], ids=lambda p: p.name
)
def test_a_run_detects(mpi_copy: BrokenCopy, patch: Patch) -> None:
    run, expected = patch.detected_by.removeprefix("run ").split(": ")
    mpi_copy.apply(patch)
    try:
        mpi_copy.install()
        verdict = mpi_copy.verdict([*RUNS[run].split(), *ALWAYS])
    finally:
        mpi_copy.revert(patch)
    assert verdict != SOUND[run], f"not detected: {patch.why}"
    assert re.fullmatch(expected, verdict), f"detected as something else: {verdict}"
