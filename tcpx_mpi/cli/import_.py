"""`tcpx-mpi import LOG`: a run of nccl-tests in our schema, beside ours."""

from __future__ import annotations

import os

import click

from tcpx_mpi.errors import PartialResult
from tcpx_mpi.units import counted

_PACKED = (".gz", ".bz2", ".xz")
#: What is left out of the name; all else tells one run from the next: x.dat.2, job.1234.
_ENDINGS = (".log", ".txt", ".out", ".json", ".dat", ".stdout", ".output", ".md", ".csv")


@click.command("import")
@click.argument("log", type=click.Path(allow_dash=True))
@click.option(
    "--output",
    metavar="FILE.h5",
    type=click.Path(),
    help="Where to [LOG with another ending]. Nothing is overwritten: the next free name is taken.",
)
def command(log: str, output: str | None) -> int:
    """Writes the run in LOG, what nccl-tests printed or its JSON (-J), as an HDF5 file.

    LOG may be packed (gzip, bzip2, xz), a pipe, or - for the standard input; what stands before
    all of its lines (ranks, hosts, times) is taken off.

    It has the averages of nccl-tests, out of place and in place, and says so: no samples and no
    percentiles. `report`, `export` and tcpx_mpi.open_run work on it. Of a log that was cut off
    the whole rows are taken, and what is missing is said (exit code 12).
    """
    from tcpx_mpi.exchange.nccl_tests import read_log, run_of, write_run

    path = output if output is not None else _path_beside(log)
    run = run_of(read_log(log))
    written = write_run(run, path)
    ranks, rows = counted(run.header.world, "rank"), counted(len(run.rows), "row")
    print(f"# wrote {written}: {run.header.pattern}, {ranks}, {rows}, averages only")
    if run.missing:
        raise PartialResult(f"{log} is partial: {'; '.join(run.missing)}")
    return 0


def _path_beside(log: str) -> str:
    """o.h5 for o.log, o.json and o.log.gz, o.log.2.h5 for o.log.2; what has no file's name is named
    for nccl-tests.
    """
    from tcpx_mpi.inputs import is_stream

    if is_stream(log):
        return "nccl-tests.h5"
    stem = _without(_PACKED, log)
    return f"{_without(_ENDINGS, stem)}.h5"


def _without(endings: tuple[str, ...], path: str) -> str:
    stem, ending = os.path.splitext(path)
    return stem if ending.lower() in endings else path
