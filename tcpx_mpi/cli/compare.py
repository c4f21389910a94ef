"""`tcpx-mpi compare A.h5 B.h5`: is B as fast as A? By launches, with an exit code."""

from __future__ import annotations

import click

from tcpx_mpi.cli.compare_options import (
    comparison_options,
    limits_of,
    require_comparable,
    require_outputs,
    show_comparison,
)


@click.command("compare")
@click.argument("first", metavar="A", type=click.Path())
@click.argument("second", metavar="B", type=click.Path())
@comparison_options
@click.option(
    "--spread",
    metavar="FILE",
    type=click.Path(),
    help="A file of 10 or more launches of this machine, by which single ones are judged.",
)
def command(
    first: str,
    second: str,
    tolerance: float,
    resolution: float,
    json_path: str | None,
    page: str | None,
    anyway: bool,
    spread: str | None,
) -> int:
    """Compares the runs in A and B row by row: B's speed over A's, with its interval.

    The unit is the launch (`run --runs K`, or `join`); 4 a side are the least that can decide. Exit
    code 0: the same, 10: B is worse, 14: B is better, 11: inconclusive.
    """
    limits = limits_of(tolerance, resolution)
    from tcpx_mpi.compare import compare_runs
    from tcpx_mpi.records import read_launches

    require_outputs(json_path, page)
    runs = read_launches(first, warmup=False), read_launches(second, warmup=False)
    machine = read_launches(spread) if spread is not None else None
    require_comparable(*runs, anyway=anyway, spread=machine)
    return show_comparison(compare_runs(*runs, limits, machine), json_path, page)
