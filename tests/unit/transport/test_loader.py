"""What Python sees of the plugin loader; native tests have the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tcpx_mpi._native
from tcpx_mpi import _native

LIBRARIES = Path(tcpx_mpi._native.__file__).parent
NULL = str(LIBRARIES / "libnccl-net-null.so")


def in_fresh_process(body: str) -> str:
    """What `body` prints: a plugin is initialised once a process."""
    code = f"from tcpx_mpi import _native\nPATH = {NULL!r}\n{body}"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_probe_says_what_a_file_offers_without_initialising_it() -> None:
    assert in_fresh_process(
        "p = _native.probe(PATH); print(p['abi'], p['abi_versions'], p['name'])\n"
        "_native.Plugin(PATH).init()"
    ) == ("7 [7] null")


@pytest.mark.parametrize("name", ["softtcpx", "null"])
def test_both_plugins_that_we_ship_can_be_probed(name: str) -> None:
    path = str(LIBRARIES / f"libnccl-net-{name}.so")
    found = _native.probe(path)
    assert found["abi"] == 7
    assert Path(found["path"]).samefile(path)


def test_a_missing_file_is_a_library_error_that_names_it() -> None:
    with pytest.raises(_native.LibraryError, match=r"/no/such/plugin\.so"):
        _native.probe("/no/such/plugin.so")


def test_devices_and_properties_of_a_plugin() -> None:
    body = (
        "p = _native.Plugin(PATH); p.init()\n"
        "print(p.devices(), p.properties(0)['name'], repr(p.properties(0)['pci_path']))"
    )
    assert in_fresh_process(body) == "1 null0 ''"
