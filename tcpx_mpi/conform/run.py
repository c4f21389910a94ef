"""The versions of a plugin that are asked for, each tried and shown."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from tcpx_mpi.conform import expectations, report
from tcpx_mpi.conform.child import Target
from tcpx_mpi.conform.memory import why_no_gpu
from tcpx_mpi.conform.suite import Version, try_all
from tcpx_mpi.conform.table import CLAUSES, with_needs
from tcpx_mpi.errors import UsageError
from tcpx_mpi.folded import show
from tcpx_mpi.plugin import find
from tcpx_mpi.transport.load_plugin import IN_PLACE_KIND, LIKE_VARIABLE

#: What TCPX and softtcpx hang without.
_CHUNK_BYTES = "524288"
_FIRST_WITH_A_DEVICE_SIDE = 7


@dataclass(frozen=True)
class Request:
    """A request: which plugin is judged by what, and how."""

    plugin: str
    #: Versions of its table, the newest first; 0: the newest that it has.
    versions: Sequence[int]
    memory: str = "host"
    #: The clause, and what it needs; None: all.
    only: str | None = None
    #: What a user's file excuses.
    known: expectations.Excuses = field(default_factory=dict)
    quick: bool = False
    deadline_s: float = 60.0


def try_versions(request: Request, environ: MutableMapping[str, str]) -> list[Version]:
    """Each version that is asked for and offered. Prints as it goes.

    Raises UsageError and PluginMissing as `find.find_plugin` and `find.inspect`.
    """
    files, memory = _files(request.plugin, request.versions, environ), request.memory
    # As a run has it: only softtcpx takes memory of the host for a GPU's.
    others = [file.name for file in files if not find.is_softtcpx(file.name)]
    if memory == "emulated" and others:
        raise UsageError(f"--memory emulated is for softtcpx, not for {others[0]}: use host")
    if memory == "cuda" and (why := why_no_gpu()):
        raise UsageError(f"--memory cuda: {why}; use host")
    if memory != "host":
        files = [file for file in files if _takes_memory_of_gpus(file, environ)]
        if not files:
            raise UsageError(
                f"--memory {memory} needs a device side, which v6 of softtcpx has not: use host, "
                f"or {LIKE_VARIABLE}={IN_PLACE_KIND}"
            )
    environ.setdefault(find.CHUNK_VARIABLE, _CHUNK_BYTES)
    versions = []
    for file in files:
        show([report.heading(file.name, file.abi, file.path, memory)])
        results = try_all(
            Target(file.path, file.abi, memory, request.deadline_s),
            CLAUSES if request.only is None else with_needs(request.only),
            {**expectations.shipped_for(file.name), **request.known},
            request.quick,
            lambda result: show([report.line(result)], report.INDENT),
        )
        versions.append(Version(file.abi, file.name, file.path, results))
        show(report.summary(versions[-1], request.known).splitlines())
    return versions


def _files(plugin: str, wanted: Sequence[int], environ: Mapping[str, str]) -> list[find.PluginFile]:
    bundled = find.bundled_dir()
    if len(wanted) == 1:
        return [_inspect(find.find_plugin(plugin, environ, bundled, abi=wanted[0]))]
    if plugin == "softtcpx":  # a file a version
        offered = list(wanted)
    else:
        newest = _inspect(find.find_plugin(plugin, environ, bundled))
        offered = [abi for abi in wanted if abi in newest.abi_versions]
    return [_inspect(find.find_plugin(plugin, environ, bundled, abi=abi)) for abi in offered]


def _takes_memory_of_gpus(file: find.PluginFile, environ: Mapping[str, str]) -> bool:
    in_place = environ.get(LIKE_VARIABLE, "").strip() == IN_PLACE_KIND
    newer = file.abi >= _FIRST_WITH_A_DEVICE_SIDE
    return newer or in_place or not find.is_softtcpx(file.name)


def _inspect(choice: find.PluginChoice) -> find.PluginFile:
    # What is loaded here would be loaded in each clause's process from its beginning.
    return find.inspect(choice, ours_too=True)
