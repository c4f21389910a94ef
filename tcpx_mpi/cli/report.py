"""`tcpx-mpi report FILE...`: the table of a run, or several runs as a fleet, and as a page."""

from __future__ import annotations

import os
import sys

import click

from tcpx_mpi.errors import PartialResult, UsageError
from tcpx_mpi.folded import show


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option(
    "--html",
    "page",
    type=click.Path(),
    metavar="PAGE",
    help="Also write one HTML file, plots and all.",
)
@click.option(
    "--trace", is_flag=True, help="Also print the median time of each step of the traced messages."
)
@click.option(
    "--plugin-trace",
    "prefix",
    metavar="PREFIX",
    help="Where softtcpx wrote its part, as SOFTTCPX_TRACE had it (as in the run's environment).",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit code 10 if a rank, NIC or link is slow, 11 if a figure is in doubt.",
)
@click.option("-v", "--verbose", is_flag=True, help="On a terminal: the whole header and footer.")
@click.option("--wide", is_flag=True, help="On a terminal: all columns, as in a pipe or a file.")
def command(
    files: tuple[str, ...],
    page: str | None,
    trace: bool,
    prefix: str | None,
    strict: bool,
    verbose: bool,
    wide: bool,
) -> int:
    """Prints the table of the run in FILE, and what is missing from it (then exit code 12).

    A terminal shows a short header and the columns that fit; a pipe and a file have all of them.

    Several files of one kind of run are a fleet: its slow NICs and links, and with --html one page
    with heat maps of all nodes. PAGE needs nothing but itself and a browser; one that exists is
    kept (exit code 2). It takes the extra `analysis`: pip install 'tcpx-mpi[analysis]'.
    """
    from tcpx_mpi.records import read_launches
    from tcpx_mpi.report import report_lines, show_lines, strict_outcome
    from tcpx_mpi.report.html import require_page_possible, write_html
    from tcpx_mpi.report.trace_text import trace_lines
    from tcpx_mpi.run.terminal import screen_here

    if page is not None:
        require_page_possible(page)
    if len(files) > 1:
        if strict:
            raise UsageError(f"--strict is of one run, found {len(files)}: give it each file alone")
        return _report_fleet(files, page)
    (file,) = files
    run = read_launches(file, warmup=False)
    if page is not None:
        write_html(run, page, prefix)
    screen = None if wide else screen_here(os.environ, verbose)
    show_lines(report_lines(run, screen=screen), screen)
    if trace:
        show(trace_lines(run, prefix))
    if page is not None:
        print(f"# wrote {page}")
    if run.missing:
        raise PartialResult(f"{file} is partial: {'; '.join(run.missing)}")
    if strict:
        code, why = strict_outcome(run)
        if code:
            print(f"tcpx-mpi: error: {why}", file=sys.stderr)
        return int(code)
    return 0


def _report_fleet(files: tuple[str, ...], page: str | None) -> int:
    from tcpx_mpi.records import read_launches
    from tcpx_mpi.report.fleet import fleet_lines, fleet_of
    from tcpx_mpi.report.html import write_fleet
    from tcpx_mpi.report.lines import INDENT

    runs = [read_launches(file, warmup=False) for file in files]
    fleet = fleet_of(runs)
    if page is not None:
        write_fleet(fleet, page)
    show(fleet_lines(fleet), "#".ljust(INDENT))
    if page is not None:
        print(f"# wrote {page}")
    if partial := [run.path for run in runs if run.missing]:
        raise PartialResult(f"{partial[0]} is partial ({len(partial)} of {len(runs)} files are)")
    return 0
