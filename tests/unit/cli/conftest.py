"""No variable of a launcher, of NCCL or of ours is set, and the current folder is empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("UCCL_", "NCCL_", "TCPX_", "OMPI_", "PMI", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
