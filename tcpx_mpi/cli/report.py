"""`tcpx-mpi report FILE`: the table of a run, out of its file, and on request as a page."""

from __future__ import annotations

import click

from tcpx_mpi.errors import PartialResult


@click.command("report")
@click.argument("file", type=click.Path())
@click.option(
    "--html",
    "page",
    type=click.Path(),
    metavar="PAGE",
    help="Also write one HTML file, plots and all.",
)
def command(file: str, page: str | None) -> int:
    """Prints the table of the run in FILE, and what is missing from it (then exit code 12).

    PAGE needs nothing but itself and a browser; one that exists is kept (exit code 2). It takes
    the extra `analysis`: pip install 'tcpx-mpi[analysis]'.
    """
    from tcpx_mpi.records import read_run
    from tcpx_mpi.report import report_lines
    from tcpx_mpi.report.html import require_page_possible, write_html

    if page is not None:
        require_page_possible(page)
    run = read_run(file)
    if page is not None:
        write_html(run, page)
    for line in report_lines(run):
        print(line)
    if page is not None:
        print(f"# wrote {page}")
    if run.missing:
        raise PartialResult(f"{file} is partial: {'; '.join(run.missing)}")
    return 0
