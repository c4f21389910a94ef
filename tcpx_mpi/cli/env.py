"""`tcpx-mpi env`: what a profile sets, for mpirun, for a shell, or with its sources."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence

import click

from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.topology import open_tree, read_topology

_FORMATS = ("shell", "mpirun", "json")
#: What a shell would change in a word that comes out of $(...).
_UNSAFE = frozenset(" \t\n*?[")


@click.command("env")
@click.option("--profile", default=profiles.AUTO, metavar="PROFILE", help="As for `run` [auto].")
@click.option(
    "--format", "form", default="shell", metavar="|".join(_FORMATS), help="How to print [shell]."
)
@click.option("--from", "recorded", metavar="FILE", help="A machine that `topo --record` recorded.")
def command(profile: str, form: str, recorded: str | None) -> int:
    """Prints the variables of a profile; what is set already stays as it is.

    \b
    mpirun $(tcpx-mpi env --profile a3-highgpu-8g --format mpirun) tcpx-mpi run mesh
    eval "$(tcpx-mpi env --profile a3-highgpu-8g)"
    """
    if form not in _FORMATS:
        raise UsageError(f"--format ({form}) is unknown: use one of {', '.join(_FORMATS)}")
    topology = read_topology(open_tree(recorded))
    found = profiles.find_profile(profile, topology)
    if found is None:
        print(f"# no profile: none fits this machine, of {', '.join(profiles.shipped())}",
              file=sys.stderr)  # fmt: skip
    variables = profiles.environment_of(found, topology, os.environ)
    if form == "json":
        listed = [{"name": n, "value": v, "source": source} for n, v, source in variables]
        print(json.dumps(listed, indent=2))
    elif form == "shell":
        print("".join(f"export {n}={shlex.quote(v)}  # {source}\n" for n, v, source in variables),
              end="")  # fmt: skip
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
            print(f"# also set for mpirun itself: export {name}={value}", file=sys.stderr)
        else:
            print(f"-x {name}={value}")
