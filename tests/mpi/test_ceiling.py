"""`tcpx-mpi selftest --ceilings`: the machine without any plugin, by real ranks."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jobs
import pytest

from tcpx_mpi.machine import congestion

pytestmark = pytest.mark.multirank

SHORT = {"PYTHONPATH": str(Path(__file__).parent / "short_ceilings")}

LINE = re.compile(
    r"^  (?P<what>.+?)  +(?P<size>\d+ \w+)? +(?P<streams>\d+)? +(?P<figure>\d+\.\d+) "
    r"(?P<unit>GB/s|us|ns a call)"
)


@pytest.mark.variant
def test_every_ceiling_is_a_figure(place: Path) -> None:
    result = jobs.run(jobs.tcpx_mpi("selftest", "--ceilings"), place, SHORT)
    assert result.code == 0, result.text
    found = [LINE.match(line) for line in result.out.splitlines() if not line.startswith("#")]
    assert all(found), result.out
    lines = [match.groupdict() for match in found if match]
    assert [(line["what"], line["size"], line["streams"]) for line in lines] == [
        *[
            (f"memcpy, {how}", size, None)
            for size in ("1 MiB", "64 MiB")
            for how in ("same buffers", "out of cache")
        ],
        ("clock", None, None),
        *[("raw TCP stream", "1 MiB", n) for n in ("1", "2", "4")],
        *[("raw TCP, same buffer", "1 MiB", n) for n in ("1", "2", "4")],
        *[("raw TCP stream", "64 MiB", n) for n in ("1", "2", "4")],
        *[("raw TCP round trip / 2", "8 B", n) for n in ("1", "2", "4")],
    ]
    assert all(float(line["figure"]) > 0 for line in lines)


def test_an_interface_that_is_not_there_is_said_in_one_line(place: Path) -> None:
    result = jobs.run(jobs.tcpx_mpi("selftest", "--ceilings", "--interface", "nosuch0"), place)
    assert result.code == 2
    (error,) = result.errors
    assert error.startswith("--interface (nosuch0): no such network interface; use one of ")


#: Without CAP_NET_ADMIN root has what any user has: what the kernel allows, no more.
WITHOUT_CAPABILITY = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 12, 0, 0, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def unprivileged(command: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", WITHOUT_CAPABILITY, *command]


@pytest.fixture
def restricted() -> str:
    """A congestion control that is there for root alone."""
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    found = [name for name in congestion.available() if name not in allowed]
    if not found:
        pytest.skip("needs congestion: one that is available and not allowed to every user")
    return found[0]


def test_a_congestion_control_that_is_not_allowed_is_said_before_anything_is_measured(
    restricted: str, place: Path
) -> None:
    asked = unprivileged(jobs.tcpx_mpi("selftest", "--congestion", restricted))
    result = jobs.run(asked, place, SHORT)
    assert result.code == 2, result.text
    (error,) = result.errors
    assert error.startswith(f"--congestion ({restricted}): {restricted} is available, but not all")
    assert f"{restricted}' as root" in error
    assert result.out == ""


def test_one_that_no_kernel_has_is_said_before_anything_is_measured(place: Path) -> None:
    result = jobs.run(jobs.tcpx_mpi("selftest", "--congestion", "nosuch"), place, SHORT)
    assert (result.code, result.out) == (2, ""), result.text
    (error,) = result.errors
    assert error.startswith("--congestion (nosuch): nosuch is not available: this kernel has ")


@pytest.mark.variant
def test_where_nobody_asks_the_usual_one_is_not_insisted_on(place: Path) -> None:
    ask = f"import socket; socket.socket().setsockopt(6, {socket.TCP_CONGESTION}, b'cubic')"
    probe = [sys.executable, "-c", ask]
    refused = subprocess.run(unprivileged(probe), capture_output=True, check=False).returncode != 0
    result = jobs.run(unprivileged(jobs.tcpx_mpi("selftest", "--ceilings")), place, SHORT)
    assert result.code == 0, result.text
    own = f"the kernel's own congestion control ({congestion.kernels_own()}), send buffer"
    assert (own in result.out) is refused
    assert ("# WARNING: cubic is " in result.out) is refused


@pytest.mark.variant
def test_raw_beside_a_plugin_that_leaves_the_kernels_own(place: Path) -> None:
    options = ("--ranks", "2", "--plugin", "softtcpx", "--sizes", "1K", "-n", "8")
    command = jobs.tcpx_mpi("run", "pair", *options, "--against", "raw", "--hdf5", "none")
    result = jobs.run(unprivileged(command), place, {"SOFTTCPX_CONGESTION": "default"})
    assert result.code == 0, result.text
    assert f"# Sockets: congestion control {congestion.kernels_own()}" in result.out
