"""Whole launches of a run, one after the other, each with processes of its own, in one file.

What a launch gets by chance (places in memory, ports, what else the machine does) it keeps for all
its iterations. So the launch, and not the iteration, is what a comparison counts.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, OutputFailed
from tcpx_mpi.launch import mpirun as launch
from tcpx_mpi.launch.mpirun_codes import explained, may_be_of_a_rank
from tcpx_mpi.launch.terminal import own_terminal

if TYPE_CHECKING:
    from tcpx_mpi.gates import Gate, Judgement
    from tcpx_mpi.records import Run

#: Tells a rank where its launch's file goes; TCPX_MPI_LAUNCH tells which launch it is.
FILE_VARIABLE = "TCPX_MPI_LAUNCH_FILE"
NUMBER_VARIABLE = "TCPX_MPI_LAUNCH"


@dataclass(frozen=True)
class Command:
    """A command that is launched again and again: settings that were validated, as typed and as
    parsed."""

    settings: Settings
    #: Of tcpx-mpi: `run PATTERN ...`.
    arguments: Sequence[str]
    environ: Mapping[str, str]


def part_of_series(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The settings of one launch of several: a file that is joined to the others, and no other;
    what they amount to is judged once they are all there."""
    if not settings.launch or FILE_VARIABLE not in environ:
        return settings
    return dataclasses.replace(
        settings,
        hdf5_path=environ[FILE_VARIABLE],
        sources={**settings.sources, "hdf5_path": f"environment {FILE_VARIABLE}"},
        json_path=None,
        csv_path=None,
        gate_path=None,
        strict=False,
        save_config_path=None,
        json_stream_path=None,
        prom_path=None,
    )


class Series:
    """The launches of one command on their way into one file."""

    def __init__(
        self, command: Command, path: str, runs: int | None, option: str = "--hdf5"
    ) -> None:
        """Creates the file; None: it is not known how many launches there will be. Raises
        UsageError, which names the option, where that fails."""
        from tcpx_mpi.records import LaunchesWriter

        self._command = command
        self._runs = runs
        self._writer = LaunchesWriter(path, runs, option)
        # Not beside the result: a launch's own file is nobody's result.
        self._place = tempfile.mkdtemp(prefix="tcpx-mpi-launches-")
        #: What the last launch printed, if it failed.
        self.printed = ""

    @property
    def path(self) -> str:
        """The file, by the name that it got."""
        return self._writer.path

    @property
    def launches(self) -> int:
        """Launches in the file."""
        return self._writer.launches

    def take_over(self, path: str) -> None:
        """The launches of another file, before any of our own."""
        self._writer.append(path)

    def launch(
        self,
        label: str = "",
        command: Command | None = None,
        read: Callable[[str], None] | None = None,
    ) -> int:
        """One more launch, of the command or another one; its exit code, 0 if it is whole. What
        failed is on the standard error, and what it printed is in `printed`. `read` sees the file
        of a whole one.

        Raises OutputFailed if a launch ended well and left no file.
        """
        command = command or self._command
        number = self.launches + 1
        path = os.path.join(self._place, f"{number}.h5")
        environ = {
            **command.environ,
            NUMBER_VARIABLE: str(number),
            FILE_VARIABLE: path,
        }
        of = f" of {self._runs}" if self._runs else ""
        print(f"# launch {number}{of}{label}", file=sys.stderr, flush=True)
        ranks = command.settings.ranks
        assert ranks is not None
        program = launch.rank_program(command.arguments)
        limit_s = command.settings.setup_timeout_s
        code, printed = launch.run_captured(ranks, program, environ, (), None, limit_s)
        if _never_began(code, printed):
            # One in hundreds of launches; a series of them is to survive it.
            print(
                f"# mpirun started no rank (exit code {code}): again", file=sys.stderr, flush=True
            )
            code, printed = launch.run_captured(ranks, program, environ, (), None, limit_s)
        assert code is not None  # only a limit makes it None
        code = explained(code)
        # One launch below NCCL_TESTS_MIN_BW is a whole one of several.
        code = ExitCode.OK if code == ExitCode.BELOW_GATE else code
        self.printed = printed if code != ExitCode.OK else ""
        kept = False
        if os.path.exists(path):
            kept = self._writer.append(path)
            if read is not None and kept and code == ExitCode.OK:
                read(path)
            os.unlink(path)
        if code != ExitCode.OK and kept:
            what = f"launch {number}, as far as it came"
            print(f"# kept: {what}, in {self.path}", file=sys.stderr, flush=True)
        if code == ExitCode.OK and not kept:
            raise OutputFailed(f"launch {number} ended well and left no file {path}")
        return code

    def close(self) -> None:
        """Close the file, and remove what is temporary; twice is once."""
        self._writer.close()
        shutil.rmtree(self._place, ignore_errors=True)


