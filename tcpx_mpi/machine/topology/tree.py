"""Where topology is read from: this machine's /sys and /proc, or a recorded copy of the few files.

All reading goes through one root, so that what was recorded elsewhere is read by the same code.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tcpx_mpi.errors import OutputFailed, UsageError

#: At the root of a recorded tree: the GPUs, which no file of the system tells, and a remark.
GPU_FACTS = "gpus.json"
ABOUT = "about.txt"

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class Tree:
    """Files below a root; paths begin with "/". What is not there, or not readable, is empty.

    It remembers what was found, for `record`.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)
        self._files: dict[str, str] = {}
        self._links: dict[str, str] = {}

    @property
    def live(self) -> bool:
        """This machine itself."""
        return self.root == Path("/")

    def text(self, path: str) -> str:
        """A file's text, without the white space around it."""
        try:
            found = self._below(path).read_text(errors="replace").strip()
        except (
            OSError
        ):  # also: attributes that exist and refuse to be read, as of a NIC that is down
            return ""
        self._files[path] = found
        return found

    def number(self, path: str, unknown: int = -1) -> int:
        """A file's whole number."""
        text = self.text(path)
        return int(text) if text.removeprefix("-").isdecimal() else unknown

    def field(self, path: str, name: str) -> str:
        """What follows the first `name:` of a file of such lines; only that line is remembered."""
        try:
            lines = self._below(path).read_text(errors="replace").splitlines()
        except OSError:
            return ""
        for line in lines:
            key, colon, value = line.partition(":")
            if colon and key.strip() == name:
                kept = self._files.get(path, "").splitlines()
                self._files[path] = "\n".join(dict.fromkeys([*kept, line]))
                return value.strip()
        return ""

    def names(self, path: str) -> list[str]:
        """What a directory lists, sorted."""
        try:
            return sorted(os.listdir(self._below(path)))
        except OSError:
            return []

    def target(self, path: str) -> str:
        """Where a symbolic link ends, as a path below the root; "" where there is no link."""
        try:
            link = os.readlink(self._below(path))
        except OSError:
            return ""
        self._links[path] = link
        return os.path.normpath(os.path.join(os.path.dirname(path), link))

    def record(self, directory: str, about: str, gpus: str) -> int:
        """Copies every file and link that was found into a new directory; how many these are.

        Raises UsageError where the directory has something in it or cannot be made, and
        OutputFailed where a file cannot be written; it is left empty then.
        """
        target = Path(directory)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if any(target.iterdir()):
                raise UsageError(f"--record ({directory}) is not empty: name a new directory")
        except OSError as error:
            raise UsageError(
                f"--record ({directory}) cannot be made: {error.strerror}; name a directory "
                "that you may write"
            ) from None
        try:
            self._copy_to(target, {GPU_FACTS: gpus, ABOUT: about})
        except OSError as error:
            for entry in target.iterdir():  # all of it is from here
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
            text = f"--record ({directory}) cannot be written: {error.strerror}"
            if error.errno in _FORBIDDEN:
                raise UsageError(f"{text}; name a directory that you may write") from None
            raise OutputFailed(text) from None
        return len(self._files) + len(self._links)

    def _copy_to(self, target: Path, notes: Mapping[str, str]) -> None:
        for path, text in self._files.items():
            copy = target / path.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text + "\n")
        for path, link in self._links.items():
            copy = target / path.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(link)
        for name, text in notes.items():
            (target / name).write_text(text)

    def _below(self, path: str) -> Path:
        return self.root / path.lstrip("/")
