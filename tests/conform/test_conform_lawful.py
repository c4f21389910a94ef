"""Plugins that are odd and keep the contract: no clause is red for what is odd."""

from __future__ import annotations

from pathlib import Path

import pytest
import refplugin_build
from conform_command import conform

SOURCES = refplugin_build.SOURCE.parent


@pytest.mark.parametrize("plugin", ["lawful_fresh", "lawful_waits", "lawful_stays"])
def test_a_lawful_plugin_keeps_the_contract(plugin: str, tmp_path: Path) -> None:
    library = refplugin_build.build(tmp_path, SOURCES / f"{plugin}.cc")
    found = conform(tmp_path, str(library), "--quick")
    assert found.code == 0, found.out
    not_tried = {name for name, verdict in found.verdicts().items() if verdict == "not tried"}
    assert not_tried <= {"large-message"}, found.out  # by --quick
    assert set(found.verdicts().values()) <= {"pass", "not offered", "not tried"}, found.out
