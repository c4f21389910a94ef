"""`tcpx-mpi gate`: whether a run meets limits, and limits out of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tcpx_mpi.errors import BelowGate, ExitCode, UsageError
from tcpx_mpi.folded import show
from tcpx_mpi.units import counted

if TYPE_CHECKING:
    from tcpx_mpi.exchange.junit import Case
    from tcpx_mpi.gates import Judgement


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
@click.option(
    "--output", type=click.Path(), metavar="GATE.toml", help="File of the calibrated gate."
)
@click.option("--json", "json_path", type=click.Path(), metavar="FILE", help="Also write JSON.")
@click.option("--junit", "junit_path", type=click.Path(), metavar="FILE", help="As JUnit's XML.")
@click.option(
    "--prom", "prom_path", type=click.Path(), metavar="FILE.prom",
    help="Verdict and figures for Prometheus, as for `run`.",
)  # fmt: skip
def command(
    files: tuple[str, ...],
    calibrate: bool,
    false_alarms: float,
    output: str | None,
    json_path: str | None,
    junit_path: str | None,
    prom_path: str | None,
) -> int:
    """Judges the run in RUN.h5 by the limits in GATE.toml: exit code 0, or 9 if it fails.

    A gate fails closed: a row, rank, size, check or figure that is missing fails it, and so does
    another plugin, another number of ranks or a partial file. With --calibrate it is made instead.
    """
    outputs = {"--json": json_path, "--junit": junit_path, "--prom": prom_path}
    given = {option: path for option, path in outputs.items() if path is not None}
    if calibrate and given:
        raise UsageError(f"{next(iter(given))} is of a verdict: leave it out with --calibrate")
    if calibrate:
        return _calibrate(files, false_alarms, output)
    if len(files) != 2 or output is not None:
        raise UsageError("gate needs RUN.h5 and GATE.toml; with --calibrate, files and --output")
    from tcpx_mpi.exchange.junit import write_junit
    from tcpx_mpi.exchange.prometheus import metrics_of, require_prom, write_prom
    from tcpx_mpi.gates import judge, read_gate
    from tcpx_mpi.records import read_launches, require_writable
    from tcpx_mpi.report import representative, without_nan, write_json

    for option, path in given.items():
        require_writable(path, option)
    if prom_path is not None:
        require_prom(prom_path)
    run_path, gate_path = files
    run = read_launches(run_path)
    judgement = judge(read_gate(gate_path, "gate"), run)
    lines = list(judgement.lines())
    if json_path is not None:
        lines.append(f"# wrote {write_json(json_path, without_nan(judgement.document()))}")
    if junit_path is not None:
        lines.append(f"# wrote {write_junit(junit_path, {gate_path: _cases(judgement)})}")
    if prom_path is not None:
        code = ExitCode.OK if judgement.passed else ExitCode.BELOW_GATE
        metrics = metrics_of(representative(run), code, judgement.passed)
        lines.append(f"# wrote {write_prom(prom_path, metrics)}")
    show(lines)
    if not judgement.passed:
        raise BelowGate(f"{run_path} fails {gate_path}: {judgement.in_short()}")
    return 0


def _cases(judgement: Judgement) -> list[Case]:
    """A case a limit, before them one of the run's fitness for the gate."""
    from tcpx_mpi.exchange.junit import Case
    from tcpx_mpi.findings import Severity

    refusals = judgement.refusals()
    cases = [Case("gate", "fit to be judged", failure="; ".join(refusals))]
    for finding, held in judgement.limits:
        failure = finding.text if finding.severity is Severity.BAD else ""
        name = f"{finding.title}: {held.limit.bound}"
        cases.append(Case("gate", name, failure=failure, detail=held.limit.provenance))
    return cases


def _calibrate(files: tuple[str, ...], false_alarms: float, output: str | None) -> int:
    if output is None:
        raise UsageError("--calibrate needs --output GATE.toml")
    from tcpx_mpi.gates import calibrate, gate_text
    from tcpx_mpi.records import read_launches, require_writable, write_text

    require_writable(output, "--output")
    made = calibrate([read_launches(file) for file in files], false_alarms)
    written = write_text(output, gate_text(made.gate, made.comments))
    show(f"# {comment}" for comment in made.comments)
    show([f"# wrote {written}: {counted(len(made.gate.limits), 'limit')}"])
    return 0
