"""`tcpx-mpi report FILE`: the table of a run, out of its file."""

from __future__ import annotations

import click

from tcpx_mpi.errors import PartialResult


@click.command("report")
@click.argument("file", type=click.Path())
def command(file: str) -> int:
    """Prints the table of the run in FILE, and what is missing from it (then exit code 12)."""
    from tcpx_mpi.records import read_run
    from tcpx_mpi.report import report_lines

    run = read_run(file)
    for line in report_lines(run):
        print(line)
    if run.missing:
        raise PartialResult(f"{file} is partial: {'; '.join(run.missing)}")
    return 0
