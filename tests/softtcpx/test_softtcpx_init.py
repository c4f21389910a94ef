"""softtcpx: the library, its init and settings, its devices."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from ends import exchange
from fresh_process import in_fresh_process
from net_v7 import (
    INTERNAL,
    INVALID_ARGUMENT,
    SUCCESS,
    SYSTEM,
    Net,
    connected,
    softtcpx_path,
)
from own_process import open_descriptors


@pytest.mark.only_softtcpx
def test_the_library_exports_one_data_symbol_and_nothing_else() -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm: the symbols of the library are listed with it")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(softtcpx_path())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    symbols = [line.split()[1:] for line in listing.splitlines()]
    assert [name for _, name in symbols] == ["ncclNetPlugin_v7"]
    assert symbols[0][0] in {"D", "R"}


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_init_after_a_failed_init_returns_3() -> None:
    net = Net()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(open_descriptors()), hard))
    first = net.init()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert first == SYSTEM
    assert net.init() == INTERNAL


@pytest.mark.only_softtcpx
@in_fresh_process(SOFTTCPX_SNDBUF="many", NCCL_DYNAMIC_CHUNK_SIZE="-1")
def test_a_senseless_setting_is_named_in_a_warning_and_the_default_is_used() -> None:
    net = Net(log=True).started()
    assert any("SOFTTCPX_SNDBUF=many" in line for line in net.log_lines)
    assert any("NCCL_DYNAMIC_CHUNK_SIZE=524288 (default)" in line for line in net.log_lines)
    exchange(net, *connected(net))


@pytest.mark.only_softtcpx
@in_fresh_process(SOFTTCPX_CONGESTION="reno")
def test_the_settings_and_their_sources_are_logged_and_what_the_sockets_really_use() -> None:
    net = Net(log=True).started()
    assert any(line.startswith("SOFTTCPX_CONGESTION=reno (environment)") for line in net.log_lines)
    available = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    if "reno" in available or os.geteuid() == 0:
        assert any(line.startswith("congestion control in use=reno") for line in net.log_lines)


@pytest.mark.only_softtcpx
@in_fresh_process(SOFTTCPX_CONGESTION="no-such-control")
def test_a_refused_congestion_control_leaves_the_kernels_own() -> None:
    net = Net(log=True).started()
    kernel = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    assert any(f"congestion control in use={kernel}" in line for line in net.log_lines)
    exchange(net, *connected(net))


@in_fresh_process()
def test_properties_are_those_of_an_unpacking_plugin_with_one_receive_a_call() -> None:
    net = Net().started()
    assert net.devices() == 1
    lo = net.properties(0)
    assert (lo.name, lo.pci_path) == (b"lo", None)
    assert (lo.ptr_support, lo.max_recvs, lo.max_comms) == (3, 1, 65536)
    assert (lo.net_device_type, lo.net_device_version) == (1, 7)
    assert (lo.port, lo.latency_us) == (0, 0)
    assert lo.speed_mbps > 0
    assert net.table.get_properties(1, None) != SUCCESS
    assert net.table.get_properties(-1, None) == INVALID_ARGUMENT
    assert net.table.reg_mr_dma_buf is None


def up_interfaces() -> list[str]:
    """Names of the interfaces that are up and have an IPv4 address, by ioctl and not by us."""
    import fcntl

    names = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s240x", name.encode())
            try:
                fcntl.ioctl(probe, 0x8915, request)  # SIOCGIFADDR
                flags = struct.unpack("16sh", fcntl.ioctl(probe, 0x8913, request)[:18])[1]
            except OSError:
                continue
            if flags & 0x41 == 0x41:  # up and running
                names.append(name)
    return sorted(names)


@pytest.mark.only_softtcpx
@pytest.mark.parametrize(
    ("environ", "rule"),
    [
        ({"NCCL_SOCKET_IFNAME": "=lo"}, "lo"),
        ({"NCCL_SOCKET_IFNAME": "l"}, "prefix l"),
        ({"NCCL_SOCKET_IFNAME": "=l"}, "none"),
        ({"NCCL_SOCKET_IFNAME": "nothing-like-it"}, "none"),
        ({"NCCL_SOCKET_IFNAME": "^lo"}, "all but lo"),
        ({"NCCL_SOCKET_IFNAME": "^=l"}, "all but lo, else lo"),
        ({"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "nothing"}, "lo"),
    ],
)
@in_fresh_process()
def test_interfaces_are_chosen_by_prefix_exactly_or_by_exclusion_and_sorted(
    environ: dict[str, str], rule: str
) -> None:
    net = Net().started()
    chosen = [net.properties(device).name.decode() for device in range(net.devices())]
    others = [name for name in up_interfaces() if name != "lo"]
    expected = {
        "lo": ["lo"],
        "prefix l": [name for name in up_interfaces() if name.startswith("l")],
        "none": [],
        "all but lo": others,
        "all but lo, else lo": others or ["lo"],
    }[rule]
    assert chosen == expected
