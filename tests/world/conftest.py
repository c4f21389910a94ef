"""Under mpirun a test that fails on one rank ends all: the others would wait for it for ever."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    size = int(os.environ.get("TESTS_WORLD_SIZE", "1"))
    if report.outcome != "passed" and size > 1:
        sys.stderr.write(f"{item.nodeid}, {report.when}: {report.outcome}\n{report.longreprtext}\n")
        sys.stderr.flush()
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)
