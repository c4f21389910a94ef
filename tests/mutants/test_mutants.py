"""The sources, broken on purpose one way at a time: what shall detect it must detect it.

A patch names what detects it: a native test, a unit test, or one of five runs of the benchmark with
what the broken copy makes of it. What is detected by the ratio to a peer is in test_slowed_engine.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from broken_copy import PATCHES, REPOSITORY, BrokenCopy, Patch, detected_by, patched

# Two ranks: ragged messages of 25 chunks over real sockets, the same beside raw sockets, and of 7
# chunks that are scattered and put together again; a plugin that delivers nothing, so that every
# byte of every iteration must be wrong; and a run that does not ask for the check.
RUNS = {
    "checked": "ring --ranks 2 --plugin softtcpx -b 100003 -e 100003 -n 6 --chunk 4K",
    "emulated": "ring --ranks 2 --plugin softtcpx --memory emulated -b 100003 -e 100003 -n 6 "
    "--chunk 16K",
    "beside": "pair --ranks 2 --plugin softtcpx -b 100003 -e 100003 -n 8 --chunk 4K --against raw",
    "null": "pair --ranks 2 --plugin null -b 4 -e 4 -n 2000",
    "unchecked": "pair --ranks 2 --plugin null -b 4K -e 4K -n 5 -c 0",
}
SOUND = {
    "checked": "exit 0, wrong 0",
    "emulated": "exit 0, wrong 0",
    "beside": "exit 0, wrong 0",
    "null": "exit 5, wrong 8004",  # one warm-up
    "unchecked": "exit 0, wrong N/A",
}
#: A mutant that hangs is given up soon.
SOON = ["--stall-timeout", "2"]

NATIVE, UNIT = (sorted({p.detected_by.split()[1] for p in detected_by(kind)})
                for kind in ("native", "unit"))  # fmt: skip
#: The ways to break a benchmark that must be known here, come what may.
MUST_BE_THERE = ("swapped_chunk", "dropped_chunk", "stale_slot", "flipped_byte", "removed_check")


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
@pytest.mark.parametrize("name", NATIVE)
def test_the_sound_copy_passes_the_native_test(copy: BrokenCopy, name: str) -> None:
    assert copy.native_test(name) == 0


@pytest.mark.timeout(700)
def test_the_sound_copy_passes_the_unit_tests(copy: BrokenCopy) -> None:
    assert copy.unit_test(*UNIT) == 0


@pytest.mark.multirank
@pytest.mark.timeout(700)
@pytest.mark.parametrize("run", RUNS)
def test_the_sound_copy_passes_the_run(mpi_copy: BrokenCopy, run: str) -> None:
    assert mpi_copy.verdict(RUNS[run].split()) == SOUND[run]


@pytest.mark.timeout(700)
@pytest.mark.parametrize("patch", detected_by("native"), ids=lambda p: p.name)
def test_a_native_test_detects(copy: BrokenCopy, patch: Patch) -> None:
    copy.apply(patch)
    try:
        code = copy.native_test(patch.detected_by.removeprefix("native "))
    finally:
        copy.revert(patch)
    assert code not in (0, 2), f"not detected ({code}): {patch.why}"  # 2: no such test


@pytest.mark.timeout(700)
@pytest.mark.parametrize("patch", detected_by("unit"), ids=lambda p: p.name)
def test_a_unit_test_detects(copy: BrokenCopy, patch: Patch) -> None:
    copy.apply(patch)
    try:
        code = copy.unit_test(patch.detected_by.removeprefix("unit "))
    finally:
        copy.revert(patch)
    assert code == 1, f"not detected ({code}): {patch.why}"  # others: no such test, not collected


@pytest.mark.multirank
@pytest.mark.timeout(700)
@pytest.mark.parametrize("patch", detected_by("run"), ids=lambda p: p.name)
def test_a_run_detects(mpi_copy: BrokenCopy, patch: Patch) -> None:
    run, expected = patch.detected_by.removeprefix("run ").split(": ")
    mpi_copy.apply(patch)
    try:
        mpi_copy.install()
        verdict = mpi_copy.verdict([*RUNS[run].split(), *SOON])
    finally:
        mpi_copy.revert(patch)
    assert verdict != SOUND[run], f"not detected: {patch.why}"
    assert re.fullmatch(expected, verdict), f"detected as something else: {verdict}"
