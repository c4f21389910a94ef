"""Another plugin beside the plugin: which it is, on which device, and why it cannot be."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tcpx_mpi.baselines import Connection
from tcpx_mpi.baselines import plugin as beside
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.plugin.find import bundled_dir


def settings(against: str) -> Settings:
    return load_settings({"pattern": "ring", "against": against, "abi": "7"}, {})


@pytest.mark.parametrize(
    ("against", "spec", "abi"),
    [
        ("plugin:softtcpx@9", "softtcpx", 9),
        ("raw,plugin:/x/net.so", "/x/net.so", 0),
        ("plugin:/x@1/net.so@v12", "/x@1/net.so", 12),
    ],
)
def test_the_other_plugin_has_its_own_name_and_version(against: str, spec: str, abi: int) -> None:
    run = settings(against)
    theirs = beside.settings_of(run)
    assert (theirs.plugin, theirs.abi) == (spec, abi)
    assert theirs.sources["plugin"] == "command line --against"
    assert theirs.channels == run.channels


@pytest.mark.parametrize("against", ["plugin:", "plugin:a.so,plugin:b.so", "plugin:a.so,nosuch"])
def test_one_other_plugin_is_named_beside_known_peers(against: str) -> None:
    with pytest.raises(UsageError, match="--against"):
        settings(against)


def test_a_version_that_there_is_no_adapter_for_is_refused() -> None:
    with pytest.raises(UsageError, match="no table of v5 can be driven: use one of 6, 7"):
        beside.settings_of(settings("plugin:x.so@5"))


def test_the_plugin_of_the_run_itself_is_refused_beside_it() -> None:
    path = os.path.join(bundled_dir(), "libnccl-net-null.so")
    connection = Connection("lo", "", 1, plugin_path=os.path.realpath(path))
    theirs = beside.settings_of(settings(f"plugin:{path}"))
    with pytest.raises(UsageError, match="once a process by v7: name another file, or a copy"):
        beside.load_baseline(theirs, connection)


def plugin(*names: str) -> Any:
    return SimpleNamespace(
        devices=len(names), nic=lambda device: {"name": names[device]},
        file=SimpleNamespace(path="b.so"),
    )  # fmt: skip


def test_it_uses_the_interface_of_the_runs_plugin() -> None:
    assert beside.device_of(plugin("eth0", "eth1"), "eth1") == 1
    assert beside.device_of(plugin("mlx5_0"), "eth1") == 0  # it has no choice
    with pytest.raises(UsageError, match=r"b\.so: it has no device eth1, .* but mlx5_0, mlx5_1"):
        beside.device_of(plugin("mlx5_0", "mlx5_1"), "eth1")
