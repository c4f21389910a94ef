"""How many sockets and threads a plugin makes of its variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tcpx_mpi.plugin.find import is_softtcpx

SOCKETS_VARIABLE = "NCCL_NSOCKS_PERTHREAD"
THREADS_VARIABLE = "NCCL_SOCKET_NTHREADS"
#: Sockets of a comm that carry data, at most: the limit of TCPX, and of softtcpx if nothing is set.
MAX_DATA_SOCKETS = 8

#: What softtcpx lets its user raise that limit to.
_MOST_OF_SOFTTCPX = 16
#: What softtcpx takes for a whole number: C's strtoll, and nothing behind.
_WHOLE = re.compile(r"\s*[+-]?[0-9]+", re.ASCII)


def whole_number(
    environ: Mapping[str, str], name: str, least: int, most: int, fallback: int
) -> int:
    """A variable as softtcpx reads it (`read_number` of its api/settings.cc): what is no whole
    number, or beyond the limits, counts as not set."""
    text = environ.get(name, "")
    value = int(text) if _WHOLE.fullmatch(text) else fallback
    return value if least <= value <= most else fallback


def most_sockets_of_softtcpx(environ: Mapping[str, str]) -> int:
    """The limit of softtcpx, of a comm's data sockets and of the threads that may share them."""
    return whole_number(environ, "SOFTTCPX_MAX_SOCKETS", 1, _MOST_OF_SOFTTCPX, MAX_DATA_SOCKETS)


def data_sockets(plugin: str, environ: Mapping[str, str]) -> int:
    """Sockets that carry data in each comm of the plugin of that name.

    By the rule of TCPX, which is softtcpx's (`socket_count` in its settings.cc): each thread has as
    many, and where the product is above the limit, as many as the limit has for each: 6 for 3
    threads of 4. TCPX has none with more threads than sockets (`fatal_values`); softtcpx one each.
    """
    most = MAX_DATA_SOCKETS
    if is_softtcpx(plugin):
        most = most_sockets_of_softtcpx(environ)
    threads = min(max(whole_number(environ, THREADS_VARIABLE, 0, 1 << 20, 1), 1), most)
    each = whole_number(environ, SOCKETS_VARIABLE, 1, 1 << 20, 1)
    return threads * min(each, most // threads)
