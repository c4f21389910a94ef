"""A plugin in this process: found, mapped and initialised after its variables are set. No MPI."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import SetupFailed, UsageError
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.machine.interfaces import (
    Problem,
    missing_interface,
    problem_without_devices,
    read_interfaces,
)
from tcpx_mpi.machine.profiles import NODE_VARIABLES, Profile, environment_of, find_profile
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.plugin.current_gpu import make_gpu_current
from tcpx_mpi.plugin.find import (
    PluginChoice,
    PluginFile,
    answer_variables,
    bundled_dir,
    choose_plugin,
    inspect,
    interface_choice,
    is_softtcpx,
    is_tcpx,
    prepare_environment,
    reads_tcpx_variables,
)
from tcpx_mpi.plugin.log_choice import printed
from tcpx_mpi.plugin.softtcpx_defaults import (
    STAY_VARIABLE,
    WORKERS_VARIABLE,
    stay_variables,
    thread_variables,
    worker_variables,
    workers_asked_for,
)
from tcpx_mpi.plugin.trial import DEVICES, INIT, LOAD, CallFailed, require_init
from tcpx_mpi.plugin.unsafe_settings import refuse_fatal_values
from tcpx_mpi.transport.devices import names_of, read_devices
from tcpx_mpi.transport.observed_placement import thread_ids

#: Variables that may differ from node to node.
_OF_A_NODE = (*NODE_VARIABLES, WORKERS_VARIABLE, STAY_VARIABLE)

#: What makes softtcpx break a rule on purpose.
TRAP_PREFIX = "SOFTTCPX_TRAP_"
MANAGER_TRAP = "SOFTTCPX_TRAP_NO_MANAGER"
#: Sets many of them.
LIKE_VARIABLE = "SOFTTCPX_LIKE"
#: Of it: puts data in place itself, whatever memory that is; hidden until a flush, by a trap.
IN_PLACE_KIND = "direct"
HIDDEN_TRAP = "SOFTTCPX_TRAP_HIDDEN"


#: What NCCL passes where no class is asked for.
_NO_CLASS = -1


class RefusedAfterInit(UsageError):
    """A wrong setting that the plugin has read already: it does that once a process."""


@dataclass(frozen=True)
class ToTell:
    """The words on this rank's plugin that a reader must know: it may have been set otherwise
    elsewhere."""

    #: What it warned of while it was initialised, such as a setting that it does not use, and what
    #: cannot be in what it says of its devices.
    warned: Sequence[str] = ()
    #: Faults on purpose, NAME=VALUE.
    traps: Sequence[str] = ()
    #: Settings that took the place of derived ones, with what would have been.
    turned_off: Sequence[str] = ()


@dataclass
class LoadedPlugin:
    """A plugin in this process: its file, its handle, and what was set for it beforehand."""

    file: PluginFile
    how: str
    handle: Any
    derived: list[tuple[str, str, str]]
    profile: Profile | None
    #: What it said of its devices when it was loaded (see `read_devices`).
    nics: Sequence[_native.DeviceProperties]
    #: The lines that it logged while it was initialised, up to 64 KiB: its settings and devices.
    said: list[str]
    #: Threads that it had started by the end of its initialisation.
    threads: frozenset[int] = frozenset()
    to_tell: ToTell = field(default_factory=ToTell)
    #: Of its connections.
    traffic_class: int | None = None

    @property
    def devices(self) -> int:
        return len(self.nics)

    def nic(self, device: int) -> _native.DeviceProperties:
        """The plugin's description of a device: name, pci_path, speed_mbps, ptr_support, ..."""
        return self.nics[device]

    def another_context(self) -> Any:
        """A handle for one more user in this process, who finalizes it: a context of its own if the
        version has contexts, else `handle` itself, which is initialised once a process."""
        if not self.handle.has_contexts:
            return self.handle
        context = _native.Plugin(self.file.path, self.file.abi)
        context.init(_NO_CLASS if self.traffic_class is None else self.traffic_class)
        return context

    def fingerprint(self) -> str:
        """The facts that must be equal on all ranks, a `name=value` line each."""
        lines = [f"plugin_sha256={self.file.sha256}", f"plugin_name={self.file.name}"]
        lines += [f"plugin_abi={self.file.abi}"]
        lines += [f"profile={self.profile.source if self.profile else 'none'}"]
        # NICs and CPUs may have other names on another node.
        equal = [each for each in self.derived if each[0] not in _OF_A_NODE]
        return "\n".join(lines + [f"{name}={value}" for name, value, _ in equal])


