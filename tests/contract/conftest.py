"""The plugins of the general part; the CUDA driver of softtcpx's GPU tests, fake or real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu import DRIVER
from subjects import BUILT, Subject, chosen, parameters

#: Read at import: a test sees none of the variables of the shell that started it.
_named = os.environ.get(DRIVER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", list(parameters(metafunc)), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a plugin that the command line names the general part is asked, and nothing else."""
    if chosen(config) is None:
        return
    others = [item for item in items if "subject" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def _built() -> dict[str, Subject]:
    return {}


@pytest.fixture
def subject(
    request: pytest.FixtureRequest,
    _built: dict[str, Subject],
    tmp_path_factory: pytest.TempPathFactory,
) -> Subject:
    """The plugin of a test of the general part, built where it has to be."""
    wanted: Subject | str = request.param
    if isinstance(wanted, str):
        if wanted not in _built:
            _built[wanted] = BUILT[wanted](tmp_path_factory.mktemp(wanted))
        return _built[wanted]
    return wanted


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
