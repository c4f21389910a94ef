"""Profiles: what a kind of machine needs set, as TOML files; shipped ones are in this folder.

A profile gives an environment to the plugin and to MPI, and the NIC of each GPU. It never overrides
what the user has set. A name with a date ("a3-highgpu-8g@2026-06-22") is the vendor's recipe of
that day, with the versions that it names; it holds if it is asked for, never by "auto". Pure but
for reading files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.cpu_lists import cpu_list_text, parse_cpu_list
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import read_toml
from tcpx_mpi.machine.cpu_bindings import (
    RX_VARIABLE,
    TX_VARIABLE,
    Bindings,
    bindings_text,
    split_numa_node,
)
from tcpx_mpi.machine.topology import Topology

AUTO = "auto"
NONE = "none"
OPTION = "--profile"

_FOLDER = Path(__file__).parent
_REMEDY = f"a profile is like {_FOLDER / 'a3-highgpu-8g.toml'}"
#: Before the date in the name of a dated profile.
DATED = "@"
#: Plugins that a profile may be for: how each learns its data NICs and its control NIC.
TCPX, FASTRAK = "tcpx", "fastrak"
_NIC_VARIABLES = {
    TCPX: ("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "NCCL_GPUDIRECTTCPX_CTRL_DEV"),
    FASTRAK: ("NCCL_FASTRAK_IFNAME", "NCCL_FASTRAK_CTRL_DEV"),
}
#: Read by the ranks: Open MPI's messages.
MPI_OF_RANKS = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
#: Read by Open MPI 5's mpirun and its daemons only.
MPI_OF_DAEMONS = ("PRTE_MCA_prte_if_include",)
MPI_VARIABLES = (*MPI_OF_RANKS, *MPI_OF_DAEMONS)
#: What may differ from node to node.
NODE_VARIABLES = (
    *(name for names in _NIC_VARIABLES.values() for name in names),
    TX_VARIABLE,
    RX_VARIABLE,
    *MPI_VARIABLES,
)
#: Names of variables that a profile has set already, so that the record does not call them the
#: user's: MPI's have to be set before a rank knows anything else.
_SET_BEFORE = "TCPX_MPI_SET_BY_PROFILE"

#: Options of `run` that a profile may have: those of the engine, which `tcpx-mpi tune` finds.
RUN_OPTIONS = ("channels", "chunk", "window_send", "window_recv", "progress_threads")

#: (name, value, source)
Variable = tuple[str, str, str]


@dataclass(frozen=True)
class Profile:
    """One profile; `source` is how it is named in the record."""

    source: str
    #: A key of `_NIC_VARIABLES`.
    family: str
    about: str
    control_nic: str
    data_nics: tuple[str, ...]
    nic_of_gpu: tuple[str, ...]
    signature: Mapping[str, int]
    #: None: split each NIC's NUMA node.
    tx_bindings: Bindings | None
    rx_bindings: Bindings | None
    environment: Mapping[str, str]
    #: Of a dated recipe: "plugin", "manager", "nccl" as it names them.
    versions: Mapping[str, str]
    #: Options of `run` by name, where nobody says otherwise; no job of NCCL's has them.
    run: Mapping[str, object] = field(default_factory=dict)

    def fits(self, topology: Topology) -> bool:
        """Whether a machine has what the signature says, and all the NICs."""
        return self.knows(topology) and not self._missing_nics(topology)

    def knows(self, topology: Topology) -> bool:
        """Whether a machine has what the signature says."""
        found = {
            "gpus": topology.gpu_count,
            "cpus": len(topology.cpus),
            "numa_nodes": len(topology.numa_nodes),
        }
        alike = all(found[name] == number for name, number in self.signature.items())
        return bool(self.signature) and alike

    def lacks(self, topology: Topology) -> str:
        """The first NIC of the profile that cannot be used here: "no NIC eth3"; "" for none."""
        missing = self._missing_nics(topology)
        if not missing:
            return ""
        nic = topology.nic(missing[0])
        return f"no NIC {missing[0]}" if nic is None else f"NIC {missing[0]} {nic.state}"

    def require(self, topology: Topology, host: str) -> None:
        """Raises UsageError if this machine lacks a NIC or a CPU that the profile names."""
        if what := self.lacks(topology):
            raise UsageError(f"{self.source}: {host} has {what}: use the profile of its machine")
        allowed = set(topology.limits.cpuset or topology.cpus)
        for kind, bindings in (("tx", self.tx_bindings), ("rx", self.rx_bindings)):
            for nic_name, cpus in (bindings or {}).items():
                if absent := set(cpus) - allowed:
                    raise UsageError(
                        f"{self.source}: {host} has no CPU {min(absent)} for the {kind}_bindings "
                        f"of {nic_name} (it has {cpu_list_text(allowed)}): use the profile of its "
                        "machine"
                    )

    def mpi_variables(self) -> list[tuple[str, str]]:
        """The variables that keep Open MPI on the control NIC, for the ranks and for mpirun."""
        return [(name, self.control_nic) for name in MPI_VARIABLES if self.control_nic]

    def variables(self, topology: Topology) -> list[tuple[str, str]]:
        """Everything that the profile would set where nothing is set, in a fixed order."""
        ifname, control = _NIC_VARIABLES[self.family]
        wanted = [(ifname, ",".join(self.data_nics)), (control, self.control_nic)]
        wanted += [(TX_VARIABLE, self._bindings(topology, self.tx_bindings, 1))]
        wanted += [(RX_VARIABLE, self._bindings(topology, self.rx_bindings, 2))]
        wanted += [*self.environment.items(), *self.mpi_variables()]
        return [(name, value) for name, value in wanted if value]

    def _bindings(self, topology: Topology, given: Bindings | None, part: int) -> str:
        if given is not None:
            return bindings_text(given)
        split = {}
        for name in self.data_nics:
            nic = topology.nic(name)
            if nic is not None:
                split[name] = split_numa_node(topology, topology.numa_of(nic.numa_node))[part]
        return bindings_text({name: cpus for name, cpus in split.items() if cpus})

    def _missing_nics(self, topology: Topology) -> list[str]:
        wanted = [name for name in (self.control_nic, *self.data_nics) if name]
        up = {nic.name for nic in topology.nics if nic.up}
        return [name for name in wanted if name not in up]


def shipped() -> list[str]:
    """The names of the profiles in this package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def undated() -> list[str]:
    """The names of the profiles that hold by themselves, without the dated recipes."""
    return [name for name in shipped() if DATED not in name]


