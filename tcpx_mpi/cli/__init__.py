"""The command line: arguments in, one line for an error, an exit code out."""

from __future__ import annotations

import importlib
import keyword
import os
import shlex
import sys
import time
from collections.abc import Sequence

import click

from tcpx_mpi.cli.help import HELP_NAMES, write_examples, write_exit_codes
from tcpx_mpi.cli.output import complete_output
from tcpx_mpi.errors import ExitCode, TcpxError, UsageError
from tcpx_mpi.folded import show
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.patterns import SMOKE
from tcpx_mpi.printable import printable, show_printable
from tcpx_mpi.slips import did_you_mean

#: A file each in this package, imported when it is asked for; each has `command`.
COMMANDS = {
    "run": "measure a pattern; `run smoke`: check that every rank reaches every other",
    "selftest": "measure this tool's own cost and this machine's noise, and its ceilings",
    "preflight": "check this node, or all nodes of a hostfile, before a run",
    "qualify": "say which nodes are fit, before a job: all pairs, loss, a loaded ring",
    "doctor": "say whether a job is on the fast path, by its log or by this machine",
    "topo": "show what this machine has, and where ranks would go",
    "env": "print the environment of a profile, for mpirun or a shell",
    "plugins": "list the plugins found here, and which one a run would use",
    "conform": "say whether a plugin keeps the contract, clause by clause",
    "tap": "say what a job moved and whose its time was, by files of the tap",
    "nixl": "time what NIXL's agents move over a plugin, and over UCX beside it",
    "simulate": "predict what a pattern would take, on any number of ranks",
    "report": "print the table of a result file",
    "ab": "run launches of two commands in turns, and compare them",
    "tune": "find settings that are better than today's, by launches in turns",
    "compare": "say whether one run is as fast as another, by its launches",
    "gate": "judge a result file by limits, or make limits out of several",
    "export": "write a result file as CSV, Parquet or JSON, with every sample",
    "import": "bring a log of nccl-tests into a result file, beside ours",
    "join": "put launches, or the journals of a run that died, into one file",
    "config": "print what a compiler needs for the library of sessions, libtcpx_p2p",
    "completion": "print what makes a shell complete commands, options and patterns",
}

#: What commands were called, what does it now, and how.
_NOW = {
    "ceiling": ("selftest --ceilings", "give it the same options"),
    "merge": ("join", "give it the same arguments"),
}

#: Commands whose --help has not all options that they take.
_TAKES_OPTIONS_OF_RUN = ("run", "ab", "tune")

#: How a shell asks what could stand at the cursor.
COMPLETE_VARIABLE = "_TCPX_MPI_COMPLETE"

#: Silent ranks leave this much later than the one that speaks for them: ranks of one launch come up
#: within a few tenths of a second of each other, and nobody waits long for a refusal.
_SPEAKERS_LEAD_S = 1.0

_LONGEST_ERROR = 4000

_EXAMPLES = (
    "tcpx-mpi run ring --ranks 4",
    "mpirun -n 4 tcpx-mpi run pair -b 1K -e 1G -f 2 --hdf5 pair.h5",
    "tcpx-mpi report pair.h5",
)


