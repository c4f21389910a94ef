"""What several folders of tests take from the build of `make setup`: native tests, and the stand-in
for the CUDA driver.

python tests/native/shared_builds.py    builds them (`make native-tests`)
"""

from __future__ import annotations

import fcntl
import hashlib
import sys
import sysconfig
from pathlib import Path

from build_native import REPOSITORY, configure, make, required_tools

_TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
#: Where pip has compiled the package (`build-dir` of pyproject.toml).
_PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
BUILD = REPOSITORY / "build" / f"{_TAG}-{_TAG}-{_PLATFORM}"


def native_tests() -> Path:
    """The build folder with the native tests, up to date. Skips where no compiler is."""
    fakecuda()  # whoever asks for it from now on takes it, and does not wait for the tests
    _make("native_tests")
    return BUILD


def fakecuda() -> Path:
    """The folder of the stand-in, up to date. Skips where no compiler is."""
    stamp, wanted = BUILD / "fakecuda" / "stamp", _sources()
    if not stamp.exists() or stamp.read_text() != wanted:
        _make("fakecuda", "fakenvrtc", "fakenccl")
        stamp.write_text(wanted)
    return stamp.parent


def _make(*targets: str) -> None:
    cmake, cache = required_tools(), BUILD / "CMakeCache.txt"
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers of a test run one builds
        if not cache.exists() or "TCPX_MPI_NATIVE_TESTS:BOOL=ON" not in cache.read_text():
            configure(cmake, REPOSITORY / "native", BUILD, "-DTCPX_MPI_NATIVE_TESTS=ON")
        make(cmake, BUILD, *targets)


def _sources() -> str:
    """A hash of all that the stand-in is compiled of."""
    files = [
        path
        for folder in (REPOSITORY / "native", REPOSITORY / "tests" / "fakecuda")
        for pattern in ("*.cu", "*.h", "*.cc", "CMakeLists.txt")
        for path in folder.rglob(pattern)
        if folder.name == "fakecuda" or path.suffix != ".cc"
    ]
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    native_tests()
