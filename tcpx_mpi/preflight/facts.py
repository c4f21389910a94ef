"""What a node is, as a rank that starts here finds it: read, not judged."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
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
from tcpx_mpi import launch, plugins
from tcpx_mpi._version import source_state
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.mpi_library import mpi_library
from tcpx_mpi.shared_environment import shared_environment
from tcpx_mpi.topology import read_host

#: Where the receive-datapath manager's sockets are, if nothing says otherwise.
MANAGER_VARIABLE = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"
MANAGER_DEFAULT = "/tmp"
_MANAGER_NAMES = ("rx_rule_manager", "get_gpu_fd_*")
#: Longer than any plugin takes to come up, from a slow file system too.
_PATIENCE_S = 20.0


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
    #: "eth1 200000 Mb/s" of each device.
    devices: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Interface:
    """A network interface; speed 0 where the kernel does not know."""

    name: str
    up: bool
    mtu: int
    speed_mbps: int
    addresses: tuple[str, ...]


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
    plugin: PluginFacts
    #: (path, sha256) of every libnccl-net*.so in LD_LIBRARY_PATH, in the order of the loader.
    libraries: tuple[tuple[str, str], ...]
    interfaces: tuple[Interface, ...]
    #: What here asks for TCPX; empty: nothing does.
    tcpx_reasons: tuple[str, ...]
    manager_directory: str
    #: Name of a socket of the manager -> "" if it answers, else why not.
    manager_sockets: Mapping[str, str]
    #: PCI addresses of NVIDIA GPUs.
    gpus: tuple[str, ...]
    open_files: int
    locked_memory: int
    shm_free: int | None
    congestion: str
    congestion_available: tuple[str, ...]
    wmem_max: int | None
    rmem_max: int | None
    cpus: tuple[int, ...]
    cpu_count: int
    #: Variables that a plugin reads and that all ranks should have alike.
    environment: Mapping[str, str]
    #: Those of them that name network interfaces of this node.
    interface_variables: Mapping[str, str]


INTERFACE_VARIABLES = (
    "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
    "NCCL_GPUDIRECTTCPX_CTRL_DEV",
    "NCCL_SOCKET_IFNAME",
)


def read_facts(plugin: str | None, environ: Mapping[str, str]) -> NodeFacts:
    """The facts of this node; `plugin` is what `--plugin` says. Starts no MPI."""
    host = read_host()
    library, mpi_problem = mpi_library()
    directory = environ.get(MANAGER_VARIABLE, "").strip() or MANAGER_DEFAULT
    return NodeFacts(
        host=host.name,
        node=host.node,
        version=tcpx_mpi.__version__,
        source=source_state(),
        python=platform.python_version(),
        executable=sys.executable,
        mpi_library=library,
        mpi_problem=mpi_problem,
        plugin=_plugin(plugin, environ),
        libraries=tuple(_libraries(environ)),
        interfaces=tuple(_interfaces()),
        tcpx_reasons=tuple(plugins.what_asks_for_tcpx(environ)),
        manager_directory=directory,
        manager_sockets=_manager_sockets(directory),
        gpus=tuple(sorted(os.path.basename(p) for p in glob.glob("/proc/driver/nvidia/gpus/*"))),
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_memory=_limit(resource.RLIMIT_MEMLOCK),
        shm_free=_free_bytes("/dev/shm"),
        congestion=_sysctl("net/ipv4/tcp_congestion_control"),
        congestion_available=tuple(_sysctl("net/ipv4/tcp_available_congestion_control").split()),
        wmem_max=_number(_sysctl("net/core/wmem_max")),
        rmem_max=_number(_sysctl("net/core/rmem_max")),
        cpus=host.cpus,
        cpu_count=os.cpu_count() or 1,
        environment=shared_environment(environ),
        interface_variables={
            name: environ[name] for name in INTERFACE_VARIABLES if environ.get(name, "").strip()
        },
    )


def read_mpirun(environ: Mapping[str, str]) -> tuple[str, str]:
    """(path, first line of its --version) of the mpirun that would be used; "" where there is none.

    The second is "" where it does not answer.
    """
    try:
        path = launch.find_mpirun(environ)
    except TcpxError:
        return "", ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False, timeout=_PATIENCE_S,
            env=launch.mpirun_environment(environ, is_root=os.geteuid() == 0),
        )  # fmt: skip
        said = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
        # MPICH's begins with a title: "HYDRA build details:", "Version: 4.0.2".
        return path, " ".join(said[: 2 if said and said[0].endswith(":") else 1])
    return path, ""


def _plugin(spec: str | None, environ: Mapping[str, str]) -> PluginFacts:
    try:
        choice = plugins.find_plugin(spec or "auto", environ, plugins.bundled_dir())
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
                path, how, True, True, mount_of(path), True, plugins.sha256_of(path),
                problem="not loaded",
            )  # fmt: skip
    found = _probe(spec)
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
    )


def _probe(spec: str | None) -> dict[str, Any]:
    """What the plugin says in a process of its own, which some plugins end when they fail."""
    command = [sys.executable, "-m", "tcpx_mpi.preflight.probe", *([spec] if spec else [])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"init did not come back within {_PATIENCE_S:g} s"}
    for line in done.stdout.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    last = f": {said[-1].strip()}" if said else ""
    return {"problem": f"init ended its process with exit code {done.returncode}{last}"}


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
            with contextlib.suppress(OSError):
                found.append((os.path.abspath(path), plugins.sha256_of(path)))
    return found


def _interfaces() -> list[Interface]:
    addresses = psutil.net_if_addrs()
    return [
        Interface(
            name, stats.isup, stats.mtu, stats.speed,
            tuple(a.address for a in addresses.get(name, ()) if a.family == socket.AF_INET),
        )
        for name, stats in sorted(psutil.net_if_stats().items())
    ]  # fmt: skip


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
    """Nothing where somebody listens at a unix socket; a dead manager leaves its file behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


def _limit(kind: int) -> int:
    soft, _ = resource.getrlimit(kind)
    return -1 if soft == resource.RLIM_INFINITY else soft


def _free_bytes(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
