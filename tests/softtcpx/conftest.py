"""The CUDA driver of softtcpx's GPU tests, fake or real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu import DRIVER

#: Read at import: a test sees none of the variables of the shell that started it.
_named = os.environ.get(DRIVER)


@pytest.fixture(scope="session")
def libcuda() -> str:
    """The driver to load: that of the environment (libcuda.so.1: a real GPU's), or the fake one."""
    if _named:
        return _named
    from gpus import fake_driver  # by tcpx_mpi._native, which is not there under a sanitizer

    return str(fake_driver().built() / "libcuda.so.1")


@pytest.fixture
def fake_libcuda(libcuda: str) -> str:
    """The fake driver, or a skip."""
    if Path(libcuda).parent.name != "fakecuda":
        pytest.skip(f"needs fakecuda: {DRIVER} names {libcuda}")
    return libcuda


@pytest.fixture
def driver_of_the_test_bodies(libcuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the driver to the processes that a test starts."""
    monkeypatch.setenv(DRIVER, libcuda)
