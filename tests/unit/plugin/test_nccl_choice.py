"""NCCL_NET_PLUGIN names a plugin as it does for NCCL, or it is said why it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.plugin import nccl_choice
from tcpx_mpi.plugin.find import TCPX_PLACES, PluginChoice, find_plugin

BUNDLED = "/opt/tcpx_mpi"
SOFTTCPX = f"{BUNDLED}/libnccl-net-softtcpx.so"
OFI = "/aws/lib/libnccl-net-ofi.so"


@pytest.fixture(autouse=True)
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What ldconfig has written: empty."""
    monkeypatch.setattr(nccl_choice, "_LOADER_CACHE", tmp_path / "ld.so.cache")
    return tmp_path / "ld.so.cache"


def find(*there: str, **environ: str) -> PluginChoice:
    return find_plugin("auto", environ, BUNDLED, {SOFTTCPX, *there}.__contains__)


@pytest.mark.parametrize("value", ["ofi", "libnccl-net-ofi.so", OFI, " ofi ", "none-such,ofi"])
def test_a_name_a_file_and_a_path_are_taken_as_nccl_takes_them(value: str) -> None:
    choice = find(OFI, NCCL_NET_PLUGIN=value, LD_LIBRARY_PATH="/elsewhere:/aws/lib")
    assert (choice.path, choice.how) == (OFI, f"NCCL_NET_PLUGIN={value.strip()}")
    assert not choice.asked


def test_a_file_of_the_very_name_goes_before_the_one_that_the_name_stands_for() -> None:
    there = ("/lib/libx.so", "/lib/libnccl-net-libx.so.so")
    assert find(*there, NCCL_NET_PLUGIN="libx.so").path == "/lib/libx.so"


def test_what_ldconfig_lists_is_found_too(loader: Path) -> None:
    places = [b"/a/libnccl-net-ofi.so.0", b"/usr/local/lib/libnccl-net-ofi.so", b"/b/libother.so"]
    loader.write_bytes(b"glibc-ld.so.cache1.1\x07\x00\x00" + b"\0".join(places) + b"\0")
    path = "/usr/local/lib/libnccl-net-ofi.so"
    assert find(path, NCCL_NET_PLUGIN="ofi").path == path


@pytest.mark.parametrize("value", ["none", "NONE"])
def test_none_is_no_plugin_and_the_default_says_so(value: str) -> None:
    choice = find(OFI, NCCL_NET_PLUGIN=value, LD_LIBRARY_PATH="/aws/lib")
    assert choice.path == SOFTTCPX
    assert choice.how == (
        "nothing asks for TCPX, so the software plugin; NCCL_NET_PLUGIN is none, by which NCCL "
        "takes its own sockets"
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("ofi", "libnccl-net-ofi.so is in no directory of LD_LIBRARY_PATH or of the loader"),
        ("/x/libnccl-net.so", "/x/libnccl-net.so is no file"),
        ("a,b", "libnccl-net-a.so is in no directory of LD_LIBRARY_PATH or of the loader, libncc"),
    ],
)
def test_one_that_is_not_found_is_not_used_and_it_is_said_why(value: str, why: str) -> None:
    choice = find(NCCL_NET_PLUGIN=value)
    assert choice.path == SOFTTCPX
    assert f"; NCCL_NET_PLUGIN ({value}) was not used: {why}" in choice.how
    tcpx = find(TCPX_PLACES[0], NCCL_NET_PLUGIN=value)
    assert tcpx.path == TCPX_PLACES[0]
    assert f"; NCCL_NET_PLUGIN ({value}) was not used: {why}" in tcpx.how
    with pytest.raises(PluginMissing, match="on purpose; NCCL_NET_PLUGIN"):
        find(NCCL_NET_PLUGIN=value, NCCL_GPUDIRECTTCPX_CTRL_DEV="eth0")


def test_it_goes_before_what_only_hints_at_tcpx_and_after_what_names_ours() -> None:
    environ = {"NCCL_NET_PLUGIN": "ofi", "LD_LIBRARY_PATH": "/aws/lib"}
    assert find(OFI, TCPX_PLACES[0], NCCL_GPUDIRECTTCPX_CTRL_DEV="eth0", **environ).path == OFI
    assert find(OFI, "/x/y.so", UCCL_TCPX_PLUGIN_PATH="/x/y.so", **environ).path == "/x/y.so"
    exists = {SOFTTCPX, OFI}.__contains__
    assert find_plugin("softtcpx", environ, BUNDLED, exists).path == SOFTTCPX


def test_names_that_are_known_here_need_no_loader() -> None:
    assert find(NCCL_NET_PLUGIN="softtcpx").path == SOFTTCPX
    assert find(TCPX_PLACES[2], NCCL_NET_PLUGIN="tcpx").path == TCPX_PLACES[2]
    own = "/mine/libnccl-net-softtcpx.so"
    assert find(own, NCCL_NET_PLUGIN="softtcpx", LD_LIBRARY_PATH="/mine").path == own


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_variable_is_none_at_all(value: str) -> None:
    assert find(NCCL_NET_PLUGIN=value).how == "nothing asks for TCPX, so the software plugin"
