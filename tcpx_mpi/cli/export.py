"""`tcpx-mpi export FILE`: a run as CSV, Parquet or JSON, with every sample; its timeline."""

from __future__ import annotations

import functools
import os
import sys

import click

from tcpx_mpi.errors import PartialResult, UsageError

#: In the order of use; `tcpx_mpi.exchange.tidy` makes them.
TABLES = (
    "samples", "rows", "against", "counters", "proof", "gpus", "batches", "arrivals", "ranks",
    "peers", "setup", "settings",
)  # fmt: skip
_STDOUT = "-"


@click.command("export")
@click.argument("file", type=click.Path())
@click.option("--csv", "as_csv", is_flag=True, help="One table as CSV.")
@click.option("--parquet", "as_parquet", is_flag=True, help="One table as Parquet.")
@click.option("--json", "as_json", is_flag=True, help="All tables in one JSON document.")
@click.option(
    "--perfetto",
    "timeline",
    metavar="OUT.json.gz",
    type=click.Path(),
    help="The timeline of a run with --trace, for ui.perfetto.dev.",
)
@click.option(
    "--per-node",
    is_flag=True,
    help="With --perfetto, of nodes without a clock in common: each from its own first post.",
)
@click.option(
    "--plugin-trace",
    "prefix",
    metavar="PREFIX",
    help="With --perfetto: where softtcpx wrote its part (as SOFTTCPX_TRACE was in the run).",
)
@click.option(
    "--table",
    type=click.Choice(TABLES),
    metavar="TABLE",
    help="Which table of CSV or Parquet [samples, with all independent variables]: "
    f"{', '.join(TABLES)}.",
)
@click.option(
    "--output",
    metavar="PATH|-",
    type=click.Path(),
    help="Where to; - is the standard output [FILE with another ending]. Nothing is overwritten.",
)
def command(
    file: str,
    as_csv: bool,
    as_parquet: bool,
    as_json: bool,
    timeline: str | None,
    per_node: bool,
    prefix: str | None,
    table: str | None,
    output: str | None,
) -> int:
    """Writes the run in FILE for other programs: every sample, warm-up and set-up time.

    A file of a run that died is exported too; what it lacks is said, with exit code 12.
    """
    forms = {
        "csv": as_csv, "parquet": as_parquet, "json": as_json, "perfetto": timeline is not None,
    }  # fmt: skip
    chosen = [name for name, wanted in forms.items() if wanted]
    if len(chosen) != 1:
        if not os.path.exists(file):
            raise UsageError(f"{file}: no such file; give a result file of tcpx-mpi")
        raise UsageError("export needs exactly one of --csv, --parquet, --json and --perfetto")
    if as_json and table is not None:
        raise UsageError("--table is for --csv and --parquet: --json has all tables")
    (form,) = chosen
    if timeline is not None:
        if table is not None or output is not None:
            raise UsageError("--table and --output are not for --perfetto, which names its file")
        return _export_timeline(file, timeline, per_node, prefix)
    if per_node or prefix is not None:
        raise UsageError("--per-node and --plugin-trace are for --perfetto: leave them out")
    path = output or _path_beside(file, form, table)
    if form == "parquet" and path == _STDOUT and sys.stdout.isatty():
        raise UsageError("--parquet is no text for a terminal: give --output PATH, or a pipe")

    from tcpx_mpi.exchange import export
    from tcpx_mpi.exchange.tidy import tables_of
    from tcpx_mpi.records import read_run
    from tcpx_mpi.records.new_file import Writer, write_new_file

    run = read_run(file)
    if form == "json":
        write: Writer = functools.partial(export.write_json, run)
    else:
        writer = export.write_csv if form == "csv" else export.write_parquet
        write = functools.partial(writer, tables_of(run)[table or TABLES[0]])
    if path == _STDOUT:
        export.write_stdout(write)
    else:
        write_new_file(path, write, "--output")
        print(f"# wrote {path}")
    if run.missing:
        raise PartialResult(f"{file} is partial: {'; '.join(run.missing)}")
    return 0


def _export_timeline(file: str, path: str, per_node: bool, prefix: str | None) -> int:
    from tcpx_mpi.exchange.perfetto import write_perfetto
    from tcpx_mpi.records import read_run
    from tcpx_mpi.records.new_file import require_new, write_new_file
    from tcpx_mpi.report.trace_text import plugin_trace_of

    require_new(path, "--perfetto")
    run = read_run(file)
    plugin, _ = plugin_trace_of(run, prefix)
    write_new_file(path, lambda out: write_perfetto(run, plugin, out, per_node), "--perfetto")
    print(f"# wrote {path}")
    if run.missing:
        raise PartialResult(f"{file} is partial: {'; '.join(run.missing)}")
    return 0


def _path_beside(file: str, form: str, table: str | None) -> str:
    """o.csv, or o.rows.csv for a table that is not the default."""
    stem, _ = os.path.splitext(file)
    part = f".{table}" if table not in (None, TABLES[0]) else ""
    return f"{stem}{part}.{form}"
