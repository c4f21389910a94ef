"""`--help` beyond click's own part: options by group, exit codes, examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tcpx_mpi.config.option import GROUPS, VARIABLES_ONLY, Option
from tcpx_mpi.config.options import IGNORED, OPTIONS
from tcpx_mpi.errors import EXIT_CODE_MEANING
from tcpx_mpi.folded import folded

#: A command keeps the names of its help option from its first context on, so each context that may
#: be the first has these.
HELP_NAMES = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


#: Whether a context's help has all options.
ALL = f"{__name__}.all"
#: What people use; `--help-all` has the others.
_USED = (
    "ranks", "sizes", "iters", "warmup_iters", "plugin", "memory", "channels", "against", "runs",
    "hdf5",
)  # fmt: skip


def write_used_options(formatter: click.HelpFormatter) -> None:
    """The ten options of a run that people use, and where the others are."""
    of_name = {option.name: option for option in OPTIONS}
    with formatter.section("Options that people use"):
        formatter.write_dl([_entry(of_name[name]) for name in _USED])
        formatter.write_dl([("--help-all", f"all {len(OPTIONS)} options, and their variables")])


def write_options(formatter: click.HelpFormatter) -> None:
    """All options of a run, by group, each with its default and its variables."""
    for group in GROUPS:
        with formatter.section(group):
            formatter.write_dl([_entry(option) for option in OPTIONS if option.group == group])
    with formatter.section("Environment only"):
        only = [option for option in OPTIONS if option.group == VARIABLES_ONLY]
        formatter.write_dl([(", ".join(option.variables), option.help) for option in only])
    with formatter.section("Accepted and ignored, as of nccl-tests"):
        formatter.write_text(" ".join(IGNORED))


def write_exit_codes(formatter: click.HelpFormatter) -> None:
    """Every exit code, the same on all ranks."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(int(code)), text) for code, text in EXIT_CODE_MEANING.items()])


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Commands to copy; one that does not fit goes on behind a backslash."""
    with formatter.section("Examples"):
        for example in examples:
            parts = folded(example, formatter.width - len("   \\"), " " * 4, cut=False)
            formatter.write("  " + " \\\n  ".join(parts) + "\n")


class CommandWithExamples(click.Command):
    """A command whose help ends with examples, and before them every exit code where it has all."""

    def __init__(
        self, *args: Any, examples: Sequence[str], exit_codes: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._examples, self._exit_codes = examples, exit_codes

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._exit_codes:
            write_exit_codes(formatter)
        write_examples(formatter, self._examples)


def _entry(option: Option) -> tuple[str, str]:
    metavar = "" if option.is_flag else f" {option.metavar}"
    notes = [f"[{option.default_text}]"] if option.default_text and not option.is_flag else []
    if option.variables:
        notes.append(f"(or {', '.join(option.variables)})")
    return ", ".join(option.flags) + metavar, " ".join([option.help, *notes])
