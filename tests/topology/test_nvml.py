"""GPUs by NVML: a library with its names and its struct, compiled here, since no driver may be."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tcpx_mpi.machine.topology.gpus import find_gpus

SOURCE = Path(__file__).with_name("fake_nvml.c")


def nvml(place: Path, fail_init: int = 0) -> str:
    """A library of its own for each test: a loaded one stays."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs compiler: a C compiler makes the library")
    library = str(place / "libfake-nvml.so")
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-DFAIL_INIT={fail_init}", str(SOURCE), "-o", library],
        check=True,
    )
    return library


def test_nvml_tells_the_gpus_that_this_process_may_have(tmp_path: Path) -> None:
    library = nvml(tmp_path)
    found = find_gpus(None, library)
    assert [(gpu.index, gpu.name, gpu.uuid, gpu.pci) for gpu in found] == [
        (0, "NVIDIA H100", "GPU-0", "0000:8a:00.0"),
        (1, "NVIDIA H300", "GPU-2", "0000:8c:00.0"),
    ]
    assert [gpu.uuid for gpu in find_gpus("GPU-2", library)] == ["GPU-2"]
    assert ctypes.CDLL(library).fake_open_count() == 0, "NVML is left open"


def test_an_nvml_without_a_driver_is_as_none(tmp_path: Path) -> None:
    assert find_gpus(None, nvml(tmp_path, fail_init=9), cuda="libno-such-cuda.so") == []


def library_of(place: Path, name: str, source: str) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs compiler: a C compiler makes the library")
    (place / f"{name}.c").write_text(source)
    library = str(place / f"lib{name}.so")
    subprocess.run([compiler, "-shared", "-fPIC", f"{place}/{name}.c", "-o", library], check=True)
    return library


def test_a_library_of_the_driver_that_lacks_functions_tells_no_gpus(tmp_path: Path) -> None:
    """Which function is missing says the engine, in one line, where GPUs are asked for."""
    whole = (
        "int cuInit(unsigned f) { return 0; } int cuDeviceGetCount(int* n) { return *n = 1, 0; }"
    )
    cuda = library_of(tmp_path, "few-cuda", whole)
    begins = "int nvmlInit_v2(void) { return 0; } int nvmlShutdown(void) { return 0; }"
    without_count = library_of(tmp_path, "few-nvml", begins)
    counts = f"{begins} int nvmlDeviceGetCount_v2(unsigned* n) {{ return *n = 1, 0; }}"
    without_facts = library_of(tmp_path, "more-nvml", counts)
    for nvml_file in ("libno-such-nvml.so", without_count, without_facts):
        assert find_gpus(None, nvml_file, cuda) == []
