"""What all tests share: skips that TCPX_MPI_REQUIRE forbids, a clean environment, places.

A test that lacks something skips by `pytest.skip("needs THING: why")`. TCPX_MPI_REQUIRE=mpi,netns
makes a failure of every such skip whose THING it names: where the thing must be there, a test that
did not run is no success.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# How long an example takes is the machine's affair, not the code's.
hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", "40")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")

#: The tests are read into objects that stay: to look through them, again and again while they are
#: read and while they run, would be two fifths of the CPU time that collecting them takes.
gc.disable()

REQUIRE = "TCPX_MPI_REQUIRE"

#: Variables that change what a run does: a test sets those that it means, and inherits none.
OPTIONS = ("NCCL_", "UCCL_", "TCPX_", "SOFTTCPX_", "OMPI_", "PMI", "PMIX_", "PRTE_", "SLURM_")


@pytest.fixture(autouse=True)
def _no_settings_of_the_users_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(OPTIONS) and name != REQUIRE:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def mpirun_path() -> str:
    """The mpirun that a run starts, or a skip."""
    from tcpx_mpi import errors
    from tcpx_mpi.launch import mpirun

    try:
        return mpirun.find_mpirun(os.environ)
    except errors.PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")


@pytest.fixture(autouse=True)
def _mpirun_for_who_starts_it(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("multirank") is not None:
        request.getfixturevalue("mpirun_path")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory to run in, with one for the journals in it; nothing else may be written to."""
    (tmp_path / "spool").mkdir()
    return tmp_path


@pytest.fixture(scope="session")
def refplugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the second plugin."""
    from refplugin_build import build

    return build(tmp_path_factory.mktemp("refplugin"))


#: Of two workers of a run of all tests one takes the first of these folders, the other the second,
#: and so on; the unit tests, by file, are last: they even out when the two end.
LONGEST_FIRST = ("mpi", "native", "mutants", "softtcpx", "cluster", "gpu", "fuzz", "browser")

#: What waits most of its time, for deadlines: by file, or program of native tests, for the worker
#: that waits.
WAITING = (
    "test_setup_deadline.py", "test_lost_ranks_and_signals.py", "test_signals_to_some.py",
    "test_like_tcpx.py", "test_odd_plugins.py", "test_launcher_end.py", "test_traps.py",
    "test_roll_call.py", "test_tcpx_killers.py", "test_each_fault_once.py",
    "test_native[p2p_given_up", "test_native[nixl_strangers", "test_qualify.py",
)  # fmt: skip


#: Of suites whose tests build nothing: one by one, over as many workers as a machine has cores for.
BY_TEST = ("faults", "abi", "collectives")


def waits(nodeid: str) -> bool:
    """Whether a test is among those that mostly wait."""
    return any(each in nodeid for each in WAITING)


def folder_of(nodeid: str) -> str:
    """The folder of tests/ that a test is in."""
    _, _, rest = nodeid.partition("/")
    return rest.partition("/")[0]


def order_of(item: pytest.Item) -> int:
    """Where the folder of a test comes; tests of one folder stay as they are."""
    folder = folder_of(item.nodeid)
    if folder in LONGEST_FIRST and not waits(item.nodeid):
        return LONGEST_FIRST.index(folder)
    return len(LONGEST_FIRST) + (folder == "unit")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=order_of)
    # pytest-mpi takes the folder tests/mpi for its marker `mpi` and skips what lies in it. The
    # tests there start mpirun themselves.
    for item in items:
        if item.get_closest_marker("mpi") is None:
            item.own_markers = [mark for mark in item.own_markers if not _is_pytest_mpis(mark)]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Two workers share the tests (`make test`); what a folder's tests build is one worker's alone.

    Most tests start as many ranks as there are cores, too. Unit tests go by file, and so do those
    on GPUs, where a machine has cores for several. A third worker has what waits, and then unit
    tests, the last first: it fills the gaps of the two.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder = folder_of(nodeid)
            if folder in ("unit", "gpu"):
                return nodeid.split("::")[0]
            if waits(nodeid):
                return next(each for each in WAITING if each in nodeid)
            return nodeid if folder in BY_TEST else folder

        def _assign_work_unit(self, node: Any) -> None:
            is_third = self.nodes[2:3] == [node]
            its_own = [scope for scope in self.workqueue if waits(scope) == is_third]
            if is_third and not its_own:
                its_own = list(reversed(self.workqueue))
            if its_own:
                self.workqueue.move_to_end(its_own[0], last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False  # it would begin with what has the most tests
    return ByFolder(config, log)


def _is_pytest_mpis(mark: pytest.Mark) -> bool:
    return mark.name == "skip" and "--with-mpi" in str(mark.kwargs.get("reason"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if thing := forbidden(reason, os.environ.get(REQUIRE, "")):
            report.outcome = "failed"
            report.longrepr = f"{REQUIRE} names {thing}, so this may not be skipped: {reason}"


def forbidden(reason: str, required: str) -> str | None:
    """The thing for lack of which a test was skipped, if it is one of those required."""
    found = re.match(r"needs ([\w-]+):", reason)
    things = [thing.strip() for thing in required.split(",")]
    return found[1] if found and found[1] in things else None
