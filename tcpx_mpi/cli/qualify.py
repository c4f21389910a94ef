"""`tcpx-mpi qualify`: is this set of nodes fit, now?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.config.options import parse_abi
from tcpx_mpi.config.parsers import seconds
from tcpx_mpi.errors import BelowGate, ExitCode, UsageError
from tcpx_mpi.folded import show
from tcpx_mpi.launch.launcher_rank import srun_without_pmi, under_launcher
from tcpx_mpi.machine.profiles import AUTO

_EXAMPLES = (
    "tcpx-mpi qualify --hostfile hostfiles/tcpx.txt --within 90s",
    "srun --mpi=pmix --ntasks-per-node=8 tcpx-mpi qualify",
    "tcpx-mpi qualify --ranks 16 --prom /var/lib/node_exporter/qualify.prom",
)


@click.command("qualify", cls=CommandWithExamples, examples=_EXAMPLES)
@click.option("--hostfile", metavar="FILE", help="The nodes, each with its slots.")
@click.option(
    "--ranks", type=click.IntRange(2, 4096), metavar="N",
    help="Number of ranks, on this machine alone.",
)  # fmt: skip
@click.option(
    "--within", default="90s", show_default=True, metavar="TIME",
    help="End by then; what did not fit is not judged.",
)  # fmt: skip
@click.option(
    "--pairs", type=click.IntRange(1), default=2048, show_default=True, metavar="N",
    help="Of more pairs of ranks than this, a sample: neighbours and others.",
)  # fmt: skip
@click.option(
    "--gate", default="any-machine", show_default=True, metavar="FILE|NAME",
    help="Limits that the ring must meet, as for `run`.",
)  # fmt: skip
@click.option("--soak", default="0s", show_default=True, metavar="TIME", help="Longer ring, last.")
@click.option("--plugin", metavar="PLUGIN", help="As for `run`.")
@click.option("--abi", metavar="N", help="As for `run` [newest].")
@click.option("--memory", metavar="KIND", help="As for `run` [auto].")
@click.option("--profile", default=AUTO, metavar="PROFILE", help="As for `run` [auto].")
@click.option("--json", "json_path", type=click.Path(), metavar="FILE", help="Verdicts as JSON.")
@click.option("--junit", "junit_path", type=click.Path(), metavar="FILE", help="As JUnit's XML.")
@click.option(
    "--prom", "prom_path", type=click.Path(), metavar="FILE.prom", help="Verdicts for Prometheus."
)
def command(
    hostfile: str | None, ranks: int | None, within: str, pairs: int, gate: str, soak: str,
    plugin: str | None, abi: str | None, memory: str | None, profile: str,
    json_path: str | None, junit_path: str | None, prom_path: str | None,
) -> int:  # fmt: skip
    """Says of each node whether it is fit for a job now: fit, unfit by which evidence, not judged.

    Preflight on all nodes, a message between every two ranks, `pairs --all` (who is slow, who loses
    packets) and a ring beside plain TCP that must meet a gate. It starts the ranks itself, several
    times; under mpirun or srun on the nodes of their ranks. Exit code: 0 all fit, 9 one is not, 12
    the time was over before all was looked at, 11 the machines are too noisy to tell.
    """
    from tcpx_mpi.exchange.junit import write_junit
    from tcpx_mpi.exchange.prometheus import require_prom, write_prom
    from tcpx_mpi.qualify import launched, results
    from tcpx_mpi.qualify.story import Asked, Qualifier
    from tcpx_mpi.records import require_writable
    from tcpx_mpi.report import write_json
    from tcpx_mpi.run.admission import WITHOUT_PMI

    environ: Mapping[str, str] = os.environ
    nodes: Mapping[str, int] | None = None
    if srun_without_pmi(environ):
        raise UsageError(WITHOUT_PMI)
    if under_launcher(environ) is not None:
        if hostfile is not None or ranks is not None:
            raise UsageError(
                "a launcher has started this rank, and its nodes are looked at: leave out "
                "--hostfile and --ranks"
            )
        nodes = launched.nodes_of_ranks(profile, os.environ)
        if nodes is None:
            return 0
        environ = launched.outside(environ)
        ranks = sum(nodes.values()) if len(nodes) == 1 else None
    elif (hostfile is None) == (ranks is None):
        raise UsageError("qualify needs nodes: give --hostfile FILE or --ranks N, one of them")
    for option, path in (("--json", json_path), ("--junit", junit_path), ("--prom", prom_path)):
        if path is not None:
            require_writable(path, option)
    if prom_path is not None:
        require_prom(prom_path)
    with contextlib.ExitStack() as stack:
        if nodes is not None and ranks is None:
            hostfile = stack.enter_context(launched.as_hostfile(nodes, environ))
        asked = Asked(
            hostfile, ranks, seconds()("--within", within), gate, seconds(True)("--soak", soak),
            pairs, profile, parse_abi(abi), plugin, memory,
        )  # fmt: skip
        qualifier = Qualifier(asked, environ)
    found = qualifier.run()
    show(found.lines())
    if json_path is not None:
        print(f"# wrote {write_json(json_path, found.document())}")
    if junit_path is not None:
        print(f"# wrote {write_junit(junit_path, {'qualify': results.cases(found)})}")
    if prom_path is not None:
        print(f"# wrote {write_prom(prom_path, results.metrics(found, os.environ))}")
    if found.exit_code is ExitCode.BELOW_GATE:
        raise BelowGate(results.in_short(found))
    return int(found.exit_code)
