"""Hostfiles as each launcher reads them: Open MPI's `node slots=8`, Hydra's `node:8`.

What a launcher takes, adds up or refuses was tried with Open MPI 4.1.4 and 5.0.11, MPICH 4.0.2 and
Intel MPI 2021.19. Pure.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError
from tcpx_mpi.preflight.agreement import mpi_family

_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE|PRRTE)\)\s+v?([\w.]+)")
_HYDRA = re.compile(r"Version:?\s+([\w.]+)")
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_SLOTS = ("slots", "cpu", "count")
_MOST_SLOTS = ("max_slots", "max-slots", *(f"{word}{sign}max" for word in _SLOTS for sign in "_-"))
_USER = ("username", "user_name", "user-name")
_CR_REMEDY = r"take them out: sed -i 's/\r$//'"


@dataclass(frozen=True)
class HostLine:
    """One host; `slots` is None if the launcher counts the node's cores."""

    line: int
    name: str
    slots: int | None
    #: Whom the launcher logs in as, and at which port, where the file says so.
    user: str = ""
    port: int | None = None

    @property
    def is_ipv6(self) -> bool:
        """Whether the name is an address of that family, which no launcher knows as its own."""
        return _is_address(self.name, 6)


@dataclass(frozen=True)
class Hosts:
    """The hosts of a file, each once, in its order; `notes` is what the launcher passes over."""

    lines: tuple[HostLine, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launcher:
    """The maker of the mpirun that reads a hostfile, by the text of its --version; Open MPI if that
    is empty."""

    name: str
    hydra: bool = False

    @property
    def is_intel(self) -> bool:
        return self.name.startswith("Intel")


def launcher_of(version: str) -> Launcher:
    """The launcher that `mpirun --version` tells of."""
    if mpi_family(version) == "MPICH":
        name = next((n for n in ("Intel", "MVAPICH") if n in version), "MPICH")
        name += " MPI" if name == "Intel" else ""
        return Launcher(f"{name} {found[1]}" if (found := _HYDRA.search(version)) else name, True)
    found = _OPEN_MPI.search(version)
    return Launcher(f"Open MPI {found[1]}" if found else "Open MPI")


def parse_hosts(text: str, path: str, launcher: Launcher) -> Hosts:
    """The hosts of the text of a hostfile. Raises UsageError, with the line, for what the launcher
    refuses, or reads as no count of ranks."""
    reader = _Hydra(path, launcher) if launcher.hydra else _OpenMpi(path, launcher)
    # Not splitlines(): a launcher ends a line at LF, and there alone.
    for number, line in enumerate(text.split("\n"), start=1):
        reader.read(number, line)
    if not reader.hosts:
        raise UsageError(
            f"--hostfile ({path}) names no host: give a line `{reader.form('NAME', 'N')}` for each"
        )
    return Hosts(tuple(reader.hosts.values()), tuple(reader.notes))


def line_of(name: str, slots: int, launcher: Launcher) -> str:
    """A line of a hostfile as this launcher takes it."""
    reader = _Hydra("", launcher) if launcher.hydra else _OpenMpi("", launcher)
    return reader.form(name, str(slots))


class _Reader:
    """A file as it is read, line by line."""

    def __init__(self, path: str, launcher: Launcher) -> None:
        self.path, self.launcher = path, launcher.name
        self.is_intel = launcher.is_intel
        self.hosts: dict[str, HostLine] = {}
        self.notes: list[str] = []
        self._where = ""

    def form(self, name: str, count: str) -> str:
        """A line of this launcher."""
        raise NotImplementedError

    def read(self, number: int, line: str) -> None:
        """Takes a line."""
        self._where = f"--hostfile ({self.path}), line {number}"
        if number == 1 and line.startswith("\ufeff"):
            why = "begins with a byte order mark, which is no part of a name"
            raise self._refused(f"{why}: sed -i '1s/^\\xef\\xbb\\xbf//' {self.path}")
        self._take(number, line)

    def _take(self, number: int, line: str) -> None:
        raise NotImplementedError

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"{self._where} {why}")

    def _unknown(self, option: str, name: str) -> UsageError:
        form = self.form(name, "N")
        return self._refused(f"has {option!r}, which {self.launcher} does not know: write `{form}`")

    def _count(self, text: str, option: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
            raise self._refused(f"has {option!r}: slots are a whole number of 1 or more")
        return int(text)


class _OpenMpi(_Reader):
    """Open MPI 4 and 5, which read alike."""

    def __init__(self, path: str, launcher: Launcher) -> None:
        super().__init__(path, launcher)
        self._given: set[str] = set()
        self._most: dict[str, int] = {}

    def form(self, name: str, count: str) -> str:
        return f"{name} slots={count}"

    def _take(self, number: int, line: str) -> None:
        line = re.split("#|//", line, maxsplit=1)[0]
        if "\r" in line:
            why = f"ends in CR LF, as Windows writes it, which {self.launcher} refuses"
            raise self._refused(f"{why}: {_CR_REMEDY} {self.path}")
        # `slots = 8` is as good as `slots=8`.
        words = "=".join(part.strip() for part in line.split("=")).split()
        if not words:
            return
        user, _, name = words[0].rpartition("@")
        self._require_name(words[0], user, name)
        key = name if _is_address(name) else name.partition(".")[0]
        if key in self.hosts:  # another line of a node is another slot
            host = self.hosts[key]
            host = dataclasses.replace(host, slots=(host.slots or 1) + 1)
            self._given.add(key)
        else:
            host = HostLine(number, name, 1)
        host = dataclasses.replace(host, user=user or host.user)
        for option in words[1:]:
            host = self._with(host, key, option)
        if key not in self._given and key in self._most:
            host = dataclasses.replace(host, slots=self._most[key])
            self._given.add(key)
        self.hosts[key] = host if key in self._given else dataclasses.replace(host, slots=None)

    def _require_name(self, word: str, user: str, name: str) -> None:
        if _is_address(name) and not user.count("@"):
            return
        host, colon, count = name.partition(":")
        if colon and _NAME.fullmatch(host):
            form = self.form(host, count if count.isdecimal() else "N")
            why = f"has {word!r}, which {self.launcher} takes for the name of a host"
            raise self._refused(f"{why}: write `{form}`")
        if not _NAME.fullmatch(name) or (user and not _NAME.fullmatch(user)):
            raise self._refused(f"has {word!r}, which is no host name: write `NAME slots=N`")

    def _with(self, host: HostLine, key: str, option: str) -> HostLine:
        """A host with one more option of its line."""
        name, equals, value = option.partition("=")
        if name in _USER:
            return dataclasses.replace(host, user=value.strip('"') or host.user)
        if not equals and name not in (*_SLOTS, *_MOST_SLOTS, "port"):
            meant = self.form(host.name, option if option.isdecimal() else "N")
            where = self._where.partition(", ")[2]
            self.notes.append(
                f"{where}: {self.launcher} passes over {option!r}: write `{meant}`, or take it out"
            )
            return host
        if name == "port":
            return dataclasses.replace(host, port=self._count(value, option))
        if name in _SLOTS:
            count = self._count(value, option)
            if key in self._given:
                raise self._refused(
                    f"gives slots to {host.name}, as line {host.line} does already, which "
                    f"{self.launcher} refuses: name a node once, with slots=N, or on a line "
                    "without slots for each of its ranks"
                )
            self._given.add(key)
            self._most[key] = max(self._most[key], count) if key in self._most else count
            return dataclasses.replace(host, slots=count)
        if name in _MOST_SLOTS:
            most = self._count(value, option)
            if most < (host.slots or 1):
                raise self._refused(
                    f"has {option!r}, less than the {host.slots} slots of {host.name}, which "
                    f"{self.launcher} refuses: give more, or take it out"
                )
            self._most[key] = most
            return host
        raise self._unknown(option, host.name)


class _Hydra(_Reader):
    """MPICH, Intel MPI and what else starts ranks by Hydra."""

    def form(self, name: str, count: str) -> str:
        return f"{name}:{count}"

    def _take(self, number: int, line: str) -> None:
        words = line.partition("#")[0].split()  # with CR as a blank
        if not words:
            return
        name, _, count = words[0].partition(":")
        if words[0].count(":") > 1 or "[" in name or not name:
            why = f"has {words[0]!r}, and {self.launcher} takes no IPv6 address"
            raise self._refused(f"{why}: write `NAME:N`, with a name of that node")
        slots = self._count(count, words[0]) if count else 1
        user, _, name = name.rpartition("@")
        for option in words[1:]:
            key, _, value = option.partition("=")
            if key == "user" and value:
                user = value
            elif key != "binding" or self.is_intel or not value:
                right = value if key in _SLOTS and value.isdecimal() else "N"
                form = self.form(name, right)
                why = f"has {option!r}, which {self.launcher} does not know"
                raise self._refused(f"{why}: write `{form}`")
        before = self.hosts.get(name)
        if before is not None:
            slots += before.slots or 0
            self.hosts[name] = dataclasses.replace(before, slots=slots, user=user or before.user)
        else:
            self.hosts[name] = HostLine(number, name, slots, user)


def _is_address(name: str, version: int | None = None) -> bool:
    try:
        return ipaddress.ip_address(name).version == version or version is None
    except ValueError:
        return False
