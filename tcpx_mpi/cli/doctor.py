"""`tcpx-mpi doctor`: is this job, or the log of one, really on the fast path?"""

from __future__ import annotations

import json
import os

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.folded import show
from tcpx_mpi.machine.profiles import AUTO

_EXAMPLES = (
    "tcpx-mpi doctor slurm-4711.out",
    "kubectl logs -l job-name=train --tail=-1 | tcpx-mpi doctor -",
    "tcpx-mpi doctor",
)
_REMEDY = "give what NCCL or nccl-tests printed"


@click.command("doctor", cls=CommandWithExamples, examples=_EXAMPLES)
@click.argument("logs", nargs=-1, type=click.Path(), metavar="[LOG...]")
@click.option("--plugin", metavar="PLUGIN", help="Without a log: the plugin to look at.")
@click.option("--profile", default=AUTO, metavar="PROFILE", help="As for `run` [auto].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(logs: tuple[str, ...], plugin: str | None, profile: str, as_json: bool) -> int:
    """Says whether a job is on the fast path (TCPX, FasTrak) or on sockets, by its LOG.

    LOG is what NCCL or nccl-tests printed with NCCL_DEBUG=INFO, in whatever it is wrapped; several
    are the ranks of one job; - is standard input. Without one this machine is looked at. The exit
    code is 0 if every rank was seen on the fast path, 9 off it, 11 if it cannot be told.
    """
    from tcpx_mpi.doctor import here, judge, lines, text
    from tcpx_mpi.inputs import Log
    from tcpx_mpi.machine import profiles

    if logs:
        opened = [(name, Log(name, remedy=_REMEDY).lines(lines.FILE_LETTERS)) for name in logs]
        found = list(lines.read_lines(opened))
        verdict = judge.judge(found, profiles.recipes())
    else:
        verdict = here.judge_here(plugin, profile, os.environ)
    if as_json:
        print(json.dumps(text.document(verdict), indent=2))
    else:
        show(text.lines(verdict))
    return int(verdict.code)
