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
