"""The native tests of GPU code, which `make test` runs on a fake driver, on a real GPU.

Under compute-sanitizer too, where it is; and broken copies of the kernel, which must be caught here
as they are there.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from broken_copy import BrokenCopy, Patch
from build_native import REPOSITORY, configure, make, required_tools
from mutations import PATCHES

from tcpx_mpi.machine.gpu.compiler import nvrtc_folders

PROGRAMS = ("unpack_cuda", "cuda_slots", "elements", "reduce_cuda")
#: Agents of NIXL, of which each is many threads and sockets: not under compute-sanitizer.
AGENTS = ("nixl_gpu",)
#: (program, test) of all of them.
TESTS = [
    (program, name)
    for program in (*PROGRAMS, *AGENTS)
    for name in re.findall(
        r"^TEST\(([a-z0-9_]+)\)",
        (REPOSITORY / "tests" / "native" / f"test_{program}.cc").read_text(),
        re.MULTILINE,
    )
]
#: The exit status of a test that cannot run here, as tests/native/check.h has it.
SKIPPED = 77
#: Of its own: tests of other folders may build theirs at the same time.
BUILD = REPOSITORY / "build" / "native-tests-gpu"
LIMIT_S = 300
#: The ways to break the kernel that a GPU must show, whatever its timing.
BROKEN = (
    "kernel_skips_the_last_fragment",
    "kernel_ignores_odd_alignment",
)


def nvrtc_folder() -> str:
    """Where a package brought NVRTC, "" where none did: then the loader looks in its own places."""
    return next(iter(nvrtc_folders(sys.path, os.environ)), "")


def on_gpu() -> dict[str, str]:
    """The environment of a native test that shall use a real GPU."""
    cubins = BUILD / "cubins"
    cubins.mkdir(parents=True, exist_ok=True)
    cache = {"TCPX_MPI_CUDA_CACHE": str(cubins)}
    return {**os.environ, **cache, "TCPX_MPI_REAL_GPU": nvrtc_folder()}


@pytest.fixture(scope="module", autouse=True)
def _a_gpu_is_here() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"needs gpu: {error}")
    if code := driver.cuInit(0):
        pytest.skip(f"needs gpu: cuInit returned {code}")
    if hasattr(driver, "fakecuda_hold"):
        pytest.skip("needs gpu: the driver here is the fake one")


@pytest.fixture(scope="module")
def build() -> Path:
    """The folder of the native tests, up to date."""
    cmake = required_tools()
    configure(cmake, REPOSITORY / "native", BUILD, "-DTCPX_MPI_NATIVE_TESTS=ON",
              "-DTCPX_MPI_BENCHMARKS=ON")  # fmt: skip
    make(cmake, BUILD, *(f"test_{program}" for program in (*PROGRAMS, *AGENTS)),
         "bench_unpack_cuda", "bench_sends_cuda")  # fmt: skip
    return BUILD


def passes(command: list[str]) -> str:
    """What it prints."""
    result = subprocess.run(
        command, env=on_gpu(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if result.returncode == SKIPPED:  # it says what this machine lacks: "NAME: needs THING: why"
        pytest.skip(result.stdout.strip().partition(": ")[2])
    if result.returncode != 0:
        pytest.fail((result.stdout + result.stderr)[-6000:], pytrace=False)
    return result.stdout


@pytest.mark.timeout(700)
@pytest.mark.parametrize(("program", "name"), TESTS, ids=[".".join(test) for test in TESTS])
def test_a_native_test_passes_on_the_gpu(build: Path, program: str, name: str) -> None:
    passes([str(build / "native_tests" / f"test_{program}"), name])


@pytest.mark.timeout(700)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_compute_sanitizer_finds_nothing(build: Path, program: str, tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if sanitizer is None:
        pytest.skip("needs compute-sanitizer: not found")
    options = ["--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
    passes([sanitizer, *options, str(build / "native_tests" / f"test_{program}")])


def test_the_benchmark_of_the_unpack_finds_every_byte_right_and_kernels_shorter_than_launches(
    build: Path,
) -> None:
    found = json.loads(
        passes([str(build / "benchmarks" / "bench_unpack_cuda"), "3", nvrtc_folder()])
    )
    if found["cupti"] is None:  # NVIDIA ships it apart from the driver and from NVRTC
        pytest.skip("needs cupti: not found, or refused")
    cases = {case["case"]: case for case in found["cases"]}
    assert all(case["by_profiler"]["unpack_us_median"] > 0 for case in cases.values()
               if case["case"].split("_")[0] not in ("d2d", "host"))  # fmt: skip
    # The events' own time is a large part of these, so that other launches may be compared.
    for short in ("empty", "page_4KiB", "chunk_512KiB"):
        kernel, launch = (min(cases[short][way]["unpack_us"]) for way in ("by_profiler", "alone"))
        assert kernel < launch, short


def test_the_benchmark_of_sends_finds_every_byte_right(build: Path) -> None:
    passes([str(build / "benchmarks" / "bench_sends_cuda"), "1"])


@pytest.fixture(scope="module")
def copy() -> BrokenCopy:
    """The sources, to be broken."""
    copy = BrokenCopy(REPOSITORY / "build" / "mutants-gpu", required_tools())
    copy.refresh()
    copy.configure()
    return copy


@pytest.mark.timeout(700)
@pytest.mark.parametrize("patch", [p for p in PATCHES if p.name in BROKEN], ids=lambda p: p.name)
def test_a_broken_kernel_is_caught_on_the_gpu(
    copy: BrokenCopy, patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCPX_MPI_REAL_GPU", nvrtc_folder())
    name = patch.detected_by.removeprefix("native ")
    assert copy.native_test(name) == 0
    copy.apply(patch)
    try:
        code = copy.native_test(name)
    finally:
        copy.revert(patch)
    assert code not in (0, 2), f"not detected ({code}): {patch.why}"  # 2: no such test


def test_the_broken_kernels_are_all_there() -> None:
    assert {p.name for p in PATCHES} >= set(BROKEN)
