"""`tcpx-mpi join OUT FILE...`: launches that were started by hand, in one file."""

from __future__ import annotations

import click

from tcpx_mpi.errors import PartialResult, UsageError


@click.command("join")
@click.argument("out", type=click.Path())
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
def command(out: str, files: tuple[str, ...]) -> int:
    """Writes OUT with the runs in FILE... as launches of one command, for report and compare.

    The same pattern, ranks, sizes, plugin, memory, ... in all; what `run --runs K` does by itself.
    """
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
    print(f"# wrote {writer.path}")
    if missing := read_run(writer.path).missing:
        raise PartialResult(f"{writer.path} is partial: {'; '.join(missing)}")
    return 0
