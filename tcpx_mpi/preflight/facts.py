"""The facts of a node as a rank that starts here finds them: read, not judged."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import tcpx_mpi
from tcpx_mpi._version import source_state
from tcpx_mpi.errors import TcpxError, UsageError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.launch.library import mpi_library
from tcpx_mpi.launch.own_python import module_command, without_here
from tcpx_mpi.machine import congestion
from tcpx_mpi.machine.congestion import Refusal
from tcpx_mpi.machine.interfaces import Interface, read_interfaces
from tcpx_mpi.machine.profiles import AUTO, NONE, Variable, environment_of, find_profile, near_miss
from tcpx_mpi.machine.topology import Topology, Tree, read_host, this_machine
from tcpx_mpi.machine.tuning import read_tuning
from tcpx_mpi.plugin import find
from tcpx_mpi.run.shared_environment import shared_environment

#: Where the receive-datapath manager's sockets are, if nothing says otherwise.
MANAGER_VARIABLE = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"
MANAGER_DEFAULT = "/tmp"
_MANAGER_NAMES = ("rx_rule_manager", "get_gpu_fd_*")
#: Longer than any plugin takes to come up, from a slow file system too.
_PATIENCE_S = 20.0


@dataclass(frozen=True)
class AskedPlugin:
    """The plugin by the command line: None and 0 if it says nothing."""

    spec: str | None = None
    abi: int = 0

    def arguments(self) -> list[str]:
        """The words by which another `preflight` asks for the same."""
        spec = ["--plugin", self.spec] if self.spec else []
        return spec + (["--abi", str(self.abi)] if self.abi else [])


@dataclass(frozen=True)
class PluginFacts:
    """The plugin that a run here would use; `problem` says what it died of, "" if it came up."""

    path: str
    how: str
    exists: bool = False
    readable: bool = False
    #: The mount that holds it.
    mount: str = ""
    noexec: bool = False
    sha256: str = ""
    abi_versions: tuple[int, ...] = ()
    name: str = ""
    #: "eth1 200000 Mb/s" of each device, or "eth1 speed unknown".
    devices: tuple[str, ...] = ()
    problem: str = ""
    #: Whether `problem` says, behind its first colon or semicolon, what to do.
    advised: bool = False
    #: A variable that the plugin, not initialised then, would die of or hang with, and behind a
    #: colon or semicolon what to do.
    fatal_value: str = ""
    #: A variable that no run would take; the plugin was not looked at then.
    settings_problem: str = ""
    #: One of three: what a rank uses of CUDA for buffers in a GPU's memory; why it would try that
    #: in vain; why its buffers would be in host memory. All "" without a plugin.
    cuda: str = ""
    cuda_problem: str = ""
    no_cuda: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """Everything the checks look at. Sizes in bytes; -1: no limit; None: cannot be read."""

    host: str
    node: str
    version: str
    source: str
    python: str
    executable: str
    mpi_library: str
    mpi_problem: str
    #: The profile that holds here, "" for none; and why one that was asked for, or one that was
    #: made for such a machine, does not.
    profile: str
    profile_asked: bool
    profile_problem: str
    plugin: PluginFacts
    #: (path, sha256) of every libnccl-net*.so in LD_LIBRARY_PATH, in the order of the loader.
    libraries: tuple[tuple[str, str], ...]
    interfaces: tuple[Interface, ...]
    #: What here asks for TCPX; empty: nothing does.
    tcpx_reasons: tuple[str, ...]
    manager_directory: str
    #: Name of a socket of the manager -> "" if it answers, else why not.
    manager_sockets: Mapping[str, str]
    #: PCI addresses and models of the GPUs that this process may use.
    gpus: tuple[str, ...]
    gpu_models: tuple[str, ...]
    #: GPUs on PCI, whether this process may use them or not.
    gpus_on_pci: int
    open_files: int
    locked_memory: int
    shm_free: int | None
    congestion: str
    congestion_available: tuple[str, ...]
    #: Why softtcpx would not get what it will ask for; None: it would.
    congestion_refusal: Refusal | None
    #: How this node is set (machine/tuning.py), by the names that a run's facts have for it.
    tuning: Mapping[str, str]
    cpus: tuple[int, ...]
    cpu_count: int
    #: Variables that a plugin reads and that all ranks should have alike.
    environment: Mapping[str, str]
    #: What names network interfaces of this node, the profile's word too.
    interface_variables: Mapping[str, str]


INTERFACE_VARIABLES = (
    "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
    "NCCL_GPUDIRECTTCPX_CTRL_DEV",
    "NCCL_SOCKET_IFNAME",
)


def read_facts(plugin: AskedPlugin, profile: str, environ: Mapping[str, str]) -> NodeFacts:
    """The facts of this node; `plugin` and `profile` are those of `run`. Starts no MPI."""
    host = read_host()
    topology = this_machine()
    library, mpi_problem = mpi_library()
    found_profile, profile_problem, variables = _profile(profile, topology, host.name, environ)
    # What a rank of a run will have set: its profile's word where there is no other.
    later = {**environ, **{name: value for name, value, _ in variables}}
    found_plugin = _plugin(plugin, NONE if profile_problem else profile, environ)
    directory = later.get(MANAGER_VARIABLE, "").strip() or MANAGER_DEFAULT
    return NodeFacts(
        host=host.name,
        node=host.node,
        version=tcpx_mpi.__version__,
        source=source_state(),
        python=platform.python_version(),
        executable=sys.executable,
        mpi_library=library,
        mpi_problem=mpi_problem,
        profile=found_profile,
        profile_asked=profile not in (AUTO, NONE),
        profile_problem=profile_problem,
        plugin=found_plugin,
        libraries=tuple(_libraries(environ)),
        interfaces=tuple(read_interfaces()),
        tcpx_reasons=tuple(find.what_asks_for_tcpx(environ)),
        manager_directory=directory,
        manager_sockets=_manager_sockets(directory),
        gpus=tuple(gpu.pci for gpu in topology.gpus),
        gpu_models=tuple(gpu.name for gpu in topology.gpus),
        gpus_on_pci=len(topology.pci_gpus),
        open_files=_limit(resource.RLIMIT_NOFILE, raised=True),
        locked_memory=_limit(resource.RLIMIT_MEMLOCK),
        shm_free=_free_bytes("/dev/shm"),
        congestion=congestion.kernels_own(),
        congestion_available=congestion.available(),
        congestion_refusal=congestion.refusal_of(
            later.get("SOFTTCPX_CONGESTION", "").strip() or congestion.USUAL
        ),
        tuning=read_tuning(Tree(), topology, [each.split()[0] for each in found_plugin.devices]),
        cpus=host.cpus,
        cpu_count=os.cpu_count() or 1,
        environment=shared_environment(environ),
        interface_variables={
            name: later[name] for name in INTERFACE_VARIABLES if later.get(name, "").strip()
        },
    )


def read_mpirun(environ: Mapping[str, str]) -> tuple[str, str]:
    """(path, first line of its --version) of the mpirun that would be used; "" if there is none.

    The second is "" if it does not answer.
    """
    try:
        path = mpirun.find_mpirun(environ)
    except TcpxError:
        return "", ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False, timeout=_PATIENCE_S,
            env=mpirun.mpirun_environment(environ, is_root=os.geteuid() == 0),
        )  # fmt: skip
        said = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
        # MPICH's begins with a title: "HYDRA build details:", "Version: 4.0.2".
        return path, " ".join(said[: 2 if said and said[0].endswith(":") else 1])
    return path, ""


def _profile(
    spec: str, topology: Topology, host: str, environ: Mapping[str, str]
) -> tuple[str, str, list[Variable]]:
    """(profile, why one that was meant cannot be, what it sets)."""
    try:
        found = find_profile(spec, topology)
        if found is not None:
            found.require(topology, host)
    except UsageError as error:
        return "", str(error), []
    if found is None:
        return "", near_miss(topology) if spec == AUTO else "", []
    return found.source, "", environment_of(found, topology, environ)


def _plugin(asked: AskedPlugin, profile: str, environ: Mapping[str, str]) -> PluginFacts:
    try:
        choice = find.find_plugin(asked.spec or "auto", environ, find.bundled_dir(), abi=asked.abi)
    except TcpxError as error:
        return PluginFacts("", "", problem=str(error))
    path, how = choice.path, choice.how
    # A bare name is looked up by dlopen alone.
    if os.path.isabs(path):
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            exists = os.path.exists(path)
            return PluginFacts(path, how, exists, problem="no file that can be read")
        if noexec(path):
            return PluginFacts(
                path, how, True, True, mount_of(path), True, find.sha256_of(path),
                problem="not loaded",
            )  # fmt: skip
    found = _probe(asked, profile)
    return PluginFacts(
        path=str(found.get("path", path)),
        how=how,
        exists=True,
        readable=True,
        mount=mount_of(path) if os.path.isabs(path) else "",
        sha256=str(found.get("sha256", "")),
        abi_versions=tuple(found.get("abi_versions", ())),
        name=str(found.get("name", "")),
        devices=tuple(found.get("devices", ())),
        problem=str(found.get("problem", "")),
        advised=bool(found.get("advised", False)),
        fatal_value=str(found.get("fatal_value", "")),
        settings_problem=str(found.get("settings_problem", "")),
        cuda=str(found.get("cuda", "")),
        cuda_problem=str(found.get("cuda_problem", "")),
        no_cuda=str(found.get("no_cuda", "")),
    )


#: What native code says of a plugin that calls exit(): with what, and what it had warned of.
_ENDED_BY_PLUGIN = re.compile(
    r"tcpx-mpi: error: .* has ended this process by exit\((\d+)\)(?: in \w+)?"
    r"(?:; the plugin said: (.*))?"
)
_CRASHED = re.compile(r"tcpx-mpi: error: .* has (crashed by SIG\w+).*")


def _probe(asked: AskedPlugin, profile: str) -> dict[str, Any]:
    """The word of the plugin, and then of CUDA, in a process of its own, which some of them end."""
    words = [profile, str(asked.abi), *([asked.spec] if asked.spec else [])]
    command = module_command("tcpx_mpi.preflight.probe", words)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
            env=without_here(os.environ),
        )
        printed, logged = done.stdout, done.stderr
        end = f"ended its process with exit code {done.returncode}"
    except subprocess.TimeoutExpired as late:
        printed, logged = os.fsdecode(late.stdout or b""), os.fsdecode(late.stderr or b"")
        end = f"did not come back within {_PATIENCE_S:g} s"
    found: dict[str, Any] = {}
    rest = logged.splitlines()
    for line in printed.splitlines():
        try:
            found |= dict(json.loads(line))
        except (ValueError, TypeError):
            rest.insert(0, line)  # a plugin prints what it likes
    if not found.keys() & {"problem", "cuda", "cuda_problem", "no_cuda"}:
        step, who = ("cuda_problem", "CUDA") if "devices" in found else ("problem", "init")
        words = [line.strip() for line in rest if line.strip()]
        if words and (told := _ENDED_BY_PLUGIN.fullmatch(words[-1])):
            end = f"ended its process with exit code {told[1]}"
            words[-1:] = [told[2]] if told[2] else []
        elif words and (told := _CRASHED.fullmatch(words[-1])):
            end = told[1]
            words.pop()
        found[step] = f"{who} {end}" + (f": {words[-1]}" if words else "")
    return found


def noexec(path: str) -> bool:
    """Whether the file system of a path is mounted so that dlopen cannot map code from it."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def mount_of(path: str) -> str:
    """The mount point that holds a path, of the mounts that this process sees."""
    real = os.path.realpath(path)
    try:
        rows = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return ""
    points = {row[4].encode().decode("unicode_escape") for row in rows}  # a space is \040
    parents = [real, *map(str, Path(real).parents)]
    return next((parent for parent in parents if parent in points), "")


def _libraries(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    for directory in environ.get("LD_LIBRARY_PATH", "").split(":"):
        pattern = os.path.join(glob.escape(directory), "libnccl-net*.so")
        for path in sorted(glob.glob(pattern)) if directory else []:
            with contextlib.suppress(UsageError):
                found.append((os.path.abspath(path), find.sha256_of(path)))
    return found


def own_addresses() -> set[str]:
    """The addresses of this node, of both families; a launcher needs no ssh to them."""
    found = psutil.net_if_addrs().values()
    return {each.address.partition("%")[0] for addresses in found for each in addresses}


def _manager_sockets(directory: str) -> dict[str, str]:
    paths = [
        path
        for name in _MANAGER_NAMES
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), name)))
    ]
    return {os.path.basename(path): _answer(path) for path in paths}


def _answer(path: str) -> str:
    """Nothing if somebody listens at a unix socket; a dead manager leaves its file behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


def _limit(kind: int, raised: bool = False) -> int:
    """A limit of this process; what a run raises itself, only the system limits."""
    soft, hard = resource.getrlimit(kind)
    limit = hard if raised else soft
    return -1 if limit == resource.RLIM_INFINITY else limit


def _free_bytes(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
