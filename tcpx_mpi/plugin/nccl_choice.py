"""NCCL_NET_PLUGIN: which plugin it names, by NCCL's own rules.

A name may be a file's, or what stands for NAME in libnccl-net-NAME.so; a path is a path; `none` is
no plugin; of several, with commas between them, the first that is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "NCCL_NET_PLUGIN"
#: What dlopen knows beside LD_LIBRARY_PATH, as ldconfig has written it down.
_LOADER_CACHE = Path("/etc/ld.so.cache")
#: What dlopen looks into in the end.
_LAST = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


@dataclass(frozen=True)
class NcclChoice:
    """The file that the variable means, "" for none; `how` says which, or why none."""

    path: str
    how: str


def nccl_choice(
    environ: Mapping[str, str],
    exists: Callable[[str], bool],
    others: Mapping[str, Sequence[str]],
) -> NcclChoice | None:
    """The plugin that NCCL_NET_PLUGIN names; None: nobody has set it.

    `others` has paths of names that are known here, where no loader has the file.
    """
    value = environ.get(VARIABLE, "").strip()
    if not value:
        return None
    if value.lower() == "none":
        return NcclChoice("", f"{VARIABLE} is none, by which NCCL takes its own sockets")
    causes = []
    for name in filter(None, (part.strip() for part in value.split(","))):
        if "/" in name:
            if exists(name):
                return NcclChoice(os.path.abspath(name), f"{VARIABLE}={value}")
            causes.append(f"{name} is no file")
            continue
        files = [name, f"libnccl-net-{name}.so"]
        if name.startswith("libnccl-net") and name.endswith(".so"):
            del files[1:]
        for place in (*_places(files, environ), *others.get(name, ())):
            if exists(place):
                return NcclChoice(place, f"{VARIABLE}={value}")
        causes.append(f"{files[-1]} is in no directory of LD_LIBRARY_PATH or of the loader")
    return NcclChoice("", f"{VARIABLE} ({value}) was not used: {', '.join(causes)}")


def _places(files: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The places in which dlopen would look for these, in its order."""
    directories = [part for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    found = []
    for file in files:
        found += [os.path.join(os.path.abspath(directory), file) for directory in directories]
        found += _of_loader(file)
        found += [f"{directory}/{file}" for directory in _LAST]
    return found


def _of_loader(file: str) -> list[str]:
    """The paths of this file name in ldconfig's list."""
    try:
        cache = _LOADER_CACHE.read_bytes()
    except OSError:
        return []
    pattern = rb"\0(/[^\0]*/" + re.escape(os.fsencode(file)) + rb")(?=\0)"
    return [os.fsdecode(path) for path in re.findall(pattern, cache)]
