"""Breaks a connection of another process, as a fault of the network would, but at once."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct

_SYS_PIDFD_GETFD = 438
_ACKED_AT, _INFO_BYTES = 120, 232  # tcpi_bytes_acked in Linux's struct tcp_info


def break_busiest(pid: int) -> None:
    """Shuts down the TCP socket on which a process has sent most: one of its data."""
    pidfd = os.pidfd_open(pid)
    sockets: list[socket.socket] = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    sockets.append(_taken(pidfd, int(name)))
        max(sockets, key=_acked).shutdown(socket.SHUT_RDWR)
    finally:
        os.close(pidfd)
        for each in sockets:
            each.close()


def _taken(pidfd: int, descriptor: int) -> socket.socket:
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    found = syscall(_SYS_PIDFD_GETFD, pidfd, descriptor, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return socket.socket(fileno=found)


def _acked(each: socket.socket) -> int:
    if each.type != socket.SOCK_STREAM or each.family not in (socket.AF_INET, socket.AF_INET6):
        return -1
    info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    return int(struct.unpack_from("Q", info, _ACKED_AT)[0])
