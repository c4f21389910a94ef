"""`tcpx-mpi join OUT FILE...`: launches of one command, or journals of a dead run, in one file."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tcpx_mpi.errors import PartialResult, UsageError


@click.command("join")
@click.argument("out", type=click.Path())
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option(
    "--run",
    "run_file",
    metavar="FILE",
    type=click.Path(),
    help="With journals: the run's own file, with earlier rows.",
)
def command(out: str, files: tuple[str, ...], run_file: str | None) -> int:
    """Writes OUT with the runs in FILE... as launches of one command, for report and compare.

    The same pattern, ranks, sizes, plugin, memory, ... in all; what `run --runs K` does by itself.

    If FILE... are the ranks' journals of a run that died (see --spool of `run`), OUT is that run. A
    row that every rank has becomes a row; of others OUT says which ranks are missing (exit 12).
    """
    from tcpx_mpi.records import is_journal, merge, read_run

    if run_file is not None or any(map(is_journal, files)):
        written = merge(out, files, run_file=run_file)
    else:
        written = _join_launches(out, files)
    print(f"# wrote {written}")
    if missing := read_run(written).missing:
        raise PartialResult(f"{written} is partial: {'; '.join(missing)}")
    return 0


def _join_launches(out: str, files: Sequence[str]) -> str:
    from tcpx_mpi.compare import of_one_command
    from tcpx_mpi.records import LaunchesWriter, read_run

    runs = [read_run(file) for file in files]
    seen: dict[str, str] = {}
    for file, run in zip(files, runs, strict=True):
        if run.launches:
            raise UsageError(f"{file} has several launches already: give files of one run each")
        if others := of_one_command(run, runs[0]):
            raise UsageError(
                f"{file} has another {others[0]} than {files[0]}: launches are of one command"
            )
        if (other := seen.get(run.header.run_id)) is not None:
            raise UsageError(f"{file} has the same run as {other}: give each launch once")
        seen[run.header.run_id] = file
    writer = LaunchesWriter(out, len(files), "OUT")
    try:
        for file in files:
            writer.append(file)
    finally:
        writer.close()
    return writer.path
