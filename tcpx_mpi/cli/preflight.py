"""`tcpx-mpi preflight`: is this node, or every node of a hostfile, ready for a run?"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.config.options import parse_abi
from tcpx_mpi.errors import UsageError
from tcpx_mpi.folded import show
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.machine.profiles import AUTO
from tcpx_mpi.preflight.findings import CheckFinding, documents, encoded, exit_code, lines

_EXAMPLES = (
    "tcpx-mpi preflight",
    "tcpx-mpi preflight --hostfile hostfiles/tcpx.txt --plugin tcpx",
    "srun --mpi=pmix --ntasks-per-node=1 tcpx-mpi preflight --json",
)


@click.command("preflight", cls=CommandWithExamples, examples=_EXAMPLES)
@click.option("--hostfile", metavar="FILE", help="Check all nodes of this file, by mpirun.")
@click.option("--plugin", metavar="PLUGIN", help="As for `run`: the plugin to look at.")
@click.option("--abi", metavar="N", help="As for `run`: the version of its table [newest].")
@click.option("--profile", default=AUTO, metavar="PROFILE", help="As for `run` [auto].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--answer", is_flag=True, hidden=True)  # a rank that the parent started
def command(
    hostfile: str | None,
    plugin: str | None,
    abi: str | None,
    profile: str,
    as_json: bool,
    answer: bool,
) -> int:
    """Checks this node, or all nodes of a hostfile, before a run: what is wrong and what to do.

    One line a check and node. Under mpirun or srun it checks the nodes of its ranks. The exit code
    is 0 without a failure (warnings do not count), 3 if the plugin or MPI is missing, 4 if another
    check failed, 2 for a hostfile that cannot be.
    """
    from tcpx_mpi.preflight import story  # MPI and numpy
    from tcpx_mpi.preflight.facts import AskedPlugin

    asked = AskedPlugin(plugin, parse_abi(abi))
    findings: Sequence[CheckFinding] | None
    if under_launcher(os.environ) is not None:
        if hostfile is not None:
            raise UsageError(
                f"--hostfile ({hostfile}): a launcher has started this rank already; give the file "
                "to it, or start tcpx-mpi alone"
            )
        findings = story.check_as_rank(asked, profile)
        if answer:
            if findings is not None:
                print(story.ANSWER + encoded(findings), flush=True)
            return 0  # the parent's exit code counts; a rank's would be reported by mpirun
        if findings is None:
            return 0
    elif hostfile is not None:
        findings = story.check_nodes(hostfile, asked, profile, os.environ)
    else:
        findings = story.check_here(asked, profile, os.environ)
    code = exit_code(findings)
    if as_json:
        document = {"exit_code": int(code), "checks": documents(findings)}
        print(json.dumps(document, indent=2))
    else:
        show(lines(findings))
    return int(code)
