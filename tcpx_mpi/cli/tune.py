"""`tcpx-mpi tune PATTERN`: which settings are the best here, by launches in turns."""

from __future__ import annotations

import datetime
import functools
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tcpx_mpi.cli.compare_options import limits_of, require_outputs, verdict_options
from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.cli.launch_command import launch_command, require_checks
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.launch.terminal import own_terminal
from tcpx_mpi.run import series
from tcpx_mpi.units import parse_duration

if TYPE_CHECKING:
    from tcpx_mpi.config.settings import Settings
    from tcpx_mpi.records import RunHeader
    from tcpx_mpi.tune.point import Point
    from tcpx_mpi.tune.space import Space
    from tcpx_mpi.tune.text import Tuned

#: Where nobody says which: one of latency and one of bandwidth.
_SIZES = "8K,64M"
_EXAMPLES = (
    "tcpx-mpi tune ring --ranks 4 --within 10m",
    "tcpx-mpi tune pair --ranks 2 --sizes 4K,1M --space SPACE.toml --within 5m",
    "tcpx-mpi tune ring --ranks 8 --within 20m --write TUNED.toml --html tune.html",
)


@click.command(
    "tune",
    cls=CommandWithExamples,
    examples=_EXAMPLES,
    exit_codes=False,
    options_metavar="[OPTIONS]",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="RUN-ARGUMENTS")
@click.option("--within", default="10m", metavar="TIME", help="Time for all launches [10m].")
@click.option(
    "--space", "space_path", type=click.Path(), metavar="FILE.toml",
    help="Settings and values to try [those of the plugin's kind].",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(), metavar="FILE.h5", help="All launches [tcpx-mpi-tune-TIME.h5]."
)
@click.option(
    "--resume", type=click.Path(), metavar="FILE.h5",
    help="Go on with its launches; the same arguments, and another file.",
)  # fmt: skip
@click.option(
    "--write", type=click.Path(), metavar="PROFILE.toml",
    help="Write what is recommended for all sizes as a profile, for `run` and `env`.",
)  # fmt: skip
@verdict_options
def command(
    arguments: tuple[str, ...],
    within: str,
    space_path: str | None,
    out: str | None,
    resume: str | None,
    write: str | None,
    tolerance: float,
    resolution: float,
    json_path: str | None,
    page: str | None,
) -> int:
    """Finds settings that are better than today's, by launches in turns, with --ranks N.

    RUN-ARGUMENTS are those of `run`; what they and the environment say are today's settings. Sizes
    are judged in bands, 8K and 64M if none are given. Exit code 0 where there is an answer, also
    where none is better, and 11 where there were too few launches for one.
    """
    from tcpx_mpi.run.tuning import Launches, LaunchesEnded
    from tcpx_mpi.tune.answer import answer_of
    from tcpx_mpi.tune.bands import bands_of, scale_of
    from tcpx_mpi.tune.race import Budget, run_race
    from tcpx_mpi.tune.space import read_space
    from tcpx_mpi.tune.text import Tuned

    limits = limits_of(tolerance, resolution)
    within_s = parse_duration(within)
    require_outputs(json_path, page)
    if write is not None:
        _require_profile(write)
    common = list(arguments)
    today = _command_of(common, ())
    if today.settings.sources["sizes"] == "default":
        common += ["--sizes", _SIZES]
        today = _command_of(common, ())
    require_checks(today.settings, "tune")
    space = read_space(space_path) if space_path is not None else None
    if space is not None:
        _require_possible(space, common, today.settings)
    bands = bands_of(today.settings.sizes)
    name = out or f"tcpx-mpi-tune-{datetime.datetime.now():%Y%m%d-%H%M%S}.h5"
    command_of = functools.lru_cache(maxsize=None)(functools.partial(_command_of, common))
    launches = Launches(command_of, bands, name, "--out")

    def singles() -> Sequence[Point]:
        assert launches.first is not None
        return _points(space, launches.first.header, common, today.settings)

    budget = Budget(within_s, time.monotonic)
    try:
        past = launches.take_over(resume) if resume is not None else []
        race = run_race(singles, len(bands), launches.launch, budget, past)
    except LaunchesEnded as ended:
        sys.stdout.write(ended.printed)
        launches.close()
        if os.path.exists(launches.path):
            print(f"# kept: {launches.path}, for --resume", file=sys.stderr)
        return ended.code
    except UsageError:
        launches.discard()
        raise
    finally:
        launches.close()
    assert launches.first is not None
    answer = answer_of(race, len(bands), limits)
    tuned = Tuned(
        answer, bands, scale_of(launches.first, bands), launches.first.header,
        ["tcpx-mpi", *click.get_current_context().obj], launches.path,
        time.monotonic() - budget.began,
    )  # fmt: skip
    _show(tuned, today.settings, json_path, page, write)
    return int(ExitCode.OK if answer.decided or not answer.finalists[1:] else
               ExitCode.INCONCLUSIVE)  # fmt: skip


