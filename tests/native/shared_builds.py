"""What several folders of tests take from build/copy, where native tests and mutants are made."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from pathlib import Path

from broken_copy import REPOSITORY, BrokenCopy
from build_native import required_tools

_FAKECUDA = REPOSITORY / "build" / "fakecuda"


def sound_copy() -> BrokenCopy:
    """The copy, equal to the sources and configured. Skips where no compiler is."""
    fakecuda()  # whoever asks for it from now on takes it, and does not touch the copy
    return _configured()


def fakecuda() -> Path:
    """The folder of the stand-in for the CUDA driver, up to date. Skips where no compiler is.

    Whoever comes first builds it, while the copy is sound: mutants that break a kernel break only
    the copy's own.
    """
    libraries, stamp, wanted = _FAKECUDA / "libraries", _FAKECUDA / "stamp", _sources()
    _FAKECUDA.mkdir(parents=True, exist_ok=True)
    with open(_FAKECUDA / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers of a test run one builds
        if not stamp.exists() or stamp.read_text() != wanted:
            copy = _configured()
            copy.make("fakecuda", "fakenvrtc", "fakenccl")
            shutil.rmtree(libraries, ignore_errors=True)
            # softtcpx's tests know the stand-in by the folder's name.
            shutil.copytree(copy.build / "fakecuda", libraries / "fakecuda")
            stamp.write_text(wanted)
    return libraries / "fakecuda"


def _configured() -> BrokenCopy:
    copy = BrokenCopy(REPOSITORY / "build" / "copy", required_tools())
    copy.refresh()
    copy.configure()
    return copy


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
