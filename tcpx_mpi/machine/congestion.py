"""TCP congestion control: algorithms of this kernel, and those that this process may use."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

#: What softtcpx and plain TCP take where nobody says otherwise: others (bbr) pace a local stream
#: down.
USUAL = "cubic"
#: In the place of a name: the kernel's own.
DEFAULT = "default"
_SYSCTL = Path("/proc/sys/net/ipv4")


@dataclass(frozen=True)
class Refusal:
    """Why a socket of this process does not get a congestion control, and what to do."""

    cause: str
    remedy: str


def kernels_own() -> str:
    """The congestion control of a fresh socket here; "" if unknown."""
    return _listed("tcp_congestion_control")


def available() -> tuple[str, ...]:
    """The congestion controls of the kernel, whether this process may use them or not."""
    return tuple(_listed("tcp_available_congestion_control").split())


def refusal_of(name: str) -> Refusal | None:
    """Why this process would not get it; None: it would, or it is the kernel's own that is meant.

    Asked of the kernel: a list says neither what root may do nor what is loaded when it is wanted.
    """
    if name in ("", DEFAULT):
        return None
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        if error.errno == errno.EPERM:
            return _not_allowed(name)
        if error.errno == errno.ENOENT:
            cause = f"{name} is not available: {_has()}"
            return Refusal(cause, f"modprobe tcp_{name} as root, or name another")
        return None  # of no socket at all, others have more to say
    return None


def to_ask_for(name: str) -> str:
    """The name that a socket asks for to have this one: none if it has it and may not ask."""
    return "" if name == kernels_own() and refusal_of(name) is not None else name


def _not_allowed(name: str) -> Refusal:
    allowed = _listed("tcp_allowed_congestion_control").split()
    remedy = f"sysctl -w net.ipv4.tcp_allowed_congestion_control='{' '.join([*allowed, name])}'"
    others = f", or name another of {', '.join(allowed)}" if allowed else ""
    cause = f"{name} is available, but not allowed to this user"
    return Refusal(f"{cause}: {_has()}", f"{remedy} as root{others}")


def _has() -> str:
    return f"this kernel has {', '.join(available()) or 'no list of them'}"


def _listed(name: str) -> str:
    try:
        return (_SYSCTL / name).read_text().strip()
    except OSError:
        return ""
