"""`tcpx-mpi join OUT FILE...`: launches that were started by hand, in one file."""

from __future__ import annotations

import click

from tcpx_mpi.errors import PartialResult, UsageError


@click.command("join")
@click.argument("out", type=click.Path())
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
def command(out: str, files: tuple[str, ...]) -> int:
    """Writes OUT with the runs in FILE... as launches of one command, for report and compare.

    The same pattern, ranks and sizes in all of them; what `run --runs K` does by itself.
    """
    from tcpx_mpi.records import LaunchesWriter, read_run

    runs = [read_run(file) for file in files]
    seen: dict[str, str] = {}
    for file, run in zip(files, runs, strict=True):
        if run.launches:
            raise UsageError(f"{file} has several launches already: give files of one run each")
        for what, ours, first in (
            ("pattern", run.header.pattern, runs[0].header.pattern),
            ("number of ranks", run.header.world, runs[0].header.world),
            ("sizes", run.header.plan.sizes, runs[0].header.plan.sizes),
        ):
            if ours != first:
                raise UsageError(
                    f"{file} has another {what} than {files[0]} ({ours}, {first}): "
                    "launches are of one command"
                )
        if (other := seen.get(run.header.run_id)) is not None:
            raise UsageError(f"{file} has the same run as {other}: give each launch once")
        seen[run.header.run_id] = file
    writer = LaunchesWriter(out, len(files))
    try:
        for file in files:
            writer.append(file)
    finally:
        writer.close()
    print(f"# wrote {writer.path}")
    if missing := read_run(writer.path).missing:
        raise PartialResult(f"{writer.path} is partial: {'; '.join(missing)}")
    return 0
