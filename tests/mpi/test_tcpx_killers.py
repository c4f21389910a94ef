"""Values that kill TCPX are refused before it is initialised: by all that would load it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import mpirun, run, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

#: Has the name of TCPX, and ends the process at init, as TCPX does without a GPU.
TCPX = """
#include <stdlib.h>
static int init(void *log) { (void)log; exit(1); }
struct { const char *name; int (*init)(void *); void *rest[18]; } ncclNetPlugin_v7 = {
    "GPUDirectTCPX_v7", init};
"""
SESSION = """
import sys
from tcpx_mpi import Session, errors
try:
    Session(plugin=sys.argv[1])
except errors.UsageError as error:
    sys.exit(f"tcpx-mpi: error: {error}")
"""
#: Other tests hide this machine's GPUs, which is such a value, too.
GPUS = {"CUDA_VISIBLE_DEVICES": "0"}
THREADS = {"NCCL_SOCKET_NTHREADS": "9", **GPUS}
RETRY = {"NCCL_GPUDIRECTTCPX_CONNECTION_RETRY": "0", **GPUS}


@pytest.fixture(scope="module")
def tcpx(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of something that calls itself TCPX."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs compiler: no cc, gcc or clang in PATH")
    folder = tmp_path_factory.mktemp("tcpx")
    library, source = folder / "libnccl-net-tcpx.so", folder / "tcpx.c"
    source.write_text(TCPX)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return str(library)


STARTS: dict[str, Callable[[str], list[str]]] = {
    "run": lambda plugin: tcpx_mpi("run", "pair", "--ranks", "2", "--plugin", plugin),
    "rank": lambda plugin: mpirun(2, "run", "pair", "--plugin", plugin, "--hdf5", "none"),
    "smoke": lambda plugin: tcpx_mpi("smoke", "--ranks", "2", "--plugin", plugin),
    "session": lambda plugin: [sys.executable, "-c", SESSION, plugin],
}


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        pytest.param(THREADS, "run", id="threads-run"),
        pytest.param(THREADS, "rank", id="threads-rank"),
        variant(THREADS, "smoke", id="threads-smoke"),
        variant(THREADS, "session", id="threads-session"),
        variant(RETRY, "run", id="retry-run"),
        variant(RETRY, "rank", id="retry-rank"),
        variant(RETRY, "smoke", id="retry-smoke"),
        pytest.param(RETRY, "session", id="retry-session"),
    ],
)
def test_a_fatal_value_is_one_line_and_exit_2(
    start: str, environ: dict[str, str], tcpx: str, place: Path
) -> None:
    result = run(STARTS[start](tcpx), place, environ)
    assert result.code == (1 if start == "session" else 2), result.text
    (error,) = result.errors
    assert next(iter(environ)) in error
    assert "; use " in error


def test_preflight_has_a_check_of_them(tcpx: str, place: Path) -> None:
    result = run(tcpx_mpi("preflight", "--json", "--plugin", tcpx), place, THREADS)
    assert result.code == 2, result.text
    found = {each["check"]: each for each in json.loads(result.out)["checks"]}
    assert found["plugin variables"]["status"] == "FAILED"
    assert found["plugin variables"]["found"].startswith("NCCL_SOCKET_NTHREADS (9) leaves")
    assert found["plugin variables"]["remedy"].startswith("use 8 or less")
    assert "plugin devices" not in found  # init was not called
