"""The version of the package: that of its metadata, wherever this is."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

import tcpx_mpi


def test_the_version_is_that_of_the_metadata() -> None:
    assert tcpx_mpi.__version__ == importlib.metadata.version("tcpx-mpi")


def test_the_first_folder_of_the_path_decides_as_for_any_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tmp_path / "tcpx_mpi-9.8.7.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: tcpx-mpi\nVersion: 9.8.7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(tmp_path), *sys.path])
    assert tcpx_mpi.__version__ == importlib.metadata.version("tcpx-mpi") == "9.8.7"


def test_a_source_tree_that_was_never_installed_has_an_unknown_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert tcpx_mpi.__version__ == "0+unknown"
