"""`tcpx-mpi simulate PATTERN`: what a pattern would take on a network of given costs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tcpx_mpi.cli.complete import complete_pattern, completions
from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.config.parsers import integer
from tcpx_mpi.errors import UsageError
from tcpx_mpi.folded import show, terminal_columns
from tcpx_mpi.run import admission

if TYPE_CHECKING:
    from tcpx_mpi.schedule.simulator import Costs

_EXAMPLES = (
    "tcpx-mpi simulate all_reduce --ranks 1024 --latency 20 --bandwidth 12 -b 1K -e 1G -f 8",
    "tcpx-mpi simulate alltoall --ranks 16 --fit pingpong.h5 --fit pair.h5",
)
#: Those of `run` that say what is sent.
_NAMES = (
    "minbytes", "maxbytes", "stepbytes", "stepfactor", "sizes", "op", "datatype", "root", "algo",
    "matrix", "matrix_scale", "sequence", "sequence_by", "spread", "senders", "background", "moe",
    "skew", "replay", "gaps", "replay_from", "replay_for", "warmup_iters", "iters", "agg_iters",
    "average", "blocking", "channels", "chunk", "window_send", "window_recv", "seed", "config",
)  # fmt: skip
_OPTIONS = [option for option in OPTIONS if option.name in _NAMES]
_MOST_US = 1e9
#: What is simulated where ranks are alike; where they are not, chunks are counted, too.
MOST_RANKS = 65_536


@click.pass_context
def _callback(
    ctx: click.Context,
    /,
    latency: str | None,
    bandwidth: str | None,
    overhead: str | None,
    fit: tuple[str, ...],
    reduction: str | None,
    half_duplex: bool,
    ranks: str | None,
    ranks_per_nic: str | None,
    json_path: str | None,
    **values: str | None,
) -> int:
    settings = admission.read_settings(values, os.environ)
    if ranks is None:
        raise UsageError("simulate needs --ranks N: it starts none, and predicts what N would take")
    world = integer(1, MOST_RANKS, "what can be simulated")("--ranks", ranks)
    given = {
        "latency_ns": _number("--latency", latency, 0.0, _MOST_US, 1e3),
        "ns_a_byte": _inverse(_number("--bandwidth", bandwidth, 1e-6, 1e6)),
        "overhead_ns": _number("--overhead", overhead, 0.0, _MOST_US, 1e3),
        "ns_a_reduced_byte": _inverse(_number("--reduction", reduction, 1e-6, 1e6)),
    }
    per_nic = integer(1, world, "--ranks")("--ranks-per-nic", ranks_per_nic or "1")
    from tcpx_mpi.records import require_writable
    from tcpx_mpi.report import without_nan, write_json
    from tcpx_mpi.simulate import Simulation, document, head_lines, row_line, shown_fields

    if json_path is not None:
        require_writable(json_path, "--json")
    known = {name: value for name, value in given.items() if value is not None}
    costs, told = _costs(fit, known, half_duplex)
    simulation = Simulation(settings, world, costs, per_nic)
    fields = shown_fields(terminal_columns())
    show(head_lines(simulation, told, fields))
    rows = []
    for row in simulation.rows():
        show([row_line(row, fields)])
        rows.append(row)
    if json_path is not None:
        print(f"# wrote {write_json(json_path, without_nan(document(simulation, rows)))}")
    return 0


def _costs(
    fit: Sequence[str], known: Mapping[str, float], half_duplex: bool
) -> tuple[Costs, list[str]]:
    """The costs, and a line that says what they were fitted on."""
    from tcpx_mpi.schedule.simulator import Costs

    if fit:
        from tcpx_mpi.records import read_launches
        from tcpx_mpi.simulate import fit_costs

        found = fit_costs([read_launches(path) for path in fit], known, half_duplex)
        return found.costs, [
            f"Fitted: on {found.rows} rows of {', '.join(fit)}; predicted / measured there "
            f"{found.least:.2f} to {found.most:.2f}"
        ]
    for field, option in (("latency_ns", "--latency US"), ("ns_a_byte", "--bandwidth GBPS")):
        if field not in known:
            raise UsageError(f"simulate needs {option}, or --fit RUN.h5 of a measured run")
    return Costs(**{"overhead_ns": 0.0, **known}, half_duplex=half_duplex), []


def _number(
    label: str, text: str | None, least: float, most: float, unit: float = 1.0
) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise UsageError(f"{label} ({text}) cannot be; use a number from {least:g} to {most:g}")
    return value * unit


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def _parameters() -> list[click.Parameter]:
    parameters: list[click.Parameter] = [
        click.Argument(
            ["pattern"], required=False, metavar="PATTERN", shell_complete=complete_pattern
        ),
        click.Option(["--latency"], metavar="US", help="From NIC to NIC, for each message."),
        click.Option(
            ["--bandwidth"], metavar="GBPS", help="Of a NIC in each direction, in 1e9 bytes/s."
        ),
        click.Option(
            ["--overhead"],
            metavar="US",
            help="Time that each chunk takes a NIC in addition to its bytes [0, or fitted].",
        ),
        click.Option(
            ["--reduction"],
            metavar="GBPS",
            help="Rate at which received bytes are reduced [at no cost, or fitted].",
        ),
        click.Option(
            ["--half-duplex"],
            is_flag=True,
            help="A NIC sends or receives, not both at once: if a processor is the limit.",
        ),
        click.Option(
            ["--fit"],
            multiple=True,
            metavar="RUN.h5",
            help="Fit those that are not given to the rows of a measured run; may be repeated.",
        ),
        click.Option(
            ["--ranks"], metavar="N", help=f"How many are simulated, at most {MOST_RANKS}."
        ),
        click.Option(
            ["--ranks-per-nic"], metavar="N", help="Neighbouring ranks that share a NIC [1]."
        ),
        click.Option(["--json", "json_path"], metavar="FILE", help="Also write JSON."),
    ]
    for option in _OPTIONS:
        default = f" [{option.default_text}]" if option.default_text else ""
        parameters.append(
            click.Option(
                [option.name, *option.flags],
                metavar=option.metavar,
                shell_complete=completions(option),
                help=f"{option.help}{default}.",
            )
        )
    return parameters


command = CommandWithExamples(
    "simulate",
    examples=_EXAMPLES,
    exit_codes=False,
    params=_parameters(),
    callback=_callback,
    options_metavar="[OPTIONS]",
    help="Predicts the rows of `run PATTERN` with --ranks N on a network of a latency and a "
    "bandwidth, from the schedules of all ranks; nothing is started and nothing is sent. "
    "docs/how-to/simulate.md says what is in the model.",
)
