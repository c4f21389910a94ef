"""The hostfile of a preflight: its hosts, whether their names are known, and what it asks for.

A name that nobody knows makes some launchers wait for ever, so names are resolved before one is
started.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.findings import Finding
from tcpx_mpi.inputs import Limits, read_bytes, read_text
from tcpx_mpi.preflight.findings import FAILED, OK, WARNING, Checked, CheckFinding
from tcpx_mpi.preflight.hostfile_forms import HostLine, Hosts, Launcher, parse_hosts
from tcpx_mpi.units import counted

_SSH_PORT = 22
#: Longer than a SYN that was lost once takes.
_REACH_S = 1.5
_LIMITS = Limits(bytes=1 << 20, lines=1 << 16)


@contextlib.contextmanager
def rereadable_hostfile(path: str) -> Iterator[str]:
    """A path at which a hostfile can be read more than once: its own, or of a copy for a pipe.

    Raises UsageError.
    """
    if not os.path.exists(path) or os.path.isfile(path) or os.path.isdir(path):
        yield path
        return
    with tempfile.NamedTemporaryFile("wb", prefix="tcpx-mpi-hosts-") as copy:
        copy.write(read_bytes(path, _LIMITS, *_named(path)))
        copy.flush()
        yield copy.name


def read_hostfile(path: str, launcher: Launcher, shown: str = "") -> Hosts:
    """The hosts of a file as this launcher reads it. Raises UsageError, which names it `shown`."""
    text = read_text(path, _LIMITS, *_named(shown or path))
    if "\0" in text:
        raise UsageError("{}: is no text; {}".format(*_named(shown or path)))
    return parse_hosts(text, shown or path, launcher)


def lines_of(path: str, hosts: Sequence[HostLine]) -> list[str]:
    """The lines of these hosts as the file has them, with whom to log in as, and where."""
    text = read_text(path, _LIMITS, *_named(path)).splitlines()
    return [text[host.line - 1] for host in hosts]


def _named(path: str) -> tuple[str, str]:
    remedy = "give a file with a line `NAME slots=N` (MPICH: `NAME:N`) for each node"
    return f"--hostfile ({path})", remedy


def require_known(
    hosts: Sequence[HostLine], path: str, resolve: Callable[[str], set[str]] | None = None
) -> dict[str, set[str]]:
    """The addresses of each name. Raises UsageError for names that cannot be resolved, with their
    lines, and for two names of one node: ranks that should be apart would share it.
    """

    def found(host: HostLine) -> set[str]:
        try:
            return (resolve or _resolve)(host.name)
        except (OSError, UnicodeError):
            return set()

    with ThreadPoolExecutor(max_workers=32) as pool:
        addresses = dict(zip([h.name for h in hosts], pool.map(found, hosts), strict=True))
    lost = [f"{host.name} (line {host.line})" for host in hosts if not addresses[host.name]]
    if lost:
        raise UsageError(
            f"--hostfile ({path}): unknown host {', '.join(lost)}: correct the name, add it to "
            "/etc/hosts or DNS, or use its address"
        )
    owners: dict[str, HostLine] = {}
    for host in hosts:
        for address in sorted(addresses[host.name]):
            first = owners.setdefault(address, host)
            if first is not host:
                raise UsageError(
                    f"--hostfile ({path}): {first.name} (line {first.line}) and {host.name} (line "
                    f"{host.line}) are one node, {address}: give each node one name"
                )
    return addresses


def _resolve(name: str) -> set[str]:
    return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}


def hostfile_findings(hosts: Hosts, path: str, launcher: Launcher) -> list[CheckFinding]:
    """The findings on the file; slots that differ fail, as a run of them all would."""
    found = [_slots_finding(hosts.lines, path, launcher)]
    for note in hosts.notes:
        cause, _, remedy = note.rpartition(": ")
        found.append(Finding(WARNING, "hostfile", f"{path}, {cause}", remedy))
    return found


def _slots_finding(hosts: Sequence[HostLine], path: str, launcher: Launcher) -> CheckFinding:
    slots = {host.slots for host in hosts}
    nodes = f"{path}: {counted(len(hosts), 'node')}"
    if slots == {None}:
        text = f"{nodes}, as many slots as each has cores: no line gives any"
        return Finding(OK, "hostfile", text)
    each = ", ".join(f"{h.name} {'its cores' if h.slots is None else h.slots}" for h in hosts)
    remedy = "a run wants equally many ranks on each node: give every node the same slots"
    if None in slots:
        text = f"{nodes}, slots on some lines only: {each}"
        return Finding(WARNING, "hostfile", text, remedy)
    text = f"{nodes}, {counted(sum(host.slots or 0 for host in hosts), 'slot')}"
    if len(slots) > 1:
        uneven = f"{text}, uneven: {each}"
        return Finding(FAILED, "hostfile", uneven, remedy, Checked("", ExitCode.USAGE))
    if launcher.is_intel and slots != {1}:
        text += (
            f"; {launcher.name} takes the counts with -machinefile, and passes over them with -f"
        )
    return Finding(OK, "hostfile", text)


def needs_ssh(host: HostLine, addresses: set[str], own: set[str]) -> bool:
    """Whether mpirun goes to this host by ssh. To an IPv6 address of this very node it does."""
    return host.is_ipv6 or not addresses & own


def reach_findings(
    hosts: Sequence[HostLine], reach: Callable[[str, int], str] | None = None
) -> list[CheckFinding]:
    """A warning for each host whose ssh port does not answer; `reach` gives "" or a cause."""
    ports = [host.port or _SSH_PORT for host in hosts]
    with ThreadPoolExecutor(max_workers=32) as pool:
        causes = list(pool.map(reach or _reach, [host.name for host in hosts], ports))
    usual = "is the node up, and may it be reached by ssh? A launcher without ssh needs no port 22"
    by_address = "; for this node itself write localhost: mpirun goes to an IPv6 address by ssh"
    return [
        Finding(
            WARNING, "ssh port", f"port {port}: {cause}",
            usual + (by_address if host.is_ipv6 else ""), Checked(host.name),
        )
        for host, port, cause in zip(hosts, ports, causes, strict=True)
        if cause
    ]  # fmt: skip


def _reach(name: str, port: int) -> str:
    try:
        socket.create_connection((name, port), timeout=_REACH_S).close()
    except TimeoutError:
        return f"no answer within {_REACH_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""
