"""Metadata of two runs compared: what differs, and what makes them incomparable."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tcpx_mpi.records import TURN_VARIABLE, RankInfo, Row, Run
from tcpx_mpi.stats import only_in_place
from tcpx_mpi.units import format_size

#: Settings and facts that every launch has its own of, or that name where results go.
_OF_NO_ACCOUNT = frozenset(
    {"hdf5_path", "json_path", "csv_path", "json_stream_path", "prom_path", "save_config_path",
     "config_path", "spool", "runs", "launch", "memory_available_bytes", "plugin_said",
     "TCPX_MPI_LAUNCH", "TCPX_MPI_LAUNCH_FILE", "TCPX_MPI_PARENT", "TCPX_MPI_TERMINAL",
     TURN_VARIABLE,
     "TCPX_MPI_SETUP_TABLE", "OMPI_MCA_btl_sm_backing_directory", "PRTE_MCA_prte_tmpdir_base",
     # Measured anew by each launch, and eight times as slow where others are at work: noise. What
     # it is a sign of, another clock, is a fact of its own.
     "own_clock_ns", "own_clock_step_ns", "own_chunk_ns"}
)  # fmt: skip
#: Variables that a launcher gives each of its jobs anew.
_OF_THE_JOB = ("OMPI_COMM_", "OMPI_APP_", "OMPI_FIRST_", "OMPI_FILE_", "OMPI_ARGV", "OMPI_COMMAND",
               "OMPI_NUM_", "OMPI_UNIVERSE", "OMPI_WORLD", "OMPI_MCA_ess", "OMPI_MCA_initial",
               "OMPI_MCA_orte", "SLURM_JOB")  # fmt: skip
_PLACE = ("host", "gpu", "gpu_pci", "nic", "nic_pci", "nic_speed_mbps", "numa_node", "cpus",
          "progress_cpu", "plugin_cpus", "memory_node", "device_name")  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One circumstance that is not the same; "" if a side has none."""

    section: str
    name: str
    first: str
    second: str


def differences(first: Run, second: Run) -> list[Difference]:
    """All that is known to differ: plugin, settings, versions, facts, variables, places."""
    a, b = first.header, second.header
    found = [
        *_unequal(
            "plugin",
            {"name": a.plugin_name, "sha256": a.plugin_sha256, "ABI": str(a.plugin_abi)},
            {"name": b.plugin_name, "sha256": b.plugin_sha256, "ABI": str(b.plugin_abi)},
        ),
        *_unequal("setting", _values(a.settings), _values(b.settings)),
        *_unequal("version", a.versions, b.versions),
        *_unequal("fact", a.facts, b.facts),
        *_unequal("environment", a.environment, b.environment),
    ]
    for ours, theirs in zip(a.ranks, b.ranks, strict=False):
        found += _unequal(f"rank {ours.rank}", _place(ours), _place(theirs))
    return found


def refusals(first: Run, second: Run) -> list[str]:
    """Why the two must not be compared: they are not of the same thing, or not whole; [] if none.

    The same holds for the launches within each of them.
    """
    found = []
    for run in (first, second):
        found += [f"{os.path.basename(run.path)} lacks {text}" for text in run.missing]
        found += _bad_bytes(run)
        found += [
            f"launches of {os.path.basename(run.path)} differ in their {text}"
            for launch in run.launches
            for text in _differing_settings(run, launch)
        ]
    return list(
        dict.fromkeys([*found, *(f"other {text}" for text in _differing_settings(first, second))])
    )


def refusals_of_spread(first: Run, spread: Run) -> list[str]:
    """Why the launches of `spread` say nothing of how far those of `first` are apart."""
    found = [f"{os.path.basename(spread.path)} lacks {text}" for text in spread.missing]
    found += [f"--spread with another {text}" for text in _differing_settings(first, spread)]
    return [*found, *_bad_bytes(spread)]


def of_one_command(first: Run, second: Run) -> list[str]:
    """Why two runs cannot be launches of one command; [] if they can."""
    a, b = first.header, second.header
    found = list(_differing_settings(first, second))
    for name, ours, theirs in (
        ("sizes", a.plan.sizes, b.plan.sizes),
        ("plugin", _plugin(first), _plugin(second)),
        ("check (-c)", a.plan.check, b.plan.check),
    ):
        if ours != theirs:
            found.append(f"{name}: {ours}, {theirs}")
    return found


def _plugin(run: Run) -> str:
    return f"{run.header.plugin_name} {run.header.plugin_sha256[:12]}"


def _differing_settings(first: Run, second: Run) -> Iterator[str]:
    a, b = first.header, second.header
    for name, ours, theirs in (
        ("pattern", a.pattern, b.pattern),
        ("number of ranks", a.world, b.world),
        ("memory", a.memory, b.memory),
        ("way to unpack", a.unpack, b.unpack),
        ("timing", a.mode, b.mode),
        *((what, ours, b.plan.of_times()[what]) for what, ours in a.plan.of_times().items()),
    ):
        if ours != theirs:
            yield f"{name}: {ours}, {theirs}"


def _bad_bytes(run: Run) -> Iterator[str]:
    name = os.path.basename(run.path)
    for launch in run.all_launches:
        for row in launch.rows:
            size = format_size(row.size_bytes)
            told = {average.side: average.wrong for average in row.averages}
            # The side that is compared: the other one some patterns of nccl-tests have not.
            side = "in_place" if only_in_place(row) else "out_of_place"
            unchecked = told.get(side, -1) < 0 if told else _unchecked(row)
            wrong_here = any(bool((each.wrong > 0).any()) for each in row.of_plugin())
            if wrong_here or any(wrong > 0 for wrong in told.values()):
                yield f"{name} has wrong bytes at {size}"
            elif row.size_bytes and unchecked:
                yield f"{name} did not check its bytes at {size}"


def _unchecked(row: Row) -> bool:
    return not all(bool(each.checked[each.receives].all()) for each in row.of_plugin())


def _values(settings: list[tuple[str, str, str]]) -> dict[str, str]:
    return {name: value for name, value, _ in settings}


def _place(info: RankInfo) -> dict[str, str]:
    return {name: str(getattr(info, name)) for name in _PLACE}


def _unequal(
    section: str, first: Mapping[str, str], second: Mapping[str, str]
) -> Iterator[Difference]:
    for name in dict.fromkeys([*first, *second]):
        ours, theirs = first.get(name, ""), second.get(name, "")
        if name in _OF_NO_ACCOUNT or name.startswith(_OF_THE_JOB):
            continue
        if ours != theirs:
            yield Difference(section, name, ours, theirs)