def load_plugin(
    settings: Settings,
    environ: MutableMapping[str, str],
    workers: int = 0,
    tried: bool = False,
    threads: int = 1,
    stays: bool = False,
) -> LoadedPlugin:
    """Find, map and initialise the plugin; variables that it needs are set before it is mapped.

    `tried`: `try_plugin` found nothing wrong on this node. `workers` are those of our own plugin
    where it is to move GPUs' memory; 0: its own default. `threads` will drive it. `stays`: no ranks
    share that GPU.
    Raises UsageError, PluginMissing, or SetupFailed if init or the device list fails.
    """
    if not tried:
        try_plugin(settings, environ)
    profile, choice, derived = _chosen(settings, environ)
    _set(environ, derived)
    _native.print_plugin_log(*printed(environ, settings.debug))
    _native.watch_waits_for(f"{LOAD} {choice.path}")
    file = inspect(choice, apart=False)
    refuse_fatal_values(file.name, environ)
    if is_softtcpx(file.name):
        ours = answer_variables(environ)
        if workers:
            ours += worker_variables(workers, environ)
        if workers and stays:
            ours += stay_variables(environ)
        if not workers_asked_for({**environ, **{name: value for name, value, _ in ours}}):
            ours += thread_variables(threads, environ)
        _set(environ, ours)  # it reads them when it is initialised
        derived += ours
    launched, host = under_launcher(environ), socket.gethostname()
    _native.name_process(host if launched is None else f"rank {launched.rank} on {host}")
    before = thread_ids()
    _native.begin_plugin_init()
    handle = _native.Plugin(choice.path, choice.abi)
    require_traffic_class(settings.traffic_class, file, handle)
    try:
        _native.watch_waits_for(f"{INIT} {file.path}")
        make_gpu_current(file.path, environ)
        handle.init(_NO_CLASS if settings.traffic_class is None else settings.traffic_class)
        _native.watch_waits_for(f"{DEVICES} {file.path}")
        nics, findings = read_devices(handle)
    except _native.IncompleteTable as error:
        raise SetupFailed(str(error)) from None
    except _native.PluginError as error:
        raise SetupFailed(f"{file.path}: {error}{_what_to_do(str(error), settings)}") from None
    _require_interfaces(file, names_of(nics), environ)
    _native.end_plugin_init()
    said, warned = _native.plugin_log_of_init(), [*_native.plugin_log_first_warnings(), *findings]
    traps = traps_of(environ) if is_softtcpx(file.name) else []
    started = thread_ids() - before
    return LoadedPlugin(
        file, choice.how, handle, derived, profile, nics, said, started, ToTell(warned, traps),
        settings.traffic_class,
    )  # fmt: skip


def require_traffic_class(asked: int | None, file: PluginFile, handle: Any) -> None:
    """Raises UsageError for a class that nobody would hear of."""
    if asked is not None and not handle.offers_traffic_class:
        newer = [12] if is_softtcpx(file.name) else [v for v in file.abi_versions if v >= 10]
        remedy = f"use --abi {max(newer)}" if newer else "use another plugin"
        raise UsageError(
            f"--traffic-class ({asked}): {file.name} is driven by its table of v{file.abi}, and "
            f"connections have a class from v10 on: {remedy}, or leave it out"
        )


def try_plugin(settings: Settings, environ: Mapping[str, str]) -> None:
    """Load the plugin, and initialise one that is not known, in a process of its own; once a node.

    Raises as `load_plugin`, also where that ends the process.
    """
    _, choice, derived = _chosen(settings, environ)
    if os.path.dirname(choice.path) == bundled_dir():
        return
    file = inspect(choice)
    refuse_fatal_values(file.name, environ)
    if not is_tcpx(file.name):  # its manager would see a handshake more
        own = {**environ, **{name: value for name, value, _ in derived}}
        try:
            require_init(choice.path, choice.abi, own, settings.setup_timeout_s)
        except CallFailed as error:
            raise SetupFailed(f"{error}{_what_to_do(str(error), settings)}") from None


def _chosen(
    settings: Settings, environ: Mapping[str, str]
) -> tuple[Profile | None, PluginChoice, list[tuple[str, str, str]]]:
    """The profile, the plugin, and what is to be set before it is loaded."""
    topology = this_machine()
    profile = find_profile(settings.profile, topology)
    if profile is not None:
        profile.require(topology, socket.gethostname())
    # Before the profile sets variables that would ask for TCPX.
    choice = choose_plugin(settings, environ)
    made = prepare_environment(settings, environ, environment_of(profile, topology, environ))
    return profile, choice, made


def _require_interfaces(
    file: PluginFile, devices: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Raises RefusedAfterInit if the plugin has not all devices that were asked for, or none of
    them; SetupFailed if it has none and nothing was asked for."""
    variable, spec = interface_choice(file.name, environ)
    here = read_interfaces()
    if not devices:
        problem = problem_without_devices(variable, spec, here) or Problem(
            "though network interfaces are up",
            "see whether the hardware that it drives is there, what it logs (NCCL_DEBUG=INFO) and "
            + (
                "what NCCL_SOCKET_IFNAME or NCCL_GPUDIRECTTCPX_SOCKET_IFNAME select"
                if reads_tcpx_variables(file.name)
                else "what the variables that choose its devices select"
            ),
        )
        refuse = RefusedAfterInit if spec else SetupFailed  # a selection can be the mistake
        raise refuse(f"{file.path} finds 0 devices, {problem.cause}: {problem.remedy}")
    if refusal := missing_interface(variable, spec, devices, here):
        raise RefusedAfterInit(f"{refusal.cause}: {refusal.remedy}")


def _what_to_do(error: str, settings: Settings) -> str:
    """After a refusal that does not say why."""
    if settings.debug or "the plugin said" in error or "once a process" in error:
        return ""
    return "; it gave no reason: UCCL_TCPX_DEBUG=1 shows what it logs"


def traps_of(environ: Mapping[str, str]) -> list[str]:
    """softtcpx's traps that are set, NAME=VALUE; [] if there is but a choice of whom to trap."""
    found = {
        name: value
        for name, value in sorted(environ.items())
        if (name.startswith(TRAP_PREFIX) or name == LIKE_VARIABLE) and value.strip()
    }
    # A plugin of another kind, which keeps to its rules.
    if found.get(LIKE_VARIABLE) == IN_PLACE_KIND:
        found = {name: found[name] for name in found.keys() - {LIKE_VARIABLE, HIDDEN_TRAP}}
    if found.keys() <= {f"{TRAP_PREFIX}RANK", f"{TRAP_PREFIX}SIDE"}:
        return []
    return [f"{name}={value}" for name, value in sorted(found.items())]


def _set(environ: MutableMapping[str, str], variables: Sequence[tuple[str, str, str]]) -> None:
    environ.update({name: value for name, value, _ in variables})
