"""The source of the topology: this machine's /sys and /proc, or what was read of another machine.

All reading goes through a tree, so that a recorded machine is read by the same code.
"""

from __future__ import annotations

import errno
import json
import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.inputs import read_json

_REMEDY = "give a file that `tcpx-mpi topo --record` has made"
#: A machine of 8 GPUs has some hundreds.
_MOST_FILES = 1 << 16
#: Linux has no longer ones.
PATH_LETTERS = 4096
#: Of a number of 63 bits.
_DIGITS = 18
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class Tree:
    """The files of this machine; paths begin with "/". What is missing or not readable is empty.

    It remembers what was found, for `record`.
    """

    #: What to call it in a message.
    name = "this machine"
    #: This machine itself.
    live = True
    #: The remark of a recorded machine, and its GPUs, which no file of the system tells.
    about = ""
    gpu_facts: Sequence[Mapping[str, str]] = ()

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._links: dict[str, str] = {}

    def text(self, path: str) -> str:
        """A file's text, without the white space around it."""
        found = self._read(path)
        if found is None:
            return ""
        self._files[path] = found.strip()
        return found.strip()

    def number(self, path: str, unknown: int = -1) -> int:
        """A file's whole number."""
        text = self.text(path)
        whole = text.removeprefix("-").isdecimal() and len(text) <= _DIGITS
        return int(text) if whole else unknown

    def field(self, path: str, name: str) -> str:
        """The text after the first `name:` of a file of such lines; only that is remembered."""
        for line in (self._read(path) or "").splitlines():
            key, colon, value = line.partition(":")
            if colon and key.strip() == name:
                kept = self._files.get(path, "").splitlines()
                self._files[path] = "\n".join(dict.fromkeys([*kept, line]))
                return value.strip()
        return ""

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def target(self, path: str) -> str:
        """The path where a symbolic link ends; "" if there is no link."""
        link = self._link(path)
        if link is None:
            return ""
        self._links[path] = link
        return os.path.normpath(os.path.join(os.path.dirname(path), link))

    def record(self, file: str, about: str, gpu_facts: Sequence[Mapping[str, str]]) -> int:
        """Write every file and link that was found into a new JSON file; how many these are.

        Raises UsageError if the file exists or cannot be made, and OutputFailed if it cannot be
        written; there is no file then.
        """
        document = {
            "about": about,
            "gpus": list(gpu_facts),
            "files": dict(sorted(self._files.items())),
            "links": dict(sorted(self._links.items())),
        }
        try:
            with open(file, "x") as output:
                output.write(json.dumps(document, indent=1) + "\n")
        except FileExistsError:
            raise UsageError(f"--record ({file}) exists: name a new file") from None
        except OSError as error:
            Path(file).unlink(missing_ok=True)  # none was there before
            text = f"--record ({file}) cannot be written: {error.strerror}"
            if error.errno in (*_FORBIDDEN, errno.ENOENT, errno.ENOTDIR):
                raise UsageError(f"{text}; name a file that you may write") from None
            raise OutputFailed(text) from None
        return len(self._files) + len(self._links)

    def _read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(errors="replace")
        except OSError:  # also: attributes that refuse to be read, as of a NIC that is down
            return None

    def _link(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except OSError:
            return None


class RecordedTree(Tree):
    """A machine that `record` wrote to a file. Raises UsageError if the file has no machine."""

    live = False

    def __init__(self, file: str) -> None:
        super().__init__()
        self.name = file
        document = read_json(file, remedy=_REMEDY)
        if not isinstance(document, dict):
            raise _no_machine(file, "no JSON object")
        self.about = str(document.get("about", "")).strip()
        self.gpu_facts = document.get("gpus", [])
        self._recorded_files = _texts(file, document, "files")
        self._recorded_links = _texts(file, document, "links")
        #: In order, so that what lies in a directory lies side by side.
        self._paths = sorted([*self._recorded_files, *self._recorded_links])

    def names(self, path: str) -> list[str]:
        """The names that were found in a directory, sorted."""
        prefix = f"{path}/"
        found: dict[str, None] = {}
        for at in range(bisect_left(self._paths, prefix), len(self._paths)):
            if not self._paths[at].startswith(prefix):
                break
            found[self._paths[at][len(prefix) :].partition("/")[0]] = None
        return sorted(found)

    def _read(self, path: str) -> str | None:
        return self._recorded_files.get(path)

    def _link(self, path: str) -> str | None:
        return self._recorded_links.get(path)


def open_tree(recorded: str | None) -> Tree:
    """The tree of a recorded machine's file, or of this machine."""
    return Tree() if recorded is None else RecordedTree(recorded)


def _no_machine(file: str, why: str) -> UsageError:
    return UsageError(f"{file}: {why}; {_REMEDY}")


def _texts(file: str, document: Mapping[str, object], key: str) -> Mapping[str, str]:
    """A table of a recorded machine from paths to text."""
    table = document.get(key)
    if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
        raise _no_machine(file, f'"{key}" is no table of paths and text')
    if len(table) > _MOST_FILES:
        raise _no_machine(file, f'"{key}" has more than {_MOST_FILES} paths')
    targets = table.values() if key == "links" else ()
    if any(len(path) > PATH_LETTERS for path in (*table, *targets)):
        raise _no_machine(file, f'"{key}" has a path of more than {PATH_LETTERS} letters')
    return table
