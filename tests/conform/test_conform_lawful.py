"""Plugins that are odd and keep the contract: no clause is red for what is odd."""

from __future__ import annotations

from pathlib import Path

import pytest
import refplugin_build
from conform_command import conform

SOURCES = refplugin_build.SOURCE.parent


@pytest.mark.parametrize(("plugin", "clause"), [
    ("lawful_fresh", "properties-plausible"),
    ("lawful_stays", "properties-plausible"),
    ("lawful_fresh", "reported-size"),
    ("lawful_fresh", "flush"),
    ("lawful_waits", "lost-sender"),
])  # fmt: skip
def test_a_lawful_plugin_keeps_the_contract(plugin: str, clause: str, tmp_path: Path) -> None:
    library = refplugin_build.build(tmp_path, SOURCES / f"{plugin}.cc")
    found = conform(tmp_path, str(library), "--only", clause)
    assert found.code == 0, found.out
    assert set(found.verdicts().values()) <= {"pass", "not offered"}, found.out