class _Commands(click.Group):
    """The commands, each imported only when it runs: `--help` loads neither MPI nor HDF5."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # A module whose name is a keyword of Python has a line under its end.
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = importlib.import_module(f"tcpx_mpi.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The one-line descriptions are here, so that listing the commands imports none of them.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        write_exit_codes(formatter)
        write_examples(formatter, _EXAMPLES)


@click.group(
    cls=_Commands,
    context_settings=HELP_NAMES,
    no_args_is_help=False,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, wanted: _show_version(ctx) if wanted else None,
    help="Package, build, plugins, MPI and Python.",
)
def _group() -> None:
    """Measures NCCL network plugins, such as GPUDirect-TCPX, between MPI ranks, without NCCL."""


def _show_version(ctx: click.Context) -> None:
    from tcpx_mpi.cli.version import version_lines

    if not ctx.resilient_parsing:
        show(version_lines())
        ctx.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line (default: this process's) and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == [SMOKE]:
        arguments.insert(0, "run")
    if arguments[1:] == ["--help-all"] and arguments[0] not in _TAKES_OPTIONS_OF_RUN:
        arguments[1] = "--help"  # which has all of theirs
    _complete_streams()
    if COMPLETE_VARIABLE in os.environ:  # a shell asks, by what `completion` printed
        from click.shell_completion import shell_complete

        asked = os.environ[COMPLETE_VARIABLE]
        return shell_complete(_group, {}, "tcpx-mpi", COMPLETE_VARIABLE, asked)
    try:
        return _run(arguments)
    except TcpxError as error:
        return _say(error)
    except (KeyboardInterrupt, click.Abort):
        return int(ExitCode.INTERRUPTED)


def _complete_streams() -> None:
    """Gives a process that was started without one a standard stream that nobody reads."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r"))
    complete_output()
    show_printable()


def _say(error: TcpxError) -> int:
    """Prints an error; of ranks that have no world to agree in, one of each node does."""
    launched = under_launcher(os.environ)
    if launched is None or launched.speaks_for_node:
        print(f"tcpx-mpi: error: {_in_a_line(str(error))}", file=sys.stderr, flush=True)
    else:
        # A launcher kills a job at the first rank that leaves, which must not be a silent one.
        time.sleep(_SPEAKERS_LEAD_S)
    return int(error.exit_code)


def _in_a_line(text: str) -> str:
    """An error as one line of a length that can be read: it may quote what a file holds."""
    half = _LONGEST_ERROR // 2
    if len(text) > _LONGEST_ERROR:
        text = f"{text[:half]} [{len(text) - 2 * half} letters] {text[-half:]}"
    return printable(text)


def _run(arguments: list[str]) -> int:
    """Runs a command; its exit code, and its error, whether anybody reads what it prints or not."""
    try:
        return _invoke(arguments)
    finally:
        sys.stdout.flush()


def _invoke(arguments: list[str]) -> int:
    try:
        # Not `_group.main`, which would end the process with codes of its own.
        with _group.make_context("tcpx-mpi", list(arguments), obj=arguments) as context:
            code = _group.invoke(context)
    except click.exceptions.Exit as done:  # --help and --version
        return done.exit_code
    except click.ClickException as error:
        refusal = UsageError(_one_line(error, arguments))
        if arguments[:1] not in (["run"], ["selftest"], ["nixl"]):
            raise refusal from None
        from tcpx_mpi.cli.run import refuse

        return refuse(refusal, arguments)
    return code if isinstance(code, int) else 0


def _one_line(error: click.ClickException, arguments: list[str]) -> str:
    """click's message in the form of ours, with the help that says more."""
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    behind = next((n for n, word in enumerate(arguments) if word in (*COMMANDS, SMOKE)), 0)
    if behind and arguments[0].startswith("-"):
        meant = shlex.join(["tcpx-mpi", *arguments[behind:], *arguments[:behind]])
        text = f"options stand behind the command: `{meant}`"
    elif isinstance(error, click.NoSuchOption):
        meant = did_you_mean(error.option_name, error.possibilities or [])
        text = f"unknown option {error.option_name}{meant}"
    elif arguments and arguments[0] in _NOW:
        command, how = _NOW[arguments[0]]
        return f"`tcpx-mpi {arguments[0]}` is now `tcpx-mpi {command}`: {how}"
    elif arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        meant = did_you_mean(arguments[0], [*COMMANDS, SMOKE])
        text = f"unknown command {arguments[0]}{meant}: expected one of {', '.join(COMMANDS)}"
    elif not arguments:
        text = f"no command given: expected one of {', '.join(COMMANDS)}"
    command = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    return f"{text}; see `{' '.join(['tcpx-mpi', command]).strip()} --help`"
