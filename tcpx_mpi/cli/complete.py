"""Shell completion: patterns, plugins, files and option names that fit the cursor."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from tcpx_mpi import patterns
from tcpx_mpi.config.option import Option
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.plugin import find

_FILE = re.compile(r"libnccl-net-(\w+)\.so")

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_pattern(
    ctx: click.Context, param: click.Parameter, begun: str
) -> list[CompletionItem]:
    """The patterns that begin so, each with what it does."""
    return [
        CompletionItem(name, help=text)
        for name, text in patterns.offered().items()
        if name.startswith(begun)
    ]


def completions(option: Option) -> Completer:
    """A completer of the values of an option, by what its help shows of them."""
    words = option.metavar.split("|")
    fixed = [word for word in words if word.isalnum() and word == word.lower()]

    def complete(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        names = [*fixed, *(_plugins() if option.name == "plugin" else [])]
        items = [CompletionItem(name) for name in names if name.startswith(begun)]
        if "FILE" in words or (option.name == "plugin" and not items):
            items.append(CompletionItem(begun, type="file"))
        if "DIR" in words:
            items.append(CompletionItem(begun, type="dir"))
        return items

    return complete


def _plugins() -> list[str]:
    """The names that --plugin takes and that are here."""
    try:
        found = find.candidates(os.environ, find.bundled_dir())
    except TcpxError:  # no native part: nothing of ours to name
        return ["auto"]
    here = [choice for choice in found if os.path.exists(choice.path)]
    files = [_FILE.fullmatch(os.path.basename(choice.path)) for choice in here]
    # How a plugin is found is a name of it, or a variable.
    names = [choice.how for choice in here if choice.how == choice.how.lower()]
    return list(dict.fromkeys(["auto", *names, *(match[1] for match in files if match)]))
