"""`tcpx-mpi ab COMMON -- A -- B`: launches of two commands in turns, compared."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Sequence

import click

from tcpx_mpi.cli.compare_options import (
    comparison_options,
    limits_of,
    require_comparable,
    require_outputs,
    show_comparison,
)
from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.cli.launch_command import launch_command, require_checks
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.run import series

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_EXAMPLES = (
    "tcpx-mpi ab ring --ranks 4 -b 1M -e 1M -- --channels 1 -- --channels 2",
    "tcpx-mpi ab pair --ranks 2 --runs 20 -- --plugin old.so -- --plugin new.so",
    "tcpx-mpi ab pair --ranks 2 -- SOFTTCPX_CONGESTION=cubic -- SOFTTCPX_CONGESTION=bbr",
)


class _AbCommand(CommandWithExamples):
    """Leaves the words of `run` as they are, in the three parts that `--` makes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        parts: list[list[str]] = [[]]
        for word in args:
            if word == "--":
                parts.append([])
            else:
                parts[-1].append(word)
        ctx.meta["parts"] = parts
        return super().parse_args(ctx, parts[0])


@click.command(
    "ab",
    cls=_AbCommand,
    examples=_EXAMPLES,
    exit_codes=False,
    options_metavar="[OPTIONS]",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("common", nargs=-1, type=click.UNPROCESSED, metavar="RUN-ARGUMENTS -- A -- B")
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=10,
    metavar="K",
    help="Launches of each side [10].",
)
@click.option(
    "--out",
    type=click.Path(),
    metavar="NAME",
    help="Launches go to NAME-A.h5 and NAME-B.h5 [tcpx-mpi-ab-TIME].",
)
@comparison_options
@click.pass_context
def command(
    ctx: click.Context,
    common: tuple[str, ...],
    runs: int,
    out: str | None,
    tolerance: float,
    resolution: float,
    json_path: str | None,
    page: str | None,
    anyway: bool,
) -> int:
    """Runs launches of A and B in turns (ABBA), with --ranks N, and compares them.

    RUN-ARGUMENTS are those of `run` and hold for both; A and B are what they differ in: more of
    them, after any variables as NAME=VALUE. Exit codes are those of `compare`.
    """
    limits = limits_of(tolerance, resolution)
    parts = ctx.meta["parts"]
    if len(parts) != 3:
        raise UsageError(
            f"ab needs two sides, found {len(parts) - 1}: write it like `{_EXAMPLES[0]}`"
        )
    require_outputs(json_path, page)
    first, second = (_command(common, side) for side in parts[1:])
    if not anyway:
        _require_comparable(first.settings, second.settings)
    name = out or f"tcpx-mpi-ab-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    with contextlib.ExitStack() as stack:
        a, b = (
            stack.enter_context(
                contextlib.closing(series.Series(side, f"{name}-{which}.h5", runs, "--out"))
            )
            for side, which in ((first, "A"), (second, "B"))
        )
        code = series.run_in_turns(a, b, runs)
    if code != ExitCode.OK:
        return code
    from tcpx_mpi.compare import compare_runs
    from tcpx_mpi.records import read_run

    found = read_run(a.path), read_run(b.path)
    require_comparable(*found, anyway=anyway)
    return show_comparison(compare_runs(*found, limits), json_path, page)


def _require_comparable(first: Settings, second: Settings) -> None:
    """Refuses, before any launch, what could not be compared after all of them."""
    for what, ours, theirs in (
        ("pattern", first.pattern, second.pattern),
        ("--ranks", first.ranks, second.ranks),
        ("sizes", first.sizes, second.sizes),
        ("way to unpack", first.unpack_mode(), second.unpack_mode()),
        ("timing (-z)", first.mode(), second.mode()),
        *((what, ours, second.of_times()[what]) for what, ours in first.of_times().items()),
    ):
        if ours != theirs:
            raise UsageError(
                f"A and B have another {what} ({ours}, {theirs}): not comparable; "
                "--anyway compares all the same"
            )
    for settings in (first, second):
        require_checks(settings, "ab", "; --anyway compares all the same")


def _command(common: Sequence[str], side: Sequence[str]) -> series.Command:
    """One side as a command to launch. Raises UsageError for what `run` would refuse."""
    count = next((n for n, word in enumerate(side) if not _VARIABLE.match(word)), len(side))
    variables = dict(word.split("=", 1) for word in side[:count])
    files = "NAME-A.h5 and NAME-B.h5 (--out NAME), for `report`, `export` and `compare`"
    return launch_command([*common, *side[count:]], variables, "ab", files)
