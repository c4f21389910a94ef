"""`tcpx-mpi completion SHELL`: the script that a shell evaluates."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tcpx_mpi.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Prints what makes SHELL complete commands, options, patterns and plugins.

    For bash, in ~/.bashrc: eval "$(tcpx-mpi completion bash)"
    """
    from tcpx_mpi.cli import COMPLETE_VARIABLE

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this version of click completes nothing for {shell}: install a newer")
    print(kind(ctx.find_root().command, {}, "tcpx-mpi", COMPLETE_VARIABLE).source())
    return 0
