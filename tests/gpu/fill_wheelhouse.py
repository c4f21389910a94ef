"""Fills a folder with the wheels of wheelhouse.txt, for a machine without network.

    fill_wheelhouse.py FOLDER [PYTHON]      (3.12)

`make wheelhouse`. They are for x86-64 and the PYTHON of that machine, whatever runs here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).with_name("wheelhouse.txt")
MOST_BYTES = 60 << 20
#: Older tags are not implied by newer ones where pip is told the platform.
GLIBC = ("2_39", "2_34", "2_31", "2_28", "2_27", "2_24", "2_17", "2_12", "2_5")
LEGACY = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")


def main(folder: str, python: str = "3.12") -> int:
    platforms = [*(f"manylinux_{glibc}_x86_64" for glibc in GLIBC), *LEGACY]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--only-binary=:all:", "--implementation", "cp", "--python-version", python,
               *(word for name in platforms for word in ("--platform", name)),
               "--dest", folder, "--requirement", str(LIST)]  # fmt: skip
    subprocess.run(command, check=True)
    wheels = sorted(Path(folder).glob("*.whl"))
    total = sum(wheel.stat().st_size for wheel in wheels)
    print(f"{folder}: {len(wheels)} wheels for Python {python}, {total / 2**20:.1f} MiB")
    if total > MOST_BYTES:
        print(f"more than {MOST_BYTES >> 20} MiB: take something out of {LIST}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
