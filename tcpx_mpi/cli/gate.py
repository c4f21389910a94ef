"""`tcpx-mpi gate`: whether a run meets limits, and limits out of runs."""

from __future__ import annotations

import click

from tcpx_mpi.errors import BelowGate, UsageError
from tcpx_mpi.units import counted


@click.command("gate")
@click.argument("files", nargs=-1, type=click.Path(), metavar="RUN.h5 GATE.toml | RUN.h5...")
@click.option("--calibrate", is_flag=True, help="Make a gate out of several launches (RUN.h5...).")
@click.option(
    "--false-alarms",
    type=float,
    default=0.01,
    show_default=True,
    metavar="RATE",
    help="Share of sound runs that may fail the calibrated gate.",
)
@click.option("--output", type=click.Path(), metavar="GATE.toml", help="Where the gate goes.")
@click.option("--json", "json_path", type=click.Path(), metavar="FILE", help="Also as JSON.")
def command(
    files: tuple[str, ...],
    calibrate: bool,
    false_alarms: float,
    output: str | None,
    json_path: str | None,
) -> int:
    """Judges the run in RUN.h5 by the limits in GATE.toml: exit code 0, or 9 if it fails.

    A gate fails closed: a row, rank, size, check or figure that is missing fails it, and so does
    another plugin, another number of ranks or a partial file. With --calibrate it is made instead.
    """
    if calibrate and json_path is not None:
        raise UsageError("--json is of a verdict: leave it out with --calibrate")
    if calibrate:
        return _calibrate(files, false_alarms, output)
    if len(files) != 2 or output is not None:
        raise UsageError("gate needs RUN.h5 and GATE.toml; with --calibrate, files and --output")
    from tcpx_mpi.gates import judge, read_gate
    from tcpx_mpi.records import read_run, require_writable
    from tcpx_mpi.report import without_nan, write_json

    if json_path is not None:
        require_writable(json_path, "--json")
    run_path, gate_path = files
    judgement = judge(read_gate(gate_path, "gate"), read_run(run_path))
    lines = list(judgement.lines())
    if json_path is not None:
        lines.append(f"# wrote {write_json(json_path, without_nan(judgement.document()))}")
    print("\n".join(lines))
    if not judgement.passed:
        raise BelowGate(f"{run_path} fails {gate_path}: {judgement.in_short()}")
    return 0


def _calibrate(files: tuple[str, ...], false_alarms: float, output: str | None) -> int:
    if output is None:
        raise UsageError("--calibrate needs --output GATE.toml")
    from tcpx_mpi.gates import calibrate, gate_text
    from tcpx_mpi.records import read_run, require_writable, write_text

    require_writable(output, "--output")
    made = calibrate([read_run(file) for file in files], false_alarms)
    written = write_text(output, gate_text(made.gate, made.comments))
    for comment in made.comments:
        print(f"# {comment}")
    print(f"# wrote {written}: {counted(len(made.gate.limits), 'limit')}")
    return 0
