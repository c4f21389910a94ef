"""What others wrote reaches no terminal as they wrote it, where that would do something there."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from pathlib import Path

import invented_runs
import pytest

from tcpx_mpi import cli
from tcpx_mpi.printable import _Printable, printable, printable_lines, write_own
from tcpx_mpi.report import Screen, report_lines, show_lines

#: A reset, a title, DCS, CSI and OSC in 8 bits, DEL, a bell; the writing turned round, a letter
#: without width, a line's end that few know, an invisible tag, half of a character.
HOSTILE = (
    "\x1bc\x1b]0;t\x07\x1bP1$r0m\x1b\\\x9b31m\x9d0;t\x9c\x7f\r\b\u202e\u200b\u2028\U000e0041\ud800"
)
FORBIDDEN = {letter for letter in HOSTILE if not letter.isprintable()}


def require_printable(text: str) -> None:
    assert not FORBIDDEN & set(text), ascii(text)


def test_every_letter_that_does_something_is_spelled() -> None:
    assert printable("a\x1b[31mb\n\tc") == r"a\x1b[31mb\n\tc"
    assert printable_lines("a\x1bcb\n\tc\r") == "a\\x1bcb\n\tc\\r"
    assert printable(HOSTILE).isprintable()
    require_printable(printable_lines(HOSTILE))


@pytest.mark.parametrize("text", ["", "plain", "äöü ß 漢字 \U0001f600 \xa0 µs ± ≤", "a\n\tb\n"])
def test_text_of_people_stays_what_it_is(text: str) -> None:
    assert printable_lines(text) == text


def test_what_is_ours_is_written_as_it_is() -> None:
    within = io.StringIO()
    stream = _Printable(within)
    print("a\x1bc", file=stream)  # type: ignore[arg-type]  # a stream in all that print uses
    write_own(stream, "\x1b[32mgood\x1b[0m")  # type: ignore[arg-type]
    assert within.getvalue() == "a\\x1bc\n\x1b[32mgood\x1b[0m"


def test_an_error_is_one_line_that_can_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["report", f"/no/{HOSTILE[:-1]}\nforged"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    require_printable(error)
    (tmp_path / "m").write_text("x" * 100_000)
    assert cli.main(["run", "alltoallv", "--ranks", "2", "--matrix", str(tmp_path / "m")]) == 2
    assert len(capsys.readouterr().err) < 5000


@pytest.mark.parametrize("screen", [None, Screen(100, colour=True), Screen(60, True, True)])
def test_texts_in_a_file_are_shown_and_not_obeyed(
    screen: Screen | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = invented_runs.troubled()
    run.header.notes = [HOSTILE, "a note"]
    run.header.facts["plugin_said"] = HOSTILE
    run.header.ranks = [
        dataclasses.replace(rank, host=f"h{HOSTILE}", nic=HOSTILE) for rank in run.header.ranks
    ]
    cli._complete_streams()
    show_lines(report_lines(run, screen=screen), screen)
    shown = capsys.readouterr().out
    assert shown
    for ours in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"):
        shown = shown.replace(ours, "")
    require_printable(shown)


def test_a_log_reaches_the_terminal_spelled(tmp_path: Path) -> None:
    line = "h:1:2 [0] NCCL WARN NET/Plugin: could not find \x1bc\x9b2J libnccl-net.so\u202e\n"
    (tmp_path / "log").write_text(line * 3)
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "doctor", str(tmp_path / "log")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout
    require_printable(done.stdout + done.stderr)
