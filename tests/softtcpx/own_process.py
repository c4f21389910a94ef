"""What this process has open: descriptors, threads, the sockets of its connections."""

from __future__ import annotations

import os
import socket

from net_v7 import until


def open_descriptors() -> dict[str, str]:
    """What each descriptor of this process is, but for the one that lists them."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
    return found


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def until_threads_are(count: int) -> None:
    """The kernel lists a thread for a moment longer than a join of it takes."""
    until(lambda: threads() == count, f"{count} threads")


def data_sockets(port_side: bool) -> list[socket.socket]:
    """Duplicates of this process's connected TCP sockets, one side of each connection."""
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            descriptor = os.dup(int(name))
        except OSError:  # what listed them
            continue
        try:
            duplicate = socket.socket(fileno=descriptor)
        except OSError:  # no socket
            os.close(descriptor)
            continue
        try:
            duplicate.getpeername()
            own, peer = duplicate.getsockname()[1], duplicate.getpeername()[1]
        except OSError:
            duplicate.close()
            continue
        found.append((own, peer, duplicate))
    ports = {own for own, _, _ in found}
    listener_port = max(ports, key=lambda port: sum(own == port for own, _, _ in found))
    return [s for own, _, s in found if (own == listener_port) == port_side]
