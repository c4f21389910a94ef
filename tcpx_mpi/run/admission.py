"""Why a run is refused: all that one process can see without MPI and without a loaded plugin.

Two ask: the parent of `--ranks N` before it starts any rank, and a rank, for what no parent has
seen: all of it without a parent, its own node's files if the parent is on another node. What only
all ranks together can see is in `tcpx_mpi.run.agreement`. Every refusal is a UsageError of one
line, or the error of a plugin that cannot be found.
"""

from __future__ import annotations

import dataclasses
import math
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcpx_mpi import patterns
from tcpx_mpi.config.option import OPERATION
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.cpu_lists import parse_cpu_list
from tcpx_mpi.errors import UsageError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.launch.launcher_rank import LauncherRank, srun_without_pmi
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.placement import require_cpus
from tcpx_mpi.machine.placement_file import read_placement
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.plugin import find
from tcpx_mpi.plugin.unsafe_settings import refuse_fatal_values


@dataclass(frozen=True)
class Needs:
    """The needs of a story that may be refused."""

    #: It loads a plugin.
    plugin: bool
    #: It keeps results: a journal on each node, files where rank 0 is.
    results: bool


RUN = Needs(plugin=True, results=True)
SMOKE = Needs(plugin=True, results=False)
SELFTEST = Needs(plugin=False, results=False)