def _command_of(common: Sequence[str], point: Point) -> series.Command:
    """Today's settings with the changes of a point."""
    flags = {option.name: option.option for option in OPTIONS}
    words = [word for change in point if change.option
             for word in (flags[change.name], change.value)]  # fmt: skip
    variables = {change.name: change.value for change in point if not change.option}
    return launch_command([*common, *words], variables, "tune", "one file (--out FILE.h5)")


def _require_possible(space: Space, common: Sequence[str], settings: Settings) -> None:
    """Raises UsageError for a setting of a file that a run would refuse, or that is no plugin's."""
    from tcpx_mpi.plugin import find
    from tcpx_mpi.tune.space import OPTION, changes_of

    file = find.inspect(find.choose_plugin(settings, os.environ))
    for name in space.require_known(file):
        print(f"# warning: {file.name} does not name {name}: it may have no effect",
              file=sys.stderr)  # fmt: skip
    for change in changes_of(space):
        try:
            _command_of(common, (change,))
        except UsageError as error:
            raise UsageError(f"{OPTION}: {change}: {error}") from None


def _points(
    space: Space | None, header: RunHeader, common: Sequence[str], settings: Settings
) -> list[Point]:
    """The points of the space that are not today's settings: of a file all, of a kind those that
    a run would not refuse."""
    from tcpx_mpi.tune.space import OPTION, space_of_kind

    if space is not None:
        if found := space.singles(header):
            return found
        raise UsageError(f"{OPTION}: an empty space: all its values are today's; name others")
    assert settings.ranks is not None
    cores = max(1, len(os.sched_getaffinity(0)) // settings.ranks)
    points = space_of_kind(header.plugin_name, header.memory, cores).singles(header)
    return [point for point in points if _is_possible(common, point)]


def _is_possible(common: Sequence[str], point: Point) -> bool:
    try:
        _command_of(common, point)
    except UsageError:
        return False
    return True


def _require_profile(path: str) -> None:
    """Raises UsageError for a profile that could not be written."""
    from tcpx_mpi.records.new_file import require_new
    from tcpx_mpi.tune.profile import OPTION

    if not path.endswith(".toml"):
        raise UsageError(f"{OPTION} ({path}) is no FILE.toml, as --profile takes it")
    require_new(path, OPTION)


def _show(
    tuned: Tuned, settings: Settings, json_path: str | None, page: str | None, write: str | None
) -> None:
    """Prints and writes the answer."""
    from tcpx_mpi.report import write_json
    from tcpx_mpi.report.html import write_tune
    from tcpx_mpi.tune.document import tune_document
    from tcpx_mpi.tune.text import answer_lines

    terminal = own_terminal()
    columns = terminal.columns if terminal is not None and terminal.shows_table else None
    lines = answer_lines(tuned, columns)
    lines.append(f"# wrote {tuned.path}")
    if json_path is not None:
        lines.append(f"# wrote {write_json(json_path, tune_document(tuned))}")
    if page is not None:
        write_tune(tuned, page)
        lines.append(f"# wrote {page}")
    if write is not None:
        lines.append(_write_profile(tuned, settings, write))
    print("\n".join(lines))


def _write_profile(tuned: Tuned, settings: Settings, path: str) -> str:
    """Writes the profile, where there is something to recommend for all sizes; a line of it."""
    from tcpx_mpi.machine import profiles
    from tcpx_mpi.machine.topology import this_machine
    from tcpx_mpi.records.new_file import write_new_file
    from tcpx_mpi.tune.profile import OPTION, profile_text

    chosen = tuned.answer.compromise
    if chosen is None:
        return f"# not written: {path}, as nothing is recommended for all sizes"
    base = profiles.find_profile(settings.profile, this_machine())
    text = profile_text(tuned, chosen, base, datetime.date.today())
    write_new_file(path, lambda file: file.writelines([text.encode()]), OPTION)
    return f"# wrote {path}"
