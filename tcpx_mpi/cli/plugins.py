"""`tcpx-mpi plugins`: plugins that can be loaded here, the one that a run would load, and why."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any

import click

from tcpx_mpi.config.options import parse_abi
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.folded import show
from tcpx_mpi.plugin import find, trial
from tcpx_mpi.plugin.device_memory import memory_text

#: Of an init and its devices; a run has its own limit.
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Line:
    """A candidate and what is known of it; `problem` is "" for one that can be used."""

    name: str
    path: str
    exists: bool
    sha256: str
    abi_versions: tuple[int, ...]
    plugin: str
    problem: str


@click.command("plugins")
@click.option("--plugin", metavar="PLUGIN", help="As for `run`: the plugin to choose.")
@click.option("--abi", metavar="N", help="As for `run`: the version of its table [newest].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(plugin: str | None, abi: str | None, as_json: bool) -> int:
    """Lists the plugins found here, and the one that `run` would choose, with the reason.

    The exit code is that of the choice: 3 where TCPX is asked for and is missing.
    """
    bundled_dir = find.bundled_dir()
    version = parse_abi(abi)
    lines = [_line(candidate) for candidate in find.candidates(os.environ, bundled_dir)]
    choice: find.PluginChoice | None = None
    refusal: TcpxError | None = None
    try:
        choice = find.find_plugin(plugin or "auto", os.environ, bundled_dir, abi=version)
        if choice.path not in {line.path for line in lines}:
            lines.append(_line(choice))
        find.inspect(choice)
    except TcpxError as error:
        refusal = error
    devices, problem = _devices(choice if refusal is None else None, version)
    if as_json:
        _print_json(lines, choice, refusal, devices)
    else:
        _print_table(lines, choice if refusal is None else None)
        show(f"# device {device['name']}: {memory_text(device)}" for device in devices)
        if problem:
            show([f"# its devices are not known: {problem}"])
    if refusal is not None:
        raise refusal
    return 0


def _devices(choice: find.PluginChoice | None, abi: int) -> tuple[list[dict[str, Any]], str]:
    """The devices as the chosen plugin describes them, in a process of its own; or why that is not
    known. TCPX is not asked: its manager would see a handshake that no run belongs to."""
    if choice is None:
        return [], ""
    if find.is_tcpx(find.inspect(choice).name):
        return [], "init of TCPX takes its manager's time; `tcpx-mpi preflight` asks"
    try:
        return trial.devices_of(choice.path, abi, os.environ, _PATIENCE_S), ""
    except TcpxError as error:
        return [], str(error)


def _line(candidate: find.PluginChoice) -> Line:
    if not os.path.exists(candidate.path):
        return Line(candidate.how, candidate.path, False, "", (), "", "not there")
    try:
        file = find.inspect(candidate)
    except TcpxError as error:
        return Line(candidate.how, candidate.path, True, "", (), "", str(error))
    return Line(candidate.how, candidate.path, True, file.sha256, file.abi_versions, file.name, "")


def _print_table(lines: list[Line], choice: find.PluginChoice | None) -> None:
    cells = [("", "by", "plugin", "ABI", "sha256", "path")]
    for line in lines:
        mark = "->" if choice is not None and choice.path == line.path else ""
        abi = ",".join(f"v{version}" for version in line.abi_versions)
        shown = line.plugin or ("-" if not line.exists else "none")
        cells.append((mark, line.name, shown, abi or "-", line.sha256[:12] or "-", line.path))
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    show(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    show(f"# {line.problem}" for line in lines if line.exists and line.problem)
    if choice is not None:
        show([f"# run would choose {choice.path}: {choice.how}"])


def _print_json(
    lines: list[Line],
    choice: find.PluginChoice | None,
    refusal: TcpxError | None,
    devices: list[dict[str, Any]],
) -> None:
    chosen = dataclasses.asdict(choice) if choice is not None and refusal is None else None
    problem = str(refusal) if refusal is not None else None
    listed = [dataclasses.asdict(line) for line in lines]
    document = {"plugins": listed, "chosen": chosen, "devices": devices, "error": problem}
    print(json.dumps(document, indent=2))
