"""What the suites `asan` and `tsan` consist of, as far as it is quick."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from broken_copy import REPOSITORY
from build_tools import find_tool
from mutations import Mutation, patch_of
from planted import PLANTED
from sanitized_copy import RUNTIMES, defects_in

from tcpx_mpi import _native

OURS = Path("/repository/build/address")

LEAKS = """\
==7==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 80 byte(s) in 2 object(s) allocated from:
    #0 0x1 in malloc (/lib/libasan.so.8+0x1)
    #1 0x2 in gc_alloc Modules/gcmodule.c:2283

Direct leak of 40 byte(s) in 1 object(s) allocated from:
    #0 0x1 in operator new(unsigned long) ../libsanitizer/asan/asan_new_delete.cpp:95
    #1 0x2 in reg_mr /repository/build/address/native/softtcpx/api/calls.cc:184
    #2 0x3 in _PyEval_EvalFrame Include/internal/pycore_ceval.h:73

SUMMARY: AddressSanitizer: 120 byte(s) leaked in 3 allocation(s).
"""
OVERFLOW = """\
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1
    #0 0x1 in memcpy (/lib/libasan.so.8+0x1)
    #1 0x2 in someone_elses (/lib/libother.so+0x2)
"""


def test_of_leaks_those_with_a_frame_of_ours_count_and_of_errors_all() -> None:
    (leak,) = defects_in(LEAKS, OURS)
    assert "of 40 byte(s)" in leak
    assert defects_in(LEAKS, Path("/elsewhere")) == []
    assert defects_in(OVERFLOW, OURS) == [OVERFLOW]


def test_each_sanitizer_has_defects_to_find() -> None:
    assert {p.detected_by.split(":")[0] for p in PLANTED} == set(RUNTIMES)


@pytest.mark.parametrize("defect", PLANTED, ids=lambda p: p.name)
def test_a_planted_defect_still_fits_the_sources(defect: Mutation) -> None:
    assert patch_of(defect).file.startswith("native/")


def test_what_is_installed_for_use_needs_no_sanitizer() -> None:
    libraries = sorted(Path(_native.__file__).parent.glob("*.so"))
    assert len(libraries) == 16  # the module, null; softtcpx and the tap: v7, and a file a version
    for library in libraries:
        content = library.read_bytes()
        assert not any(mark in content for mark in (b"__asan_init", b"__tsan_init", b"__ubsan_"))


def test_a_sanitizer_that_is_none_is_refused(tmp_path: Path) -> None:
    cmake = find_tool("cmake")
    if cmake is None or not any(map(find_tool, ("c++", "g++", "clang++"))):
        pytest.skip("needs compiler: cmake or a C++ compiler is not found")
    command = [cmake, "-S", str(REPOSITORY / "native"), "-B", str(tmp_path),
               "-DTCPX_MPI_SANITIZE=leak"]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    assert "TCPX_MPI_SANITIZE is address, thread or empty, not leak" in result.stderr
