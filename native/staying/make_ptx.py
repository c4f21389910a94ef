"""Makes staying_ptx.cc anew from staying.cu: `python make_ptx.py LIBNVRTC`.

Of CUDA 11.8, so that older drivers take what it writes.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1]
#: As read_kernel(STAYING_SOURCE ...) of CMakeLists.txt.
PARTS = ("cuda/device.h", "cuda/host_device.h", "cuda/moves.h", "staying/letter.h",
         "staying/staying.cu")  # fmt: skip
MADE = NATIVE / "staying" / "staying_ptx.cc"
FILE = """// Made by make_ptx.py of staying.cu and what it includes.
// Source: %s
#include "staying/staying_ptx.h"

namespace tcpx {

const char kStayingPtx[] = R"ptx(%s)ptx";

}  // namespace tcpx
"""
OPTIONS = (b"--std=c++17", b"--gpu-architecture=compute_70")


def source() -> str:
    """The kernel with all that it includes, as the run-time compiler gets it."""
    text = "".join((NATIVE / part).read_text() for part in PARTS)
    return re.sub(r'(^|\n)(#include "|#pragma once)[^\n]*', r"\1", text)


def digest() -> str:
    """Of all that settles what the compiler writes: staying_ptx.cc says of which it was made."""
    return hashlib.sha256(b"\n".join((*OPTIONS, source().encode()))).hexdigest()


def main(library: str) -> int:
    nvrtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source().encode(), b"staying.cu", 0, None, None)
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    if nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options) != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        print(log.value.decode(), file=sys.stderr)
        return 1
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    text = re.sub(r"(?m)^(\.global \.align .*|//.*|)\n", "", ptx.value.decode())
    MADE.write_text(FILE % (digest(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
