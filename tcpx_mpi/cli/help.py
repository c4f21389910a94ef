"""What `--help` shows beside click's own part: knobs by group, exit codes, examples."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tcpx_mpi.config.options import GROUPS, IGNORED, KNOBS, VARIABLES_ONLY, Knob
from tcpx_mpi.errors import EXIT_CODE_MEANING


def write_knobs(formatter: click.HelpFormatter) -> None:
    """All options of a run, by group, each with its default and its variables."""
    for group in GROUPS:
        with formatter.section(group):
            formatter.write_dl([_entry(knob) for knob in KNOBS if knob.group == group])
    with formatter.section("Environment only"):
        only = [knob for knob in KNOBS if knob.group == VARIABLES_ONLY]
        formatter.write_dl([(", ".join(knob.variables), knob.help) for knob in only])
    with formatter.section("Accepted and ignored, as of nccl-tests"):
        formatter.write_text(" ".join(IGNORED))


def write_exit_codes(formatter: click.HelpFormatter) -> None:
    """Every exit code, the same on all ranks."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(int(code)), text) for code, text in EXIT_CODE_MEANING.items()])


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Commands to copy."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"  {example}\n")


def _entry(knob: Knob) -> tuple[str, str]:
    metavar = "" if knob.is_flag else f" {knob.metavar}"
    notes = [f"[{knob.default_text}]"] if knob.default_text and not knob.is_flag else []
    if knob.variables:
        notes.append(f"(or {', '.join(knob.variables)})")
    return ", ".join(knob.flags) + metavar, " ".join([knob.help, *notes])