def _never_began(code: int | None, printed: str) -> bool:
    """Whether mpirun itself did not come up: the code is none of ours, and no rank said a word."""
    return not printed and not may_be_of_a_rank(code)


def run_series(command: Command, path: str) -> int:
    """K launches and their report; the exit code of the first one that failed, or 0.

    Where all are whole, 9 if they do not meet --gate or NCCL_TESTS_MIN_BW, else that of --strict.
    """
    gate = None
    if command.settings.gate_path is not None:
        from tcpx_mpi.gates import read_gate

        gate = read_gate(command.settings.gate_path)
    series = Series(command, path, command.settings.runs)
    code = int(ExitCode.OK)
    try:
        while code == ExitCode.OK and series.launches < command.settings.runs:
            code = series.launch()
    finally:
        series.close()
    if not series.launches:
        sys.stdout.write(series.printed)
        if command.settings.prom_path is not None:
            from tcpx_mpi.exchange.prometheus import metrics_of, write_prom

            write_prom(command.settings.prom_path, metrics_of(None, code))
        return code
    of_all, why = _show(command.settings, series.path, gate, code)
    if code == ExitCode.OK and of_all != ExitCode.OK:
        print(f"tcpx-mpi: error: {why}", file=sys.stderr, flush=True)
        return int(of_all)
    return code


def _show(settings: Settings, path: str, gate: Gate | None, code: int) -> tuple[ExitCode, str]:
    """The report of the file, and the other results that were asked for; the exit code of all
    launches together, and why it is not 0."""
    from tcpx_mpi import report
    from tcpx_mpi.exchange import export, tidy
    from tcpx_mpi.gates import judge
    from tcpx_mpi.records import read_run, write_text
    from tcpx_mpi.run.terminal import screen_of_run

    run = read_run(path)
    judgement = judge(gate, run) if gate is not None else None
    files = [path]
    if settings.save_config_path is not None:
        files.append(write_text(settings.save_config_path, settings.to_toml()))
    if settings.csv_path is not None:
        files.append(write_text(settings.csv_path, export.csv_text(tidy.tables_of(run)["rows"])))
    if settings.json_path is not None:
        said = judgement.document() if judgement is not None else None
        files.append(report.write_run_json(settings.json_path, run, files, said))
    outcome = _outcome(settings, run, judgement)
    if settings.prom_path is not None:
        from tcpx_mpi.exchange.prometheus import metrics_of, write_prom

        passed = judgement.passed if judgement is not None else None
        metrics = metrics_of(report.representative(run), code or outcome[0], passed)
        files.append(write_prom(settings.prom_path, metrics))
    verdict = judgement.lines() if judgement is not None else []
    screen = screen_of_run(settings, own_terminal(), os.environ)
    report.show_lines(report.report_lines(run, files, verdict, screen), screen)
    return outcome


def _outcome(settings: Settings, run: Run, judgement: Judgement | None) -> tuple[ExitCode, str]:
    from tcpx_mpi import report

    if judgement is not None and not judgement.passed:
        return ExitCode.BELOW_GATE, f"the run fails its gate: {judgement.in_short()}"
    if short := report.below_minimum(run):
        return ExitCode.BELOW_GATE, short
    return report.strict_outcome(run) if settings.strict else (ExitCode.OK, "")


def run_in_turns(first: Series, second: Series, runs: int) -> int:
    """K launches of each of two series in the order ABBA; the code of the first that failed, or 0.

    What drifts with time then falls on both alike, and neighbours in time make pairs.
    """
    for number in range(runs):
        pair = ((first, " of A"), (second, " of B"))
        for series, label in pair if number % 2 == 0 else reversed(pair):
            code = series.launch(label)
            if code != ExitCode.OK:
                sys.stdout.write(series.printed)
                return code
    return int(ExitCode.OK)
