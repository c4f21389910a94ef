"""The space of settings: that of a plugin's kind, or the TOML file of `--space`.

Pure but for reading that file and the plugin's, whose names of variables tell which are its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tcpx_mpi.config.option import Option
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import Input, Limits, read_toml
from tcpx_mpi.machine.profiles import RUN_OPTIONS, require_variable
from tcpx_mpi.plugin.find import PluginFile, is_softtcpx, is_tcpx
from tcpx_mpi.records import RunHeader
from tcpx_mpi.slips import did_you_mean
from tcpx_mpi.tune.point import Change, Point
from tcpx_mpi.units import format_size_option

OPTION = "--space"
_REMEDY = "docs/how-to/tune.md has the form"
#: A table of the file for variables, as a profile has it.
_VARIABLES = "environment"
#: Values of one setting, and of a range.
_MOST_VALUES = 64
_RANGE = ("from", "to", "step", "factor")
_OPTIONS = {option.name: option for option in OPTIONS if option.name in RUN_OPTIONS}
_OF_OPTIONS = {v: option for option in OPTIONS for v in option.variables}
#: Of this program and of launchers.
_OTHERS = ("TCPX_MPI_", "OMPI_", "PMIX_", "PRTE_", "PMI_")
_LIBRARY = Limits(bytes=4 << 30)
#: Variables without TCPX's prefix that TCPX reads.
_OF_TCPX = frozenset(
    {"NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS",
     "NCCL_MIN_ZCOPY_SIZE", "NCCL_SOCKET_IFNAME"}
)  # fmt: skip

# Values of the kinds, the most telling first. Those of today are left out later.
_SOCKETS = ("NCCL_NSOCKS_PERTHREAD", ("2", "4", "8"))
_ENGINE = (
    ("channels", ("4", "1", "8", "2")),
    ("chunk", ("1M", "256K", "2M", "512K")),
    ("window_recv", ("8", "4")),
    ("window_send", ("16", "4")),
)
_TCPX = (
    _SOCKETS,
    ("NCCL_SOCKET_NTHREADS", ("2", "4")),
    ("NCCL_GPUDIRECTTCPX_SCHED_ALG", ("KATY", "RR")),
)
_SOFTTCPX = (_SOCKETS, ("SOFTTCPX_SNDBUF", ("0", "16777216")), ("SOFTTCPX_SPIN_US", ("500", "5")))
_SOFTTCPX_IN_GPUS = (
    ("SOFTTCPX_COPY_BYTES", ("262144", "131072")), ("SOFTTCPX_COPIES", ("16", "4")),
    ("SOFTTCPX_ZERO_COPY", ("0",)),
)  # fmt: skip
_THREADS = ("2", "4", "1", "8", "16")
#: In GPUs' memory, where many streams are needed, each with a worker.
_IN_GPUS = {"channels": ("8", "16", "4", "2"), "SOFTTCPX_WORKERS": ("16", "8", "12", "4")}


@dataclass(frozen=True)
class Space:
    """Values by setting; each value is text, as it would be typed."""

    values: Mapping[str, tuple[str, ...]]

    def singles(self, header: RunHeader) -> list[Point]:
        """Each value by itself, the first of each setting first, without what is so today, by a
        launch of today's settings."""
        today = _today(header)
        lists = [
            [Change(name, value, name in _OPTIONS) for value in values if today.get(name) != value]
            for name, values in self.values.items()
        ]
        turns = itertools.zip_longest(*lists)
        return [(change,) for turn in turns for change in turn if change is not None]

    def require_known(self, file: PluginFile) -> list[str]:
        """The variables that the plugin does not seem to have. Raises UsageError for one that
        only NCCL reads: no launch here has NCCL, so nothing of it could be measured."""
        unknown = [n for n in self.values if n not in _OPTIONS and not reads_variable(file, n)]
        for name in unknown:
            if name.startswith("NCCL_"):
                raise UsageError(
                    f"{OPTION}: {name} is none of {file.name}'s own: NCCL alone reads it, and no "
                    "launch here has NCCL; leave it out, and measure it by nccl-tests"
                )
        return unknown


def changes_of(space: Space) -> list[Change]:
    """Every value of a space by itself."""
    return [
        Change(name, value, name in _OPTIONS)
        for name, values in space.values.items()
        for value in values
    ]


def reads_variable(file: PluginFile, name: str) -> bool:
    """Whether a variable is the plugin's own: by its contract, else by the names in its file."""
    if is_tcpx(file.name):
        return name in _OF_TCPX or name.startswith("NCCL_GPUDIRECTTCPX_")
    wanted, before = name.encode(), b""
    for piece in Input(file.path, _LIBRARY).pieces():
        if wanted in before + piece:
            return True
        before = piece[-len(wanted) :]
    return False