def recipes() -> list[Profile]:
    """The dated recipes, the newest first."""
    names = sorted((name for name in shipped() if DATED in name), key=_date_of, reverse=True)
    return [_load(name, f"profile {name}") for name in names]


def _date_of(name: str) -> str:
    return name.partition(DATED)[2]


def find_profile(spec: str, topology: Topology) -> Profile | None:
    """The profile of a name or file; with "auto" the shipped one that fits, or None.

    Of several that fit it is the one with most data NICs: A3 Mega has all that A3 High has.

    Raises UsageError for a name that is none, and for a file that is no profile.
    """
    if spec == NONE:
        return None
    if spec == AUTO:
        found = [_load(name, f"profile {name} (auto)") for name in undated()]
        fitting = [profile for profile in found if profile.fits(topology)]
        return max(fitting, key=lambda profile: len(profile.data_nics), default=None)
    if spec in shipped():
        return _load(spec, f"profile {spec}")
    if not spec.endswith(".toml"):
        raise UsageError(
            f"{OPTION} ({spec}) is unknown: use {', '.join(shipped())}, auto, none, or a FILE.toml"
        )
    return parse_profile(spec, f"profile {spec}", read_toml(OPTION, spec, _REMEDY))


def near_miss(topology: Topology) -> str:
    """Why "auto" finds nothing on a machine that a profile was made for; "" on any other."""
    profiles = [_load(name, f"profile {name}") for name in undated()]
    known = [profile for profile in profiles if profile.knows(topology)]
    said = [
        f"{profile.source} fits but for its NICs: {profile.lacks(topology)}" for profile in known
    ]
    return next(iter(said), "")


def environment_of(
    profile: Profile | None, topology: Topology, environ: Mapping[str, str]
) -> list[Variable]:
    """Every variable of a profile with the value that holds: the user's, where there is one."""
    if profile is None:
        return []
    ours = environ.get(_SET_BEFORE, "").split(",")
    return [
        (name, environ[name], "environment")
        if environ.get(name, "").strip() and name not in ours
        else (name, value, profile.source)
        for name, value in profile.variables(topology)
    ]


def keep_mpi_on_control_nic(
    spec: str, topology: Topology, environ: MutableMapping[str, str]
) -> None:
    """Sets MPI's variables of a profile where the user has not; before mpirun or MPI starts.

    A profile that cannot be, or not here, is refused later, where all ranks hear of it.
    """
    try:
        profile = find_profile(spec, topology)
    except UsageError:
        return
    control = topology.nic(profile.control_nic) if profile is not None else None
    if profile is None or control is None or not control.up:
        return
    unset = [(name, v) for name, v in profile.mpi_variables() if not environ.get(name, "").strip()]
    environ.update(unset)
    # mpirun may have been told already, and does not hand its own variables to the ranks.
    ours = [environ.get(_SET_BEFORE, ""), *(name for name, _ in unset)]
    environ[_SET_BEFORE] = ",".join(filter(None, ours))


def _load(name: str, source: str) -> Profile:
    path = str(_FOLDER / f"{name}.toml")
    return parse_profile(path, source, read_toml(OPTION, path, _REMEDY))


# --- The form of a file ---------------------------------------------------------------------------