def read_settings(values: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """The settings of a command line (by option name, None: not given); their pattern is known."""
    # A mistyped pattern is said first; without one, the configuration file may have it.
    if values["pattern"] is not None:
        _refuse_pattern(patterns.canonical(values["pattern"]))
    settings = load_settings(values, environ)
    settings = dataclasses.replace(settings, pattern=patterns.canonical(settings.pattern))
    _refuse_pattern(settings.pattern)
    _refuse_sides(settings)
    return _with_options_of_profile(settings)


def _with_options_of_profile(settings: Settings) -> Settings:
    """With the options that the file of `--profile` has, where nobody says otherwise."""
    if not settings.profile.endswith(".toml"):
        return settings
    profile = profiles.find_profile(settings.profile, this_machine())
    assert profile is not None
    fields = {option.name: option.field for option in OPTIONS}
    given: dict[str, Any] = {fields[name]: value for name, value in profile.run.items()
             if settings.sources[fields[name]] == "default"}  # fmt: skip
    sources = {**settings.sources, **dict.fromkeys(given, profile.source)}
    return dataclasses.replace(settings, **given, sources=sources)


def admit_parent(settings: Settings, environ: Mapping[str, str], ranks: int, needs: Needs) -> None:
    """Refuses, before so many ranks are started, what any of them would find."""
    from tcpx_mpi.workload import workload_of

    workload_of(settings, ranks)
    find.prepare_environment(settings, environ)
    if settings.placement_path is not None:
        read_placement(settings.placement_path)
    _refuse_node(settings, ranks)
    if settings.cpus and mpirun.ranks_are_here(environ):
        mask = sorted(os.sched_getaffinity(0))
        require_cpus(parse_cpu_list(settings.cpus), ranks, mask, socket.gethostname())
    if needs.results:
        _refuse_limit(environ)
        _refuse_spool(settings)
        _refuse_outputs(settings)
    if needs.plugin:
        _refuse_unloadable(settings, environ)


def admit_rank(
    settings: Settings, environ: Mapping[str, str], rank: LauncherRank, needs: Needs
) -> Settings:
    """The settings of a rank, with the number of ranks that its launcher says.

    Nothing is asked here that ranks come to in any case before they measure: their number and
    their placement file.
    """
    from tcpx_mpi import _native  # which a parent need not load

    _native.watch_limit(settings.setup_timeout_s)  # what is looked at may be on a disk that hangs
    _native.watch_waits_for("files that its options name")
    settings = with_ranks_of_launcher(settings, rank.size)
    has_parent = mpirun.PARENT_VARIABLE in environ
    parent_is_here = has_parent and mpirun.ranks_are_here(environ)
    if not has_parent:
        _refuse_number(settings, rank.size)
        find.prepare_environment(settings, environ)
    if not parent_is_here:
        _refuse_node(settings, rank.size)
    if needs.results:
        if not has_parent:
            _refuse_limit(environ)
        if not parent_is_here:
            _refuse_spool(settings)
            if rank.rank == 0:  # results are written where it is
                _refuse_outputs(settings)
    if settings.runs > 1 and not settings.launch:
        raise UsageError(
            "--runs starts mpirun itself: give --ranks N and no mpirun, or start the launches "
            "yourself and put their files together with `tcpx-mpi join`"
        )
    return settings


def refuse_series(settings: Settings) -> None:
    """Raises UsageError for what several launches cannot have."""
    if settings.hdf5_path == "none":
        raise UsageError("--runs keeps its launches in one file: leave --hdf5 none out")
    if settings.json_stream_path is not None:
        raise UsageError("--json-stream is of one launch: leave it out with --runs, or use -J")


WITHOUT_PMI = (
    "srun started this without PMI, so ranks cannot meet: use `srun --mpi=pmix`, or mpirun"
)


def how_to_start(environ: Mapping[str, str], pattern: str) -> str:
    """The command to type instead, for somebody who started one process alone."""
    if srun_without_pmi(environ):
        return WITHOUT_PMI
    return (
        f"run needs at least 2 ranks: start it with `mpirun -n 4 tcpx-mpi run {pattern}`, "
        "or add --ranks 4"
    )


def with_ranks_of_launcher(settings: Settings, world: int | None) -> Settings:
    """The settings, their ranks those of the launcher where a file says another number of them.

    A file that `--save-config` wrote of a run with --ranks is good under mpirun, too.
    """
    source = settings.sources["ranks"]
    if world is None or settings.ranks in (None, world) or not source.startswith("file"):
        return settings
    told = f"by the launcher, not {settings.ranks} of {source.removesuffix(': ranks')}"
    sources = {**settings.sources, "ranks": told}
    return dataclasses.replace(settings, ranks=world, sources=sources)


def warnings(ignored: Sequence[str], settings: Settings) -> list[str]:
    """The warning on settings that have no effect; at most one line."""
    program = patterns.find_program(settings.pattern)
    parts = [f"{' '.join(ignored)} (nothing of the kind here)"] if ignored else []
    effects = {
        "op": program.has_operation,
        "datatype": program.typed,
        "root": program.rooted or "root" in program.options,
        "algo": program.typed,
        "matrix_scale": settings.matrix_path is not None or bool(settings.sequence_paths),
        "sequence_by": bool(settings.sequence_paths),
        "spread": "spread" in program.options and settings.matrix_path is None,
    }
    given = [
        option.letter or option.option
        for option in OPTIONS
        if option.group == OPERATION
        and not effects.get(option.field, option.field in program.options)
        and settings.sources[option.field].startswith("command line")
    ]
    if given:
        what = "has no use for it" if program.typed else "moves bytes, without arithmetic"
        parts.append(f"{' '.join(given)} ({settings.pattern} {what})")
    received = settings.memory_of(sends=False)
    for field, has_effect, why in (
        ("all_pairs", program.first().rounds is not None, "it is of the pattern pairs"),
        ("most_pairs", settings.all_pairs, "it is of --all"),
        (
            "one_way",
            program.first().sender is not None or program.first().answers is not None,
            "it is of pingpong and of patterns in which a rank has one sender",
        ),
        ("unpack", received != "host", "host memory is not unpacked"),
        ("flush", received != "host", "host memory is not flushed"),
        ("registration", settings.memory != "host", "host memory has an address alone"),
        ("nccl_presets", "nccl" in settings.against, "it is of --against nccl"),
        ("nccl_env", "nccl" in settings.against, "it is of --against nccl"),
    ):
        if not has_effect and settings.sources[field].startswith("command line"):
            parts.append(f"{settings.sources[field].removeprefix('command line ')} ({why})")
    if settings.ci == 0 and settings.sources["max_time_s"].startswith("command line"):
        parts.append("--max-time (it bounds --ci, which is not given)")
    return [f"ignored: {', '.join(parts)}"] if parts else []


def warn(ignored: Sequence[str], settings: Settings) -> None:
    """Prints `warnings`; one process does."""
    for line in warnings(ignored, settings):
        print(f"# warning: {line}", file=sys.stderr, flush=True)


def _refuse_number(settings: Settings, world: int | None) -> None:
    """Another number of ranks than a launcher has; None: it does not say."""
    if settings.ranks is not None and world is not None and settings.ranks != world:
        raise UsageError(
            f"--ranks ({settings.ranks}) is not the number of ranks of the launcher ({world}): "
            "leave --ranks out under mpirun"
        )


def _refuse_node(settings: Settings, world: int | None) -> None:
    """Refuses what this node lacks: the gate's file, the devices that the profile names."""
    if settings.gate_path is not None:
        from tcpx_mpi.gates import read_gate, require_judgeable  # numpy

        require_judgeable(read_gate(settings.gate_path), settings, world)
    if settings.profile not in (profiles.AUTO, profiles.NONE):
        profile = profiles.find_profile(settings.profile, this_machine())
        if profile is not None:
            profile.require(this_machine(), socket.gethostname())


def _refuse_unloadable(settings: Settings, environ: Mapping[str, str]) -> None:
    """A plugin that cannot be, or not with these variables, and a GPU's memory if ranks are to be
    here and no GPU is."""
    file = find.inspect(find.choose_plugin(settings, environ))
    refuse_fatal_values(file.name, environ)
    if settings.memory == "cuda" and mpirun.ranks_are_here(environ):
        from tcpx_mpi.machine.gpu.choice import obstacle_of_host

        if obstacle := obstacle_of_host(socket.gethostname()):
            raise UsageError(f"--memory cuda: {obstacle}; or use --memory host")


def _refuse_pattern(name: str) -> None:
    if not name:
        known = ", ".join(patterns.NAMES)
        raise UsageError(f"no pattern given: use one of {known}, like `tcpx-mpi run ring`")
    if name not in patterns.NAMES:
        raise patterns.unknown(name)


def _refuse_sides(settings: Settings) -> None:
    """Elements that are computed with, in two kinds of memory."""
    sides = settings.memory_of(sends=True), settings.memory_of(sends=False)
    if sides[0] != sides[1] and patterns.find_program(settings.pattern).has_operation:
        raise UsageError(
            f"--send-memory and --recv-memory differ, and {settings.pattern} computes with "
            "elements of both: leave them out, or use a pattern that moves bytes"
        )


def _refuse_limit(environ: Mapping[str, str]) -> None:
    text = environ.get("NCCL_TESTS_MIN_BW")
    if text is None:
        return
    try:
        usable = 0 <= float(text) < math.inf
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(
            f"NCCL_TESTS_MIN_BW ({text}) is no bandwidth in GB/s: give a number, or unset it"
        )


def _refuse_spool(settings: Settings) -> None:
    from tcpx_mpi.records import require_writable

    require_writable(os.path.join(settings.spool, "journal"), "--spool")


def _refuse_outputs(settings: Settings) -> None:
    from tcpx_mpi.records import require_creatable

    for path, option in (
        (settings.json_path, "-J/--output_file"),
        (settings.csv_path, "--csv"),
        (settings.save_config_path, "--save-config"),
        (None if settings.events_to_stdout() else settings.json_stream_path, "--json-stream"),
    ):
        if path is not None:
            require_creatable(path, option)
    if settings.prom_path is not None:
        from tcpx_mpi.exchange.prometheus import require_prom

        require_prom(settings.prom_path)
    if settings.hdf5_path != "none":
        require_creatable(settings.hdf5_path or "result.h5", "--hdf5")
