"""`tcpx-mpi tap`: what the tap has recorded of a job, by way and by NIC."""

from __future__ import annotations

import functools
import json

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.folded import show, terminal_columns

_EXAMPLES = (
    "tcpx-mpi tap taps/",
    "tcpx-mpi tap node*/taps/*.tap --hdf5 job.h5",
    "tcpx-mpi tap taps/ --html job.html --perfetto job.json.gz",
)


@click.command("tap", cls=CommandWithExamples, examples=_EXAMPLES)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILES...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--hdf5", metavar="FILE", type=click.Path(),
    help="Write every request, too, into the group /tap of a new file.",
)  # fmt: skip
@click.option(
    "--html", metavar="FILE", type=click.Path(), help="Write the same as one page, with plots."
)
@click.option(
    "--perfetto", metavar="FILE", type=click.Path(),
    help="Write every request as a timeline for ui.perfetto.dev, like job.json.gz.",
)  # fmt: skip
def command(
    files: tuple[str, ...], as_json: bool, hdf5: str | None, html: str | None, perfetto: str | None
) -> int:
    """Says what a job moved, from whom to whom, and whose its time was, by FILES of the tap.

    The tap is a plugin of NCCL that passes calls on to another one and writes them down:
    NCCL_NET_PLUGIN=.../libnccl-net-tap.so TCPX_TAP_PLUGIN=... TCPX_TAP_DIR=... A file is one
    process; FILES are those of all ranks, or folders of them.
    """
    from tcpx_mpi.exchange.tap_timeline import write_tap_timeline
    from tcpx_mpi.records.new_file import require_new, write_new_file
    from tcpx_mpi.records.tap import write_tap
    from tcpx_mpi.report import html as page
    from tcpx_mpi.tap import file, joined, tables, text, ways

    for path, option in ((hdf5, "--hdf5"), (perfetto, "--perfetto")):
        if path is not None:
            require_new(path, option)
    if html is not None:
        page.require_page_possible(html)
    job = joined.read_job(file.files_of(files))
    summary = ways.summarise(job)
    if hdf5 is not None:
        write = functools.partial(write_tap, tables.tables_of(job), {"format": str(text.FORMAT)})
        write_new_file(hdf5, write, "--hdf5")
    if perfetto is not None:
        write_new_file(perfetto, functools.partial(write_tap_timeline, job), "--perfetto")
    if html is not None:
        page.write_tap(job, summary, html)
    if as_json:
        print(json.dumps(text.document(job, summary), indent=2))
        return 0
    show(text.lines(job, summary, terminal_columns()))
    for path in filter(None, (hdf5, perfetto, html)):
        print(f"# wrote {path}")
    return 0
