"""The launches of a tune: each in its turn, all in one file, those of an earlier one with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence

from tcpx_mpi.compare import differences
from tcpx_mpi.errors import ExitCode, TcpxError, UsageError
from tcpx_mpi.records import TURN_VARIABLE, Run, read_run
from tcpx_mpi.run.series import Command, Series
from tcpx_mpi.tune.bands import Band, sample_of
from tcpx_mpi.tune.point import TODAY, Point, Turn, point_text, turn_of
from tcpx_mpi.tune.race import FINAL, Sample

#: Circumstances that two parts of a tune must have alike.
_ALIKE = ("plugin", "setting", "environment")


class LaunchesEnded(RuntimeError):
    """Today's settings failed, or somebody asked to stop; `code` is the one to end with."""

    def __init__(self, code: int, printed: str) -> None:
        super().__init__(code)
        self.code, self.printed = code, printed


class Launches:
    """Makes the launches of a race, by `command_of` a point."""

    def __init__(
        self, command_of: Callable[[Point], Command], bands: Sequence[Band], path: str, option: str
    ) -> None:
        """Creates the file."""
        self._command_of, self._bands = command_of, bands
        self._series = Series(command_of(TODAY), path, None, option)
        self._earlier: Run | None = None
        #: The first launch of today's settings.
        self.first: Run | None = None

    @property
    def path(self) -> str:
        return self._series.path

    def take_over(self, path: str) -> list[tuple[Turn, Sample]]:
        """The launches of an earlier tune, which come into the file; those that are whole.

        Raises UsageError for a file that is none.
        """
        self._earlier = read_run(path)
        past = list(self._past(path, self._earlier))
        self._series.take_over(path)
        return past

    def launch(self, turn: Turn) -> Sample | None:
        """One launch; None where a setting's failed. Raises LaunchesEnded where today's did, and
        UsageError where the first is not one of the earlier tune."""
        found: list[Sample] = []

        def read(path: str) -> None:
            run = read_run(path)
            found.append(sample_of(run, self._bands))
            if self.first is None:
                self.first = run
                self._require_continued(run)

        try:
            command = self._command_of(turn.point)
        except TcpxError as error:
            print(f"# out: {point_text(turn.point)}: {error}", file=sys.stderr, flush=True)
            return None
        environ = {**command.environ, TURN_VARIABLE: turn.mark()}
        marked = Command(command.settings, command.arguments, environ)
        code = self._series.launch(_label(turn), marked, read)
        if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            raise LaunchesEnded(code, "")
        if turn.point == TODAY and (code != ExitCode.OK or not (found[0].time_ns > 0).all()):
            raise LaunchesEnded(code or ExitCode.INCONCLUSIVE, self._series.printed)
        if code != ExitCode.OK:
            what = point_text(turn.point)
            print(f"# out: {what}: exit code {code}", file=sys.stderr, flush=True)
        return found[0] if found else None

    def close(self) -> None:
        """Close the file; twice is once."""
        self._series.close()

    def discard(self) -> None:
        """Close the file, and leave none."""
        self._series.close()
        if os.path.exists(self.path):
            os.unlink(self.path)

    def _past(self, path: str, earlier: Run) -> Iterator[tuple[Turn, Sample]]:
        for run in earlier.all_launches:
            turn = turn_of(run.header.environment.get(TURN_VARIABLE, ""), path)
            if run.complete and run.fault is None and not run.missing:
                sample = sample_of(run, self._bands)
                if bool((sample.time_ns > 0).all()):
                    yield turn, sample

    def _require_continued(self, run: Run) -> None:
        """Refuses to go on with launches of another command or plugin."""
        if self._earlier is None:
            return
        for each in differences(self._earlier, run):
            if each.section in _ALIKE:
                raise UsageError(
                    f"--resume {self._earlier.path}: its launches have another {each.section} "
                    f"{each.name} ({each.first or 'not set'}, now {each.second or 'not set'}): "
                    "give the command of then, or begin anew"
                )


def _label(turn: Turn) -> str:
    """Behind the number of a launch."""
    heat = {0: "the first", FINAL: f"final {turn.round}"}.get(
        turn.heat, f"heat {turn.heat}, round {turn.round}"
    )
    return f", {heat}: {point_text(turn.point)}"
