"""softtcpx keeps the contract through the tap as it does without: the verdicts are those on file.

Every other plugin of the tests, and every version: SUITE=tap (conform_under_tap.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import refplugin_build
import verdicts
from conform_command import conform
from tap_files import bundled
from variants import variant


@pytest.mark.parametrize(("memory", "abi"), [
    ("host", 6), ("emulated", 12), variant("host", 9),
])  # fmt: skip
def test_the_verdicts_are_those_without_the_tap(memory: str, abi: int, tmp_path: Path) -> None:
    found = conform(
        tmp_path, str(bundled("tap", abi)), "--memory", memory, "--quick",
        NCCL_SOCKET_IFNAME="=lo", TCPX_TAP_PLUGIN=str(bundled("softtcpx", abi)),
        TCPX_TAP_DIR=str(tmp_path / "taps"),
    )  # fmt: skip
    assert (found.code, found.err) == (0, ""), found.out
    (version,) = found.document["versions"]
    assert version["clauses"] == verdicts.expected(memory, abi, quick=True)


def test_a_plugin_that_crashes_behind_the_tap_is_named_with_the_call(tmp_path: Path) -> None:
    """The tap jumps into closeRecv, so it is not on the stack."""
    faulty = Path(__file__).parents[1] / "conform" / "faulty" / "faulty.cc"
    found = conform(
        tmp_path, str(bundled("tap", 11)), "--abi", "11", "--only", "connect",
        NCCL_SOCKET_IFNAME="=lo", TCPX_TAP_PLUGIN=str(refplugin_build.build(tmp_path, faulty)),
        FAULT="close-crashes",
    )  # fmt: skip
    assert "the plugin has crashed by SIGSEGV in closeRecv" in found.out, found.out