def space_of_kind(plugin: str, memory: str, cores: int) -> Space:
    """The space of a plugin of that name: the engine's settings, and its own variables.

    `memory`: where buffers are, once that is known; `cores`: of a rank.
    """
    threads = tuple(each for each in _THREADS if int(each) <= cores)
    found = list(_ENGINE)
    if is_tcpx(plugin):
        found[1:1] = _TCPX
    if is_softtcpx(plugin):
        workers = [("SOFTTCPX_WORKERS", threads)] if threads else []
        found[1:1] = [*_SOFTTCPX[:1], *workers]
        found += [*_SOFTTCPX[1:], *(_SOFTTCPX_IN_GPUS if "cuda" in memory else ())]
    if "cuda" not in memory and threads:
        found.append(("progress_threads", threads))
    values = dict(found)
    if "cuda" in memory:
        values |= {name: of_gpus for name, of_gpus in _IN_GPUS.items() if name in values}
    return Space(values)


def read_space(path: str) -> Space:
    """The space in a file. Raises UsageError, one line, for one that is empty or wrong."""
    table = dict(read_toml(OPTION, path, _REMEDY))
    variables = table.pop(_VARIABLES, {})
    if not isinstance(variables, dict):
        raise UsageError(f"{path}: {_VARIABLES} is no table of variables; {_REMEDY}")
    found = {name: _of_option(path, name, value) for name, value in table.items()}
    for name, value in variables.items():
        values = _values(f"{path}: {_VARIABLES}.{name}", value)
        for each in values:
            require_variable(path, name, each, _REMEDY)
        if option := _OF_OPTIONS.get(name):
            known = option.name in _OPTIONS
            remedy = f"write {option.name} = ... above the table" if known else "leave it out"
            raise UsageError(f"{path}: {name} is {option.option} of `run`: {remedy}")
        if name.startswith(_OTHERS):
            raise UsageError(f"{path}: {name} is no plugin's: leave it out")
        found[name] = values
    if not found:
        raise UsageError(
            f"{OPTION} {path}: an empty space: name settings and values, like channels = [1, 4]"
        )
    return Space(found)


def _of_option(path: str, name: str, value: Any) -> tuple[str, ...]:
    where = f"{path}: {name}"
    option = _OPTIONS.get(name)
    if option is None:
        meant = did_you_mean(name.replace("-", "_"), _OPTIONS)
        hint = f"variables stand below [{_VARIABLES}]" if name.isupper() else ""
        raise UsageError(
            f"{where} is no setting of a space{meant}: "
            f"{hint or 'use ' + ', '.join(_OPTIONS) + f', or [{_VARIABLES}]'}"
        )
    parsed = [option.parse(where, text) for text in _values(where, value)]
    return tuple(dict.fromkeys(_typed(option, each) for each in parsed))


def _typed(option: Option, value: object) -> str:
    """A value as it would be typed, so that equal ones are equal."""
    size = option.metavar == "SIZE" and isinstance(value, int)
    return format_size_option(value) if size else str(value)  # type: ignore[arg-type]  # an int


def _values(where: str, value: Any) -> tuple[str, ...]:
    """The values of a list or a range, each once."""
    if isinstance(value, dict):
        value = list(_range(where, value))
    if not isinstance(value, list) or not value:
        raise UsageError(f"{where} has no values: write a list, or {{ from, to, step or factor }}")
    if len(value) > _MOST_VALUES:
        raise UsageError(f"{where} has {len(value)} values: use {_MOST_VALUES} or fewer")
    for each in value:
        if type(each) not in (int, str):
            raise UsageError(f"{where} ({each}) is neither a whole number nor a text in quotes")
    return tuple(dict.fromkeys(map(str, value)))


def _range(where: str, table: Mapping[str, Any]) -> Iterator[int]:
    for key, number in table.items():
        if key not in _RANGE or type(number) is not int:
            raise UsageError(f"{where}.{key} is no part of a range of whole numbers: use {_RANGE}")
    first, last = table.get("from"), table.get("to")
    step, factor = table.get("step", 0), table.get("factor", 0)
    if first is None or last is None or (step > 0) == (factor > 1) or (factor and first < 1):
        raise UsageError(
            f"{where} is no range: write {{ from = 1, to = 8, factor = 2 }}, or a step"
        )
    value = first
    for _ in range(_MOST_VALUES + 1):
        if value > last:
            return
        yield value
        value = value * factor if factor else value + step


def _today(header: RunHeader) -> dict[str, str]:
    """The settings of a launch: as they came out of options, cores and profile."""
    found = dict(header.environment)
    told = {name: value for name, value, _ in header.settings}
    for option in _OPTIONS.values():
        if text := told.get(option.field):
            found[option.name] = _typed(option, option.parse(option.label, text))
    # What was derived for the plugin stands among the settings.
    return found | {name: value for name, value in told.items() if name.isupper()}
