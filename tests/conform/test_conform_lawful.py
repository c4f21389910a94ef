"""Plugins that are odd and keep the contract: no clause is red for what is odd."""

from __future__ import annotations

from pathlib import Path

import pytest
import refplugin_build
from conform_command import conform
from variants import variant

from tcpx_mpi.plugin.find import bundled_dir

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "plugin", [variant("lawful_fresh"), "lawful_waits", variant("lawful_stays")]
)
def test_a_lawful_plugin_keeps_the_contract(plugin: str, tmp_path: Path) -> None:
    library = refplugin_build.build(tmp_path, TESTS / "refplugin" / f"{plugin}.cc")
    found = conform(tmp_path, str(library), "--quick")
    assert found.code == 0, found.out
    not_tried = {name for name, verdict in found.verdicts().items() if verdict == "not tried"}
    assert not_tried <= {"large-message", "many-messages"}, found.out  # by --quick
    assert set(found.verdicts().values()) <= {"pass", "not offered", "not tried"}, found.out


@pytest.mark.variant  # in SUITE=abi
@pytest.mark.parametrize(("plugin", "red"), [
    ("refplugin/refplugin.cc", {"full", "load-again"}),  # room for 4 requests, one init
    ("harsh/harsh.cc", {"load-again"}),  # softtcpx within it: one init
])  # fmt: skip
def test_of_the_other_plugins_of_tests_nothing_else_is_red(
    plugin: str, red: set[str], tmp_path: Path
) -> None:
    library = refplugin_build.build(tmp_path, TESTS / plugin)
    inner = str(Path(bundled_dir()) / "libnccl-net-softtcpx.so")
    found = conform(tmp_path, str(library), HARSH_INNER=inner, NCCL_SOCKET_IFNAME="=lo")
    failed = {name for name, verdict in found.verdicts().items() if verdict == "fail"}
    assert failed == red, found.out


@pytest.mark.parametrize("abi", [6, variant(9)])
def test_a_plugin_whose_accept_blocks_keeps_the_contract(abi: int, tmp_path: Path) -> None:
    library = refplugin_build.build(tmp_path, TESTS / "refplugin" / "blocking.cc")
    found = conform(tmp_path, str(library), "--quick", "--abi", str(abi))
    assert found.code == 0, found.out
    assert set(found.verdicts().values()) <= {"pass", "not offered", "not tried"}, found.out
    assert "accept-first          accept waits until somebody connects" in found.out
