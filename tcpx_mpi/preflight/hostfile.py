"""Hostfiles of Open MPI (`node slots=8`) and MPICH (`node:8`), and whether their names are known.

A name that nobody knows makes some launchers wait for ever, so names are resolved before one is
started.
"""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.preflight.findings import Finding, Status
from tcpx_mpi.units import counted

_SSH_PORT = 22
#: Longer than a SYN that was lost once takes.
_REACH_S = 1.5
_NAME = re.compile(r"[A-Za-z0-9_.\-]+(@[A-Za-z0-9_.\-]+)?")
_OPTIONS = ("slots", "max_slots", "max-slots")


@dataclass(frozen=True)
class HostLine:
    """One host; `slots` is None where the file leaves them to the launcher."""

    line: int
    name: str
    slots: int | None

    @property
    def address(self) -> str:
        """The name without the user that may stand before it."""
        return self.name.rpartition("@")[2]


def read_hostfile(path: str) -> list[HostLine]:
    """The hosts of a file, each once, slots of several lines added up. Raises UsageError."""
    try:
        with open(path) as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(
            f"--hostfile ({path}): {cause}; give a file with a line `NAME slots=N` for each node"
        ) from None
    return parse_hostfile(text, path)


def parse_hostfile(text: str, path: str) -> list[HostLine]:
    """As `read_hostfile`, from its text; `path` is for errors, which name the line."""
    hosts: dict[str, HostLine] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"--hostfile ({path}), line {number}"
        host = _host(number, words, where)
        before = hosts.get(host.name)
        if before is not None:
            slots = None if before.slots is None or host.slots is None else (
                before.slots + host.slots
            )  # fmt: skip
            host = HostLine(before.line, host.name, slots)
        hosts[host.name] = host
    if not hosts:
        raise UsageError(f"--hostfile ({path}) names no host: give a line `NAME slots=N` for each")
    return list(hosts.values())


def require_known(
    hosts: Sequence[HostLine], path: str, resolve: Callable[[str], set[str]] | None = None
) -> dict[str, set[str]]:
    """The addresses of each name. Raises UsageError for names that cannot be resolved, with their
    lines, and for two names of one node: ranks that should be apart would share it.
    """

    def found(host: HostLine) -> set[str]:
        try:
            return (resolve or _resolve)(host.address)
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
    for first, second in itertools.combinations(hosts, 2):
        if both := addresses[first.name] & addresses[second.name]:
            raise UsageError(
                f"--hostfile ({path}): {first.name} (line {first.line}) and {second.name} (line "
                f"{second.line}) are one node, {min(both)}: give each node one name"
            )
    return addresses


def _resolve(name: str) -> set[str]:
    return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}


def hostfile_findings(hosts: Sequence[HostLine], path: str) -> list[Finding]:
    """What the file asks for; slots that differ fail, as a run of them all would."""
    slots = [1 if host.slots is None else host.slots for host in hosts]
    text = f"{path}: {counted(len(hosts), 'node')}, {counted(sum(slots), 'slot')}"
    if len(set(slots)) == 1:
        return [Finding(Status.OK, "", "hostfile", text)]
    each = ", ".join(f"{host.name} {count}" for host, count in zip(hosts, slots, strict=True))
    remedy = "a run wants equally many ranks on each node: give every node the same slots"
    uneven = f"{text}, uneven: {each}"
    return [Finding(Status.FAILED, "", "hostfile", uneven, remedy, ExitCode.USAGE)]


def reach_findings(
    hosts: Sequence[HostLine], reach: Callable[[str], str] | None = None
) -> list[Finding]:
    """A warning for each host whose ssh port does not answer; `reach` gives "" or a cause."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        causes = list(pool.map(reach or _reach, [host.address for host in hosts]))
    remedy = "is the node up, and may it be reached by ssh? A launcher without ssh needs no port 22"
    return [
        Finding(Status.WARNING, host.name, "ssh port", f"port {_SSH_PORT}: {cause}", remedy)
        for host, cause in zip(hosts, causes, strict=True)
        if cause
    ]


def _reach(address: str) -> str:
    try:
        socket.create_connection((address, _SSH_PORT), timeout=_REACH_S).close()
    except TimeoutError:
        return f"no answer within {_REACH_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _host(number: int, words: Sequence[str], where: str) -> HostLine:
    name, colon, count = words[0].partition(":")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: {words[0]!r} is no host name; write `NAME slots=N`")
    slots = _count(count, f"{where}: {words[0]!r}") if colon else None
    # `slots = 8` is as good as `slots=8` to Open MPI.
    for option in re.sub(r"\s*=\s*", "=", " ".join(words[1:])).split():
        key, equals, value = option.partition("=")
        if not equals or key not in _OPTIONS:
            raise UsageError(f"{where}: {option!r} is not known; write `{name} slots=N`")
        found = _count(value, f"{where}: {option!r}")
        slots = found if key == "slots" else slots
    return HostLine(number, name, slots)


def _count(text: str, where: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{where}: slots are a whole number of 1 or more")
    return int(text)
