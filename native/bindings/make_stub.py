"""Makes tcpx_mpi/_native.pyi from the installed module and stub.patterns, formatted by ruff.

    make_stub.py            writes it (`make format`)
    make_stub.py --check    exit code 1 if it differs from what would be written (`make lint`)

Types come from the C++ signatures; where those say too little, give the binding a result type of
bind.h or an `nb::sig`. Run it by the Python that the module is built for.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
STUB = REPOSITORY / "tcpx_mpi" / "_native.pyi"
HEAD = '''"""The native core: plugin loader, buffers and payload, engine.

Made by native/bindings/make_stub.py out of the bindings: change those, then `make format`.
"""

'''


def main(words: list[str]) -> int:
    if words not in ([], ["--check"]):
        print(f"usage: make_stub.py [--check], found {words}", file=sys.stderr)
        return 2
    if refusal := _other_nanobind():
        print(refusal, file=sys.stderr)
        return 2
    wanted, found = _made(), STUB.read_text() if STUB.exists() else ""
    name = str(STUB.relative_to(REPOSITORY))
    if not words:
        if wanted != found:
            STUB.write_text(wanted)
            print(f"{name} is new")
        return 0
    if wanted == found:
        return 0
    lines = difflib.unified_diff(found.splitlines(), wanted.splitlines(), name, "the bindings",
                                 lineterm="")  # fmt: skip
    print(*lines, sep="\n")
    print(f"{name} is not what the bindings are: run `make format`", file=sys.stderr)
    return 1


def _other_nanobind() -> str | None:
    """Another release may write the same types in other words: one line, or None if it fits."""
    pinned = re.search(r'"nanobind==([^"]+)"', (REPOSITORY / "pyproject.toml").read_text())
    assert pinned is not None, "pyproject.toml: the extra `test` pins nanobind"
    found = importlib.metadata.version("nanobind")
    if found == pinned[1]:
        return None
    return (
        f"the stub is made by nanobind {pinned[1]}, found {found}: "
        f"{sys.executable} -m pip install nanobind=={pinned[1]}, and build anew"
    )


def _made() -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "_native.pyi")
        # From its folder: the package is the installed one, and no folder of the same name here.
        command = [sys.executable, "-m", "nanobind.stubgen", "--quiet", "--exclude-docstrings",
                   "--module", "tcpx_mpi._native", "--pattern-file", str(HERE / "stub.patterns"),
                   "--output-file", str(out)]  # fmt: skip
        subprocess.run(command, cwd=folder, check=True)
        text = HEAD + out.read_text()
    for step in (["check", "--fix-only", "--select", "I", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(
            ruff, cwd=REPOSITORY, input=text, check=True, capture_output=True, text=True
        ).stdout
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
