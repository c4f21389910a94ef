"""`tcpx-mpi merge OUT JOURNAL...`: one file out of what the ranks of a dead run left."""

from __future__ import annotations

import click

from tcpx_mpi.errors import PartialResult


@click.command("merge")
@click.argument("out", type=click.Path())
@click.argument("journals", nargs=-1, required=True, metavar="JOURNAL...", type=click.Path())
@click.option(
    "--run",
    "run_file",
    metavar="FILE",
    type=click.Path(),
    help="The run's own file, with earlier rows.",
)
def command(out: str, journals: tuple[str, ...], run_file: str | None) -> int:
    """Writes OUT from the ranks' journals of a run that died (see --spool of `run`).

    A row that every rank has becomes a row; of others OUT says which ranks are missing (exit 12).
    """
    from tcpx_mpi.records import merge, read_run

    written = merge(out, journals, run_file=run_file)
    print(f"# wrote {written}")
    if missing := read_run(written).missing:
        raise PartialResult(f"{written} is partial: {'; '.join(missing)}")
    return 0
