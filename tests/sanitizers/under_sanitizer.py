"""Native tests, contract tests and runs of 4 ranks under a sanitizer.

`make test SUITE=asan` or `tsan`; not part of `make test`, because it takes minutes. SANITIZER says
which: address (with undefined behaviour and leaks) or thread. At the end defects are planted, each
of which must be found.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from broken_copy import Patch
from build_tools import find_tool
from jobs import Result, mpirun, run
from mutations import patch_of
from planted import PLANTED
from sanitized_copy import REPOSITORY, SanitizedCopy, sanitized_copy, without_random_addresses

SANITIZER = os.environ["SANITIZER"]
#: Each test within has limits of its own; these end what hangs, on a busy machine too.
BUILD_LIMIT_S = CONTRACT_LIMIT_S = 2400
RUN_LIMIT_S = 60
#: Tests of a suite that run beside each other.
AT_ONCE = max(len(os.sched_getaffinity(0)) // 2, 2)
DEFECTS = [patch_of(defect) for defect in PLANTED]

#: A crash on purpose is reported, and its signal is the sanitizer's.
CRASHES = "cpu_that_follows_its_address_crashes"
#: What is not asked of the contract tests, and why.
NOT_ASKED = {
    "address": [CRASHES],
    # libtsan has a thread of its own, from the first one that is started.
    "thread": [
        CRASHES,
        "every_descriptor_and_thread",
        "socket_and_thread_counts",
        "workers_that_were_named_are_those_of_host_memory",
    ],
}
#: What is not asked of the native tests.
NOT_ASKED_OF_NATIVE = {
    "address": [],
    # libtsan ends a forked child that starts threads ("dup thread"), and its own memory is counted
    # as that of a process.
    "thread": ["a_forked_child_is_refused", "who_notifies_of_more_than_is_fetched"],
}
#: Their bodies end without closing what they made: what leaks is looked for in the runs.
NO_LEAKS = "detect_leaks=0"
#: libtsan ends a child of a process with threads that starts one of its own.
FORKS = "die_after_fork=0"
#: With the locks of Open MPI libtsan's search for cycles of locks crashes; ours are also taken by
#: the native and the contract tests.
NO_CYCLES = "detect_deadlocks=0"
#: A planted defect is met in every message, and each report stops a rank for which the others wait:
#: a run that may go on ends long after its limit. The first report is enough.
FIRST_ENDS = "halt_on_error=1"
#: LeakSanitizer crashes itself where a library with memory of its threads was unloaded, as the
#: plugin behind the tap is: it does not look there for what is still in use.
UNLOADED = {"LSAN_OPTIONS": "use_tls=0"}

#: Several sockets, pieces and kinds of fragments, and messages that need several slots.
EVERYTHING = {"NCCL_NSOCKS_PERTHREAD": "2", "SOFTTCPX_FRAGMENTS": "random", "SOFTTCPX_POISON": "1"}
SIZES = ("--sizes", "0,1,4097,300001", "-n", "8", "--chunk", "16K", "--check-memory", "16M")
MEMORY = {
    "host": (),
    "kernel": ("--memory", "emulated"),
    "d2d": ("--memory", "emulated", "--unpack", "d2d"),
}
PLUGIN_FAILED, STALLED = 13, 6
#: Versions of softtcpx's table beside the one without a version in its name.
OTHER_TABLES = (6, 8, 9, 10, 11, 12)

every_progress = pytest.mark.parametrize("threads", [0, 2], ids=["inline", "threaded"])


@pytest.fixture(scope="session")
def built() -> SanitizedCopy:
    """The copy, sound and up to date."""
    copy = sanitized_copy(SANITIZER)
    without_random_addresses()
    copy.refresh()
    copy.configure()
    copy.make("native_tests", "tap", *(f"softtcpx_v{abi}" for abi in OTHER_TABLES))
    copy.install()
    return copy


@pytest.fixture
def copy(built: SanitizedCopy) -> SanitizedCopy:
    built.forget_reports()
    return built


def run_of_4(
    copy: SanitizedCopy,
    place: Path,
    pattern: str,
    *options: str,
    asked: str = "",
    sizes: Sequence[str] = SIZES,
    **variables: str,
) -> Result:
    """A run of the copy on four ranks over softtcpx, all bytes checked.

    `asked` is more of the sanitizer's options, "a=1:b=2".
    """
    (place / "spool").mkdir(exist_ok=True)
    always = ("--plugin", "softtcpx", "--hdf5", "none", "--spool", "spool")
    # For the ranks alone: mpirun is not under test.
    for_ranks = {**copy.environment(f"{NO_CYCLES}:{asked}"), **EVERYTHING, **variables}
    command = mpirun(4, "run", pattern, *sizes, *always, *options, **for_ranks)
    # PMIx's other way wants memory at an address where libtsan has its own.
    return run(command, place, {"PMIX_MCA_gds": "hash"}, RUN_LIMIT_S)


def contract_tests(
    copy: SanitizedCopy, files: Sequence[Path], *asked: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Pytest over these, in the copy's folder: there the copy is what Python finds first."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(AT_ONCE),
         "-c", str(REPOSITORY / "pyproject.toml"), *map(str, files), *asked],
        cwd=copy.folder, env={**os.environ, **variables}, capture_output=True, text=True,
    )  # fmt: skip


def assert_clean(copy: SanitizedCopy, but: str | None = None) -> None:
    """No reports, but for those of what came by the function `but`."""
    found = [report for report in copy.defects() if but is None or but not in report]
    if found:
        pytest.fail("\n\n".join(found)[:12000], pytrace=False)


@pytest.mark.timeout(BUILD_LIMIT_S)  # the first one builds
def test_native_tests(copy: SanitizedCopy) -> None:
    ctest = find_tool("ctest")
    assert ctest is not None
    others = "|".join(NOT_ASKED_OF_NATIVE[SANITIZER])
    result = subprocess.run([ctest, "--output-on-failure", "--no-tests=error", "-j", str(AT_ONCE),
                             *(["-E", others] if others else [])],
                            cwd=copy.build, env={**os.environ, "TSAN_OPTIONS": FORKS},
                            capture_output=True, text=True)  # fmt: skip
    assert result.returncode == 0, result.stdout[-12000:]


@pytest.mark.timeout(CONTRACT_LIMIT_S)
def test_contract_tests_of_softtcpx(copy: SanitizedCopy) -> None:
    named = {
        "TCPX_MPI_SOFTTCPX_LIB": str(copy.package / "tcpx_mpi" / "libnccl-net-softtcpx.so"),
        "TCPX_MPI_LIBCUDA": str(copy.build / "fakecuda" / "libcuda.so.1"),
    }
    others = " or ".join(NOT_ASKED[SANITIZER])
    asked = ["-m", "variant or not variant", *(["-k", f"not ({others})"] if others else [])]
    result = contract_tests(copy, [REPOSITORY / "tests" / "softtcpx"], *asked,
                            **copy.environment(NO_LEAKS), **named)  # fmt: skip
    assert_clean(copy)
    assert result.returncode == 0, result.stdout[-12000:]


@pytest.mark.timeout(CONTRACT_LIMIT_S)
def test_conform_of_softtcpx(copy: SanitizedCopy, tmp_path: Path) -> None:
    variables = {**copy.environment(f"{NO_LEAKS}:{NO_CYCLES}"), **EVERYTHING}
    asked = ["conform", "softtcpx", "--memory", "emulated", "--quick", "--deadline", "600"]
    result = run([sys.executable, "-m", "tcpx_mpi", *asked], tmp_path, variables, CONTRACT_LIMIT_S)
    assert_clean(copy)
    assert result.code == 0, result.text


@pytest.mark.timeout(CONTRACT_LIMIT_S)
def test_contract_tests_of_the_library_of_sessions(copy: SanitizedCopy) -> None:
    copy.install_sessions()
    files = sorted((REPOSITORY / "tests" / "library" / "p2p").glob("test_*.py"))
    asked = [file for file in files if "installed" not in file.name]
    result = contract_tests(copy, asked, **copy.environment(NO_CYCLES))
    # No plugin allows that a listener is closed while an accept is pending.
    assert_clean(copy, but="tcpx::Connections::listen")
    assert result.returncode == 0, result.stdout[-12000:]


@every_progress
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("pattern", ["pair", "pingpong", "ring", "mesh"])
def test_a_run_of_4_ranks(
    copy: SanitizedCopy, pattern: str, memory: str, threads: int, tmp_path: Path
) -> None:
    result = run_of_4(copy, tmp_path, pattern, *MEMORY[memory], NCCL_SOCKET_NTHREADS=str(threads))
    assert_clean(copy)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [None, 0, 0, 0], result.text


def through_the_tap(place: Path, **more: str) -> dict[str, str]:
    """All that the tap does: records, lines of slow requests, a summary at the end."""
    return {"TCPX_TAP_PLUGIN": "softtcpx", "TCPX_TAP_DIR": str(place / "taps"),
            "TCPX_TAP_SLOW_US": "1", "TCPX_TAP_STALL_S": "1", **more}  # fmt: skip


@every_progress
@pytest.mark.parametrize("memory", ["host", "kernel"])
def test_a_run_of_4_ranks_through_the_tap_and_its_replay(
    copy: SanitizedCopy, memory: str, threads: int, tmp_path: Path
) -> None:
    progress = {"NCCL_SOCKET_NTHREADS": str(threads)}
    tapped = through_the_tap(tmp_path, **progress, **UNLOADED)
    result = run_of_4(copy, tmp_path, "mesh", *MEMORY[memory], "--plugin", "tap", **tapped)
    assert_clean(copy)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [None, 0, 0, 0], result.text
    assert len(list((tmp_path / "taps").glob("*.tap"))) == 4
    again = run_of_4(
        copy, tmp_path, "replay", "--replay", "taps", *MEMORY[memory], sizes=("-n", "2"), **progress
    )
    assert_clean(copy)
    assert again.code == 0, again.text
    assert [row.wrong for row in again.rows] == [0], again.text


@every_progress
@pytest.mark.parametrize(("fault", "code"), [
    ("error=3,call=isend,at=20,rank=1", PLUGIN_FAILED), ("stuck,call=irecv,at=20,rank=1", STALLED),
])  # fmt: skip
def test_a_run_that_fails_by_a_fault_of_the_tap(
    copy: SanitizedCopy, fault: str, code: int, threads: int, tmp_path: Path
) -> None:
    tapped = through_the_tap(tmp_path, TCPX_TAP_FAULT=fault, NCCL_SOCKET_NTHREADS=str(threads))
    result = run_of_4(copy, tmp_path, "ring", "--plugin", "tap", "--stall-timeout", "5", **tapped)
    assert_clean(copy)
    assert result.code == code, result.text


@pytest.mark.timeout(CONTRACT_LIMIT_S)
def test_conform_of_softtcpx_through_the_tap(copy: SanitizedCopy, tmp_path: Path) -> None:
    variables = {**copy.environment(f"{NO_LEAKS}:{NO_CYCLES}"), **EVERYTHING,
                 **through_the_tap(tmp_path)}  # fmt: skip
    asked = ["conform", "tap", "--memory", "emulated", "--quick", "--deadline", "600"]
    result = run([sys.executable, "-m", "tcpx_mpi", *asked], tmp_path, variables, CONTRACT_LIMIT_S)
    assert_clean(copy)
    assert result.code == 0, result.text


@every_progress
@pytest.mark.parametrize(("trap", "code"), [("ERROR_AT", PLUGIN_FAILED), ("STOP_AT", STALLED)])
def test_a_run_that_fails(
    copy: SanitizedCopy, trap: str, code: int, threads: int, tmp_path: Path
) -> None:
    traps = {f"SOFTTCPX_TRAP_{trap}": "20", "SOFTTCPX_TRAP_RANK": "1",
             "SOFTTCPX_TRAP_ERROR_CODE": "3"}  # fmt: skip
    result = run_of_4(copy, tmp_path, "ring", *MEMORY["kernel"], "--stall-timeout", "5",
                      NCCL_SOCKET_NTHREADS=str(threads), **traps)  # fmt: skip
    assert_clean(copy)
    assert result.code == code, result.text


@every_progress
def test_two_processes_with_the_session_api(
    copy: SanitizedCopy, threads: int, tmp_path: Path
) -> None:
    example = str(REPOSITORY / "examples" / "two_processes.py")
    variables = {**EVERYTHING, "NCCL_SOCKET_NTHREADS": str(threads)}
    result = run([sys.executable, example], tmp_path, {**copy.environment(), **variables})
    assert_clean(copy)
    assert (result.code, result.out.count("all right")) == (0, 1), result.text


@pytest.mark.timeout(BUILD_LIMIT_S)
@pytest.mark.parametrize(
    "patch", [p for p in DEFECTS if p.detected_by.startswith(SANITIZER)], ids=lambda p: p.name
)
def test_a_planted_defect_is_found(copy: SanitizedCopy, patch: Patch, tmp_path: Path) -> None:
    copy.apply(patch)
    try:
        copy.make("tap")
        copy.install()
        over = ["--plugin", "tap"] if "tap::" in patch.detected_by else []
        result = run_of_4(copy, tmp_path, "mesh", *MEMORY["kernel"], *over, asked=FIRST_ENDS,
                          **through_the_tap(tmp_path, NCCL_SOCKET_NTHREADS="2"))  # fmt: skip
    finally:
        copy.revert(patch)
    words = patch.detected_by.removeprefix(f"{SANITIZER}: ")
    found = [*copy.defects(), result.err]
    assert any(re.search(words, report, re.DOTALL) for report in found), f"{found}\n{result.text}"
