"""`tcpx-mpi env`: what a profile sets, for mpirun, for a shell, with its sources, or as a diff."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.errors import UsageError
from tcpx_mpi.folded import show, terminal_columns
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.topology import Topology, open_tree, read_topology
from tcpx_mpi.printable import printable

_FORMATS = ("shell", "mpirun", "json")
#: What --diff alone compares with.
_LIVE = "environment"
#: What a shell would change in a word that comes out of $(...).
_UNSAFE = frozenset(" \t\n*?[")
_EXAMPLES = (
    "mpirun $(tcpx-mpi env --profile a3-highgpu-8g --format mpirun) tcpx-mpi run mesh",
    'eval "$(tcpx-mpi env --profile a3-highgpu-8g)"',
    "tcpx-mpi env --profile a3-highgpu-8g@2026-06-22 --diff",
)


@click.command("env", cls=CommandWithExamples, examples=_EXAMPLES, exit_codes=False)
@click.option("--profile", default=profiles.AUTO, metavar="PROFILE", help="As for `run` [auto].")
@click.option(
    "--format", "form", default="shell", metavar="|".join(_FORMATS), help="Format [shell]."
)
@click.option(
    "--diff",
    "other",
    is_flag=False,
    flag_value=_LIVE,
    metavar="[PROFILE]",
    help="Print what differs from the environment here, or from another PROFILE.",
)
@click.option("--from", "recorded", metavar="FILE", help="A machine that `topo --record` recorded.")
def command(profile: str, form: str, other: str | None, recorded: str | None) -> int:
    """Prints the variables of a profile; those that are set already keep their value.

    A name with a date is the vendor's recipe of that day: a3-highgpu-8g@2026-06-22.
    """
    if form not in _FORMATS:
        raise UsageError(f"--format ({form}) is unknown: use one of {', '.join(_FORMATS)}")
    topology = read_topology(open_tree(recorded))
    found = profiles.find_profile(profile, topology)
    if found is None:
        print(f"# no profile: none fits this machine, of {', '.join(profiles.undated())}",
              file=sys.stderr)  # fmt: skip
    if other is not None:
        _print_differences(found, other, topology)
        return 0
    if found is not None and found.run:
        options = ", ".join(f"{name} = {value}" for name, value in found.run.items())
        print(f"# run options of this profile, which NCCL has none of: {options}", file=sys.stderr)
    variables = profiles.environment_of(found, topology, os.environ)
    if form == "json":
        listed = [{"name": n, "value": v, "source": source} for n, v, source in variables]
        print(json.dumps(listed, indent=2))
    elif form == "shell":
        for name, value, source in variables:
            # Of the source, which has a path, nothing may end the comment.
            print(f"export {name}={shlex.quote(value)}  # {printable(source)}")
    else:
        _print_for_mpirun(variables)
    return 0


def _print_for_mpirun(variables: Sequence[profiles.Variable]) -> None:
    """Words for `mpirun $(...)`, one variable a line, unquoted as such words have to be."""
    for name, value, source in variables:
        if _UNSAFE & set(value):
            raise UsageError(
                f"{name} ({value}, {source}) has a space or a pattern, which $(...) would change: "
                "use --format shell, and `mpirun -x` with the names"
            )
        if name in profiles.MPI_OF_DAEMONS:
            # -x reaches the ranks, not mpirun.
            words = f"export {name}={shlex.quote(value)}"
            print(f"# also set for mpirun itself: {words}", file=sys.stderr)
        else:
            print(f"-x {name}={value}")


def _print_differences(profile: profiles.Profile | None, other: str, topology: Topology) -> None:
    """One line for each variable of either side that the other has not, or has otherwise."""
    wanted = {} if profile is None else dict(profile.variables(topology))
    if other == _LIVE:
        # A profile does not unset what it does not name: only its own variables are compared.
        have, where = {name: os.environ.get(name, "").strip() for name in wanted}, "here"
    else:
        found = profiles.find_profile(other, topology)
        have = {} if found is None else dict(found.variables(topology))
        where = other
    names = [n for n in dict.fromkeys([*wanted, *have]) if wanted.get(n, "") != have.get(n, "")]
    source = "no profile" if profile is None else profile.source.removeprefix("profile ")
    rows = [("# variable", source, where)]
    rows += [(name, wanted.get(name) or "not set", have.get(name) or "not set") for name in names]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:<{widths[0]}}  {one:<{widths[1]}}  {two}" for name, one, two in rows]
    columns = terminal_columns()
    if columns is not None and columns < max(map(len, lines)):
        lines = [f"{name}: {one} | {two}" for name, one, two in rows]
    show([*lines, f"# {len(names)} of {len({*wanted, *have})} variables differ"])
