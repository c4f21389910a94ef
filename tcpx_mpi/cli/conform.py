"""`tcpx-mpi conform`: whether a plugin keeps the contract, clause by clause."""

from __future__ import annotations

import os

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.config.options import parse_abi
from tcpx_mpi.errors import BelowGate, SetupFailed, UsageError
from tcpx_mpi.folded import terminal_columns

_EXAMPLES = (
    "tcpx-mpi conform ./libnccl-net-mine.so",
    "tcpx-mpi conform softtcpx --abi all --junit conform.xml",
    "tcpx-mpi conform --explain full",
)
_ALL = "all"


@click.command("conform", cls=CommandWithExamples, examples=_EXAMPLES)
@click.argument("plugin", required=False)
@click.option("--abi", metavar="N|all", help="The version of its table [newest].")
@click.option(
    "--memory", type=click.Choice(("host", "emulated", "cuda")), default="host", show_default=True,
    help="Memory of the messages; cuda: of the first visible GPU.",
)  # fmt: skip
@click.option("--only", metavar="CLAUSE", help="This clause, and what it needs.")
@click.option("--explain", metavar="CLAUSE", help="Explain a clause (`all`: each), and exit.")
@click.option(
    "--expect", metavar="FILE", help="TOML file of known faults of this plugin, which do not count."
)
@click.option("--quick", is_flag=True, help="Leave out gigabytes and thousands of messages.")
@click.option(
    "--deadline", metavar="S", type=click.FloatRange(min=1, max=3600), default=60,
    show_default=True, help="Seconds that a clause may take.",
)  # fmt: skip
@click.option("--json", "json_path", metavar="FILE", help="Write the verdicts as JSON.")
@click.option("--junit", "junit_path", metavar="FILE", help="Write the verdicts as JUnit's XML.")
def command(
    plugin: str | None, abi: str | None, memory: str, only: str | None, explain: str | None,
    expect: str | None, quick: bool, deadline: float, json_path: str | None,
    junit_path: str | None,
) -> int:  # fmt: skip
    """Tries a plugin against the contract of its ABI version, clause by clause.

    Each clause runs in a process of its own: a crash, a hang or an exit is a verdict. PLUGIN is a
    path, or a name as for `run`.
    """
    from tcpx_mpi.conform import expectations, report
    from tcpx_mpi.conform.clause import NEWEST, OLDEST
    from tcpx_mpi.conform.run import Request, try_versions
    from tcpx_mpi.conform.table import BY_NAME, CLAUSES

    for option, name in (("--only", only), ("--explain", explain)):
        if name is not None and name not in BY_NAME and (option, name) != ("--explain", _ALL):
            raise UsageError(f"{option}: {expectations.no_clause(name)}")
    if explain is not None:
        chosen = CLAUSES if explain == _ALL else (BY_NAME[explain],)
        columns = terminal_columns()
        print("\n\n".join(report.explained(clause, columns) for clause in chosen))
        return 0
    if plugin is None:
        raise UsageError("conform needs the PLUGIN: a path, or a name that `plugins` lists")
    wanted = range(NEWEST, OLDEST - 1, -1) if abi == _ALL else (parse_abi(abi),)
    known = expectations.of_file(expect) if expect is not None else {}
    request = Request(plugin, wanted, memory, only, known, quick, deadline)
    versions = try_versions(request, os.environ)
    if json_path is not None:
        report.write_json(json_path, versions, memory)
    if junit_path is not None:
        report.write_junit(junit_path, versions)
    for version in versions:
        if result := version.cannot_start:
            raise SetupFailed(
                f"{version.name}: its table of v{version.abi} does not start "
                f"({result.clause.name}): {result.outcome.reason}"
            )
    if failed := [result.clause.name for version in versions for result in version.failed]:
        names = ", ".join(dict.fromkeys(failed))
        raise BelowGate(
            f"{len(failed)} {'clause' if len(failed) == 1 else 'clauses'} failed: {names}"
        )
    return 0
