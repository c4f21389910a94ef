"""`tcpx-mpi run PATTERN`: as a rank under a launcher, or as the parent that starts mpirun."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import math
import os
import socket
import sys
from collections.abc import Mapping, Sequence

import click

from tcpx_mpi import patterns
from tcpx_mpi.cli.complete import complete_pattern, completions
from tcpx_mpi.cli.help import write_examples, write_exit_codes, write_options
from tcpx_mpi.config.options import IGNORED, OPERATION, OPTIONS, VARIABLES_ONLY
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import TcpxError, UsageError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.placement_file import read_placement
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.plugin import find
from tcpx_mpi.plugin.unsafe_settings import refuse_fatal_values
from tcpx_mpi.run import series

_EXAMPLES = (
    "tcpx-mpi run ring --ranks 4",
    "mpirun -n 2 tcpx-mpi run pair -b 1K -e 1G -f 2 -n 50 -w 5",
    "mpirun -n 16 --hostfile HOSTS tcpx-mpi run mesh --plugin tcpx --channels 4",
)
_OPTIONS = [option for option in OPTIONS if option.group != VARIABLES_ONLY]
_NAMES = {"pattern", *(option.name for option in _OPTIONS)}
#: nccl-tests' variables that choose a rank's group: never ignored, as rows would be of other ranks.
_SPLITS = ("NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK")
#: Options that may stand without a value, which then is 1.
_MAY_BE_BARE = {flag for option in _OPTIONS if option.may_be_bare for flag in option.flags}


class _RunCommand(click.Command):
    """Options by the table of options, help by its groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_bare_values(args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Patterns"):
            formatter.write_dl(list(patterns.NAMES.items()))
        write_options(formatter)
        write_exit_codes(formatter)
        write_examples(formatter, _EXAMPLES)


def with_bare_values(args: Sequence[str]) -> list[str]:
    """Gives `-I` and its like the 1 that they mean where no 0 or 1 follows."""
    complete: list[str] = []
    for position, word in enumerate(args):
        complete.append(word)
        if word in _MAY_BE_BARE and args[position + 1 : position + 2] not in (["0"], ["1"]):
            complete.append("1")
    return complete


@click.pass_context
def _callback(ctx: click.Context, /, **values: str | None) -> int:
    arguments: list[str] = ctx.obj
    ignored = [flag for flag in IGNORED if values.pop(f"ignored{flag[1:]}") is not None]
    rank = mpirun.under_launcher(os.environ)
    if rank is None:
        return _as_parent(values, ignored, arguments)
    try:
        validated = mpirun.PARENT_VARIABLE in os.environ
        settings = validate(values, os.environ, rank.size, outputs=rank.rank == 0 and not validated)
        if settings.runs > 1 and not settings.launch:
            raise UsageError(
                "--runs starts mpirun itself: give --ranks N and no mpirun, or start the launches "
                "yourself and put their files together with `tcpx-mpi join`"
            )
        settings = series.part_of_series(settings, os.environ)
    except TcpxError as error:
        return _as_rank(error, arguments)
    if rank.rank == 0 and settings.launch <= 1:
        warn(ignored, settings)
    return _as_rank(settings, arguments)


def refuse(error: UsageError, arguments: list[str]) -> int:
    """What becomes of a command line that cannot be parsed: ranks say it once, between them."""
    if mpirun.under_launcher(os.environ) is None:
        raise error
    return _as_rank(error, arguments)


def validate(
    values: Mapping[str, str | None],
    environ: Mapping[str, str],
    world: int | None,
    outputs: bool = True,
) -> Settings:
    """The settings, with everything refused that one process can see without MPI or a plugin.

    `world` is the number of ranks where it is known; `outputs`: this process will write results.
    """
    settings = with_ranks_of_launcher(_load(values, environ), world)
    require_startable(settings, environ, world)
    _refuse_limit(environ)
    _refuse_unwritable(settings, outputs)
    return settings


def with_ranks_of_launcher(settings: Settings, world: int | None) -> Settings:
    """The settings, their ranks those of the launcher where a file says another number of them.

    A file that `--save-config` wrote of a run with --ranks is good under mpirun, too.
    """
    source = settings.sources["ranks"]
    if world is None or settings.ranks in (None, world) or not source.startswith("file"):
        return settings
    told = f"by the launcher, not {settings.ranks} of {source.removesuffix(': ranks')}"
    sources = {**settings.sources, "ranks": told}
    return dataclasses.replace(settings, ranks=world, sources=sources)


def require_startable(settings: Settings, environ: Mapping[str, str], world: int | None) -> None:
    """Refuses what cannot be with this number of ranks (None: not known yet) or environment."""
    if settings.ranks is not None and world is not None and settings.ranks != world:
        raise UsageError(
            f"--ranks ({settings.ranks}) is not the number of ranks of the launcher ({world}): "
            "leave --ranks out under mpirun"
        )
    _refuse_split(environ)
    if world is not None and (refusal := patterns.load(settings.pattern).refuse(world)):
        raise UsageError(refusal)
    find.prepare_environment(settings, environ)
    if settings.placement_path is not None:
        read_placement(settings.placement_path)
    if settings.gate_path is not None:
        from tcpx_mpi.gates import read_gate, require_judgeable  # numpy

        require_judgeable(read_gate(settings.gate_path), settings, world)
    if settings.profile not in (profiles.AUTO, profiles.NONE):
        profile = profiles.find_profile(settings.profile, this_machine())
        if profile is not None:
            profile.require(this_machine(), socket.gethostname())


def warnings(ignored: Sequence[str], settings: Settings) -> list[str]:
    """What was given and has no effect; at most one line."""
    pattern = patterns.find(settings.pattern)
    parts = [f"{' '.join(ignored)} (nothing of the kind here)"] if ignored else []
    given = [
        option.letter
        for option in _OPTIONS
        if option.group == OPERATION and settings.sources[option.field].startswith("command line")
    ]
    if given:
        parts.append(f"{' '.join(given)} ({settings.pattern} moves bytes, without arithmetic)")
    for field, has_effect, why in (
        ("all_pairs", bool(pattern and pattern.rounds), "it is of the pattern pairs"),
        ("unpack", settings.memory != "host", "host memory is not unpacked"),
        ("nccl_presets", "nccl" in settings.against, "it is of --against nccl"),
        ("nccl_env", "nccl" in settings.against, "it is of --against nccl"),
    ):
        if not has_effect and settings.sources[field].startswith("command line"):
            parts.append(f"{settings.sources[field].removeprefix('command line ')} ({why})")
    if settings.ci == 0 and settings.sources["max_time_s"].startswith("command line"):
        parts.append("--max-time (it bounds --ci, which is not given)")
    return [f"ignored: {', '.join(parts)}"] if parts else []


def warn(ignored: Sequence[str], settings: Settings) -> None:
    """Prints `warnings`; one process does."""
    for line in warnings(ignored, settings):
        print(f"# warning: {line}", file=sys.stderr, flush=True)


def _as_rank(settings: Settings | TcpxError, arguments: Sequence[str]) -> int:
    from tcpx_mpi.run.benchmark import Benchmark  # MPI and numpy
    from tcpx_mpi.run.story import run_rank

    return run_rank(settings, ["tcpx-mpi", *arguments], Benchmark)


def _as_parent(
    values: Mapping[str, str | None], ignored: Sequence[str], arguments: Sequence[str]
) -> int:
    """Finds every mistake that can be found here, then starts mpirun; the ranks say the rest."""
    settings = _load(values, os.environ)
    ranks = settings.ranks
    if ranks is None:
        raise UsageError(how_to_start(os.environ, "run", settings.pattern))
    settings = validate(values, os.environ, ranks)
    require_loadable(settings, os.environ)
    if settings.runs == 1:
        return start_mpirun(settings, ranks, arguments)
    series.refuse_series(settings)
    from tcpx_mpi.records import default_run_name

    path = settings.hdf5_path or default_run_name(settings.pattern, datetime.datetime.now())
    command = series.Command(settings, arguments, environment(settings, os.environ))
    return series.run_series(command, path)


def require_loadable(settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuses, before ranks are started, a plugin that cannot be, or not with these variables, and
    a GPU's memory where ranks are to be here and no GPU is."""
    file = find.inspect(find.choose_plugin(settings, environ))
    refuse_fatal_values(file.name, environ)
    if settings.memory == "cuda" and mpirun.ranks_are_here(environ):
        from tcpx_mpi.machine.gpu.choice import obstacle_of_host

        if obstacle := obstacle_of_host(socket.gethostname()):
            raise UsageError(f"--memory cuda: {obstacle}; or use --memory host")


def settings_of(arguments: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The validated settings of a `run` with these arguments, which must have --ranks.

    Raises UsageError and what click raises of a bad option.
    """
    # With a parent: it has the names of the help option, which click keeps for good.
    above = click.get_current_context()
    with command.make_context("run", list(arguments), parent=above) as context:
        values = {name: value for name, value in context.params.items() if name in _NAMES}
    settings = _load(values, environ)
    if settings.ranks is None:
        raise UsageError("launches need --ranks N: each one starts mpirun")
    settings = validate(values, environ, settings.ranks)
    require_loadable(settings, environ)
    return settings


def start_mpirun(settings: Settings, ranks: int, arguments: Sequence[str]) -> int:
    """Starts the ranks; returns their exit code."""
    return mpirun.start_mpirun(ranks, arguments, environment(settings, os.environ))


def environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for mpirun, with MPI on the control NIC of the profile."""
    made = dict(environ)
    profiles.keep_mpi_on_control_nic(settings.profile, this_machine(), made)
    return made


def how_to_start(environ: Mapping[str, str], *command: str) -> str:
    """What to type, to somebody who started one process that nobody meets."""
    if mpirun.srun_without_pmi(environ):
        return (
            "srun started this without PMI, so ranks cannot meet: use `srun --mpi=pmix`, or mpirun"
        )
    return (
        f"{command[0]} needs at least 2 ranks: "
        f"start it with `mpirun -n 4 tcpx-mpi {' '.join(command)}`, or add --ranks 4"
    )


def _load(values: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    # A mistyped pattern is said first; without one, the configuration file may have it.
    if values["pattern"] is not None:
        _refuse_pattern(values["pattern"])
    settings = load_settings(values, environ)
    _refuse_pattern(settings.pattern)
    return settings


def _refuse_pattern(name: str) -> None:
    known = ", ".join(patterns.NAMES)
    if not name:
        raise UsageError(f"no pattern given: use one of {known}, like `tcpx-mpi run ring`")
    if name not in patterns.NAMES:
        close = difflib.get_close_matches(name.lower(), patterns.NAMES, n=1)
        suggestion = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"unknown pattern {name}{suggestion}: use one of {known}")


def _refuse_split(environ: Mapping[str, str]) -> None:
    """Refuses nccl-tests' ways to make several groups of the ranks: one group has a table here."""
    for name in _SPLITS:
        if text := environ.get(name, "").strip():
            raise UsageError(
                f"{name} ({text}) would split the ranks into groups that run side by side, which "
                "tcpx-mpi does not: unset it, and start each group with an mpirun of its own"
            )


def _refuse_limit(environ: Mapping[str, str]) -> None:
    text = environ.get("NCCL_TESTS_MIN_BW")
    if text is None:
        return
    try:
        usable = 0 <= float(text) < math.inf
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(
            f"NCCL_TESTS_MIN_BW ({text}) is no bandwidth in GB/s: give a number, or unset it"
        )


def _refuse_unwritable(settings: Settings, outputs: bool) -> None:
    from tcpx_mpi.records import require_creatable, require_writable

    # Every node has its own spool; results are written where rank 0 is.
    require_writable(os.path.join(settings.spool, "journal"), "--spool")
    if not outputs:
        return
    for path, option in (
        (settings.json_path, "-J/--output_file"),
        (settings.csv_path, "--csv"),
        (settings.save_config_path, "--save-config"),
        (None if settings.events_to_stdout() else settings.json_stream_path, "--json-stream"),
    ):
        if path is not None:
            require_creatable(path, option)
    if settings.hdf5_path != "none":
        require_creatable(settings.hdf5_path or "result.h5", "--hdf5")


def _parameters() -> list[click.Parameter]:
    # All values stay text until `load_settings`, which knows their limits and their sources.
    options: list[click.Parameter] = [
        # Not required by click, so that our own line lists the patterns.
        click.Argument(
            ["pattern"], required=False, metavar="PATTERN", shell_complete=complete_pattern
        )
    ]
    options += [
        click.Option(
            [option.name, *option.flags], metavar=option.metavar, shell_complete=completions(option)
        )
        for option in _OPTIONS
    ]
    # -D and the like: the name must not clash with that of a option in another case.
    options += [
        click.Option([f"ignored{letter[1:]}", letter, long], hidden=True)
        for letter, long in IGNORED.items()
    ]
    return options


command = _RunCommand(
    "run",
    params=_parameters(),
    callback=_callback,
    options_metavar="[OPTIONS]",
    help="Measures PATTERN between all ranks and checks every byte.\n\n"
    "Start it under mpirun, or alone with --ranks N. A command-line option wins over an "
    "environment variable, which wins over a --config file, which wins over the default [in "
    "brackets].",
)
