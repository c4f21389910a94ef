"""Sockets and threads of a plugin, counted from its variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tcpx_mpi.plugin.find import is_softtcpx, is_tcpx

SOCKETS_VARIABLE = "NCCL_NSOCKS_PERTHREAD"
THREADS_VARIABLE = "NCCL_SOCKET_NTHREADS"
#: Sockets of a comm that carry data, at most: the limit of TCPX, and of softtcpx if nothing is set.
MAX_DATA_SOCKETS = 8

#: Threads that TCPX and softtcpx take; more count as 1.
MAX_THREADS = 16
#: What softtcpx lets its user raise that limit to.
_MOST_OF_SOFTTCPX = 16
#: What softtcpx takes for a whole number: C's strtoll, and nothing behind.
_WHOLE = re.compile(r"\s*[+-]?[0-9]+", re.ASCII)
#: What C takes a number from, at the beginning of a text.
_LIKE_C = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)


def moves_all_by_tcp(plugin: str) -> bool:
    """Whether all that a plugin of that name moves crosses sockets that this process can see.

    Others may have RDMA, shared memory, or sockets that they open when the first message comes.
    """
    return is_softtcpx(plugin) or is_tcpx(plugin)


def integer_variable(
    environ: Mapping[str, str], name: str, least: int, most: int, fallback: int
) -> int:
    """A variable as softtcpx reads it (`read_number` of its api/settings.cc): what is no whole
    number, or beyond the limits, counts as not set."""
    text = environ.get(name, "")
    value = int(text) if _WHOLE.fullmatch(text) else fallback
    return value if least <= value <= most else fallback


def most_sockets_of_softtcpx(environ: Mapping[str, str]) -> int:
    """The limit of softtcpx, of a comm's data sockets and of the threads that may share them."""
    return integer_variable(environ, "SOFTTCPX_MAX_SOCKETS", 1, _MOST_OF_SOFTTCPX, MAX_DATA_SOCKETS)


def c_number(text: str) -> int:
    """The number that C's strtoll makes of a text, of base 0: `4x` and `0x4` are 4, and no number
    is 0."""
    found = _LIKE_C.match(text)
    if found is None:
        return 0
    sign, digits = found.groups()
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10
    return int(sign + digits, base)


def threads_of_softtcpx(environ: Mapping[str, str]) -> int:
    """The threads that softtcpx takes from NCCL_SOCKET_NTHREADS: TCPX's rule, but 0 is no thread,
    the default."""
    return _count(environ, THREADS_VARIABLE, 0, MAX_THREADS, 0)


def data_sockets(plugin: str, environ: Mapping[str, str]) -> int:
    """Sockets that carry data in each comm of the plugin of that name.

    By the rule of TCPX, which softtcpx follows (`load_count` and `socket_count` in its
    settings.cc): a value beyond its own limit counts as 1. If the product is above the limit, each
    thread gets an equal whole share of the limit: 6 for 3 threads of 4. With more threads than
    sockets TCPX has none (`fatal_values`), softtcpx one each for as many as there may be.
    """
    most = MAX_DATA_SOCKETS
    if is_softtcpx(plugin):
        most = most_sockets_of_softtcpx(environ)
        threads = min(max(threads_of_softtcpx(environ), 1), most)
    else:
        threads = _count(environ, THREADS_VARIABLE, 1, MAX_THREADS, 1)
    return threads * min(_count(environ, SOCKETS_VARIABLE, 1, most, 1), most // threads)


def _count(environ: Mapping[str, str], name: str, least: int, most: int, fallback: int) -> int:
    text = environ.get(name, "")
    value = c_number(text) if text else fallback
    return value if least <= value <= most else 1