_KEYS = (
    "about", "family", "control_nic", "data_nics", "nic_of_gpu", "signature", "tx_bindings",
    "rx_bindings", "environment", "versions", "run", "evidence",
)  # fmt: skip
_SIGNATURE = ("gpus", "cpus", "numa_nodes")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: `eval "$(tcpx-mpi env)"` would let a file say what the shell, or what is started from it, runs.
_OF_SHELLS = re.compile(
    r"PATH|IFS|ENV|BASH_ENV|BASH_FUNC_.*|PROMPT_COMMAND|PS[0-4]|CDPATH|SHELLOPTS|BASHOPTS|EDITOR"
    r"|VISUAL|PAGER|LD_PRELOAD|LD_AUDIT|PYTHON.*|PERL5.*|GIT_.*"
)


def parse_profile(path: str, source: str, table: Mapping[str, Any]) -> Profile:
    """The profile in a table of TOML. Raises UsageError, naming file and key."""
    for key in table:
        if key not in _KEYS:
            raise _wrong(path, key, f"is no part of a profile: use {', '.join(_KEYS)}")
    family = table.get("family", TCPX)
    if family not in _NIC_VARIABLES:
        raise _wrong(path, "family", f"({family}) is unknown: use {' or '.join(_NIC_VARIABLES)}")
    data_nics = _names(path, "data_nics", table)
    nic_of_gpu = _names(path, "nic_of_gpu", table)
    for name in nic_of_gpu:
        if name not in data_nics:
            raise _wrong(path, "nic_of_gpu", f"has {name}, which is not in data_nics")
    signature = _table(path, "signature", table, int)
    for key in signature:
        if key not in _SIGNATURE:
            raise _wrong(path, f"signature.{key}", f"is unknown: use {', '.join(_SIGNATURE)}")
    environment = _table(path, "environment", table, str)
    for name, value in environment.items():
        require_variable(path, name, value)
    _table(path, "evidence", table, str)  # for its reader
    return Profile(
        source=source,
        family=family,
        about=_text(path, "about", table),
        control_nic=_text(path, "control_nic", table),
        data_nics=data_nics,
        nic_of_gpu=nic_of_gpu,
        signature=signature,
        tx_bindings=_bindings(path, "tx_bindings", table, data_nics),
        rx_bindings=_bindings(path, "rx_bindings", table, data_nics),
        environment=environment,
        versions=_table(path, "versions", table, str),
        run=_run_options(path, _table(path, "run", table, str)),
    )


def require_variable(path: str, name: str, value: str, remedy: str = _REMEDY) -> None:
    """Raises UsageError for what a table `environment` of a file cannot have."""
    if not _VARIABLE.fullmatch(name) or "\0" in value:
        what = "is no name of a variable with a text"
        raise _wrong(path, f"environment: {name!r}", f"{what}: letters, digits and _", remedy)
    if _OF_SHELLS.fullmatch(name):
        what = "is what a shell or the loader runs programs by: set it yourself"
        raise _wrong(path, f"environment.{name}", what, remedy)


def _run_options(path: str, table: Mapping[str, str]) -> dict[str, object]:
    """The values of options, by name, as they are parsed."""
    known = {option.name: option for option in OPTIONS if option.name in RUN_OPTIONS}
    for name in table:
        if name not in known:
            raise _wrong(path, f"run.{name}", f"is unknown: use {', '.join(RUN_OPTIONS)}")
    return {name: known[name].parse(f"{path}: run.{name}", text) for name, text in table.items()}


def _bindings(
    path: str, key: str, table: Mapping[str, Any], data_nics: Sequence[str]
) -> Bindings | None:
    if table.get(key) == AUTO:
        return None
    bindings: dict[str, tuple[int, ...]] = {}
    for nic, text in _table(path, key, table, str).items():
        if nic not in data_nics:
            raise _wrong(path, f"{key}.{nic}", "is not in data_nics")
        try:
            bindings[nic] = parse_cpu_list(text)
        except ValueError:
            bindings[nic] = ()
        if not bindings[nic]:
            raise _wrong(path, f"{key}.{nic}", f"({text}) is no list of CPUs like 8-21")
    return bindings


def _text(path: str, key: str, table: Mapping[str, Any]) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise _wrong(path, key, f"({value}) is no text in quotes")
    return value


def _names(path: str, key: str, table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise _wrong(path, key, f'({value}) is no list of names like ["eth1", "eth2"]')
    return tuple(value)


def _table(path: str, key: str, table: Mapping[str, Any], kind: type) -> dict[str, Any]:
    value = table.get(key, {})
    whole = isinstance(value, dict) and all(type(item) is kind for item in value.values())
    if not whole:
        what = "whole numbers" if kind is int else "texts in quotes"
        raise _wrong(path, key, f"({value}) is no table of {what}")
    return dict(value)


def _wrong(path: str, key: str, what: str, remedy: str = _REMEDY) -> UsageError:
    return UsageError(f"{path}: {key} {what}; {remedy}")
