"""docs/design/how-a-run-ends.md names files that are there, and their deadlines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tcpx_mpi.launch import mpirun, setup_deadline
from tcpx_mpi.run import failure, hanging_disk
from tcpx_mpi.world import disk_watch, launcher_watch, liveness

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "design" / "how-a-run-ends.md").read_text()
WATCH = (ROOT / "native" / "engine" / "watch.h").read_text()
FILES = sorted(set(re.findall(r"\b[a-z_]+(?:/[a-z_]+)+\.(?:py|cc)\b", PAGE)))


@pytest.mark.parametrize("file", FILES)
def test_a_file_on_the_page_is_there(file: str) -> None:
    assert (ROOT / file).is_file() or (ROOT / "tcpx_mpi" / file).is_file()


def test_functions_on_the_page_are_there() -> None:
    for name in re.findall(r"`failure\.(\w+)`", PAGE):
        assert callable(getattr(failure, name))
    for name in ("end_agreed", "leave_interrupted", "leave_after_failure"):
        assert name in PAGE
        assert callable(getattr(failure, name))


@pytest.mark.parametrize(
    ("words", "found_s"),
    [
        ("takes their answers, for {} s", liveness.ROLL_CALL_S),
        ("they wait up to {} s for that", liveness.DISMISSAL_S),
        ("what follows has {} s", float(re.findall(r"kEndS = (\d+)", WATCH)[0])),
        ("roll call; {} s later the watch", float(re.findall(r"kLeadS = (\d+)", WATCH)[0])),
        ("it answers a roll call from {} s on", disk_watch.ANSWERS_S),
        ("`world/launcher_watch.py`, every {} s", launcher_watch.LOOK_S),
        ("SIGTERM, {} s later the end", launcher_watch.GRACE_S),
        ("| `launch/mpirun.py` | {} s |", mpirun._LINGERS_S),
        ("the launcher, which kills {} s later", setup_deadline._GRACE_S),
        ("ranks do not heed a signal for {} s", setup_deadline._STOP_GRACE_S),
        ("are put away within {} s", hanging_disk.HANGING_DISK_S),
    ],
)
def test_a_deadline_on_the_page_is_that_of_the_code(words: str, found_s: float) -> None:
    assert words.format(f"{found_s:g}") in PAGE
