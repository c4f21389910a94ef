"""README word for word on fresh Debian 12 and 13 by debootstrap: an ordinary user, and a clone.

Run by `make test SUITE=roots` as root; `ROOTS=trixie` takes one. What debootstrap fetched is kept
in build/roots, and the system is unpacked anew for each test. The clone has what is committed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = REPOSITORY / "build" / "roots"
RELEASES = os.environ.get("ROOTS", "bookworm trixie").split()
USER = "reader"
#: `ab` says that two sides differ, or that launches are too few to tell.
EXIT_CODES = {"tcpx-mpi ab": {0, 10, 11}}
LIMIT_S = 2400
#: A system of its own: nothing that is mounted or started there outlives the command.
ENTER = """
mount -t proc proc "$1/proc" && mkdir -p "$1/dev/shm" || exit 125
mount -t tmpfs tmpfs "$1/dev/shm" || exit 125
exec chroot --userspec="$2" "$1" /usr/bin/env -i $3 bash -s
"""


def commands_of(page: str) -> list[str]:
    """The commands of a page of the clone: its first blocks, without comments and outputs."""
    blocks = re.findall(r"^```\n(.*?)^```", (REPOSITORY / page).read_text(), re.DOTALL | re.M)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    programs = ("sudo", "make", ".", "tcpx-mpi")
    commands = [line.split("  ")[0].rstrip() for line in lines if line.split(" ")[0] in programs]
    # All tests take a quarter of an hour, and CI runs them.
    return [command for command in commands if command != "make test"]


class Root:
    """A system in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, script: str, user: str = "root") -> str:
        """What a script of bash says there; an error of the script is one of the test."""
        home = "/root" if user == "root" else f"/home/{user}"
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        # pip reaches its index as here.
        pip = " ".join(f"{k}={v}" for k, v in os.environ.items()
                       if k in ("PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_INDEX_URL"))  # fmt: skip
        variables = f"HOME={home} PATH={path} USER={user} LANG=C.UTF-8 {pip}"
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"]
        done = subprocess.run(
            [*command, str(self.folder), f"{user}:{user}", variables],
            input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-8000:]}"
        return done.stdout


def base(release: str) -> Path:
    """A minimal system as an archive, from the mirror or kept from before."""
    archive = KEPT / f"{release}.tar"
    if not archive.exists():
        folder = KEPT / f"{release}.new"
        shutil.rmtree(folder, ignore_errors=True)
        KEPT.mkdir(parents=True, exist_ok=True)
        command = ["debootstrap", "--variant=minbase", "--include=ca-certificates"]
        subprocess.run([*command, release, folder], check=True, timeout=LIMIT_S)
        subprocess.run(["tar", "-C", folder, "-cf", f"{archive}.new", "."], check=True)
        Path(f"{archive}.new").rename(archive)
        shutil.rmtree(folder)
    return archive


@pytest.fixture(params=RELEASES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Root]:
    if os.geteuid() != 0:
        pytest.fail("SUITE=roots makes systems of its own: run it as root", pytrace=False)
    folder = KEPT / f"{request.param}.root"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-C", folder, "-xf", base(request.param)], check=True)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    (folder / "etc/hosts").write_text(
        "127.0.0.1 localhost\n127.0.1.1 " + os.uname().nodename + "\n"
    )
    if certificates := os.environ.get("PIP_CERT"):
        shutil.copy(certificates, folder / certificates.lstrip("/"))
    made = Root(folder)
    made.run(f"apt-get -qq update && useradd --create-home --shell /bin/bash {USER}")
    clone = folder / "home" / USER / "tcpx-mpi"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", REPOSITORY, clone], check=True)
    made.run(f"chown -R {USER}:{USER} /home/{USER}")
    try:
        yield made
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(2 * LIMIT_S)
def test_readme_word_for_word_ends_in_numbers(root: Root) -> None:
    commands = commands_of("README.md")
    assert [command.split()[0] for command in commands[:3]] == ["sudo", "make", "."]
    # A minimal system has no sudo, and root is who it would become.
    for command in commands[:1]:
        root.run(f"export DEBIAN_FRONTEND=noninteractive; {command.removeprefix('sudo ')}")
    begun = time.monotonic()
    script = ["cd ~/tcpx-mpi"]
    for number, command in enumerate(commands[1:]):
        script += [command, f'echo "@@ {number} $? $SECONDS"']
    said = root.run("\n".join(script) + "\n", USER)
    marks = re.findall(r"^@@ (\d+) (\d+) (\d+)$", said, re.M)
    ends = {int(number): (int(code), int(after_s)) for number, code, after_s in marks}
    print(f"\nREADME in {time.monotonic() - begun:.0f} s", root.folder.name, ends)
    for number, command in enumerate(commands[1:]):
        codes = next((c for start, c in EXIT_CODES.items() if command.startswith(start)), {0})
        assert ends.get(number, (None,))[0] in codes, f"{command}\n{said[-8000:]}"
    # Two runs of README, its `ab` aside, and four of `make bench`.
    assert said.count("# Out of bounds values : 0 OK") >= 6
