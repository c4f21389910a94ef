"""Every TEST(name) of the native tests as a case of its own; built once."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import shared_builds
from build_tools import find_tool
from variants import variant

FOLDER = Path(__file__).parent
TEST_LINE = re.compile(r"^TEST\(([a-z0-9_]+)\)", re.MULTILINE)
NAMES = sorted(
    f"{source.stem.removeprefix('test_')}.{name}"
    for source in FOLDER.glob("test_*.cc")
    for name in TEST_LINE.findall(source.read_text())
)


@pytest.fixture(scope="session")
def build() -> Path:
    """The build folder, up to date."""
    return shared_builds.native_tests()


@pytest.mark.timeout(700)  # the first case builds
@pytest.mark.parametrize("name", NAMES)
def test_native(build: Path, name: str) -> None:
    program, test = name.split(".")
    # Not by ctest, which reads the list of all tests for each.
    command = [build / "native_tests" / f"test_{program}", test]
    result = subprocess.run(
        command, cwd=build / "native_tests", capture_output=True, text=True, timeout=120
    )
    if result.returncode != 0:
        output = (result.stdout + result.stderr)[-6000:]
        pytest.fail(f"exit code {result.returncode}\n{output}", pytrace=False)


def test_ctest_knows_the_same_names(build: Path) -> None:
    ctest = find_tool("ctest")
    assert ctest is not None
    shown = subprocess.run([ctest, "-N"], cwd=build, capture_output=True, text=True, timeout=60)
    assert sorted(re.findall(r"Test +#\d+: (\S+)", shown.stdout)) == NAMES


@pytest.mark.timeout(700)
@pytest.mark.parametrize("program", [
    "cuda_slots",
    # Each of their tests is a case of test_native, too.
    *(variant(each)
      for each in ("unpack_cuda", "elements", "reduce_cuda", "nixl_gpu")),
])  # fmt: skip
def test_what_is_run_on_real_gpus_can_be_run_where_there_is_one(build: Path, program: str) -> None:
    environ = {
        **os.environ, "LD_LIBRARY_PATH": str(build / "fakecuda"), "FAKECUDA_DEVICES": "1",
    }  # fmt: skip
    result = subprocess.run(
        [str(build / "native_tests" / f"test_{program}")],
        env=environ, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (result.returncode, "FAILED" in result.stdout) == (0, False), result.stdout
    skipped = re.findall(r"^skip +(\S+)$", result.stdout, re.MULTILINE)
    assert skipped == (["slots_of_one_gpu_leave_another_current"] if "slots" in program else [])
