"""reference/p2p-library.md, made of the comments of the two headers of the library of sessions.

A header is read as it is written: a comment belongs to the declaration behind it, a line of
`--- Title` begins a section, and what is private is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[1] / "native" / "library" / "include"
CPP = INCLUDE / "tcpx_p2p" / "session.h"
C = INCLUDE / "tcpx_p2p.h"

_TITLE = re.compile(r"(?://|/\*) --- (.*?)(?: \*/)?")
_EXPORT = re.compile(r"\b(TCPX_P2P_API|TCPX_P2P_C_API) ")
_WHOLE = re.compile(r"(typedef )?(enum|struct) .*\{|typedef enum")
_CLASS = re.compile(r"class .*\{")
_SPECIAL = re.compile(r"= delete;|operator=|\(\w+&&\) noexcept|= default;|^~.*override;|^using ")

_INTRODUCTION = """\
# The library of sessions

{made}

`pip install` puts `libtcpx_p2p.so.1`, an archive, headers, a CMake package and a pkg-config file
below the package; [commands.md](commands.md) has `tcpx-mpi config`, which says where. It needs the
libraries of C and C++ and nothing else; a driver of GPUs is looked for when a session asks for a
GPU. Programs to begin with: `examples/p2p_two_processes.cc` and `.c`.

```
cc examples/p2p_two_processes.c -o two $(tcpx-mpi config --cflags --libs)
g++ -std=c++17 examples/p2p_two_processes.cc -o two $(tcpx-mpi config --cflags --libs)
```

With CMake, `cmake -Dtcpx_p2p_DIR=$(tcpx-mpi config --cmakedir)`:

```cmake
find_package(tcpx_p2p REQUIRED)
target_link_libraries(program PRIVATE tcpx_p2p::tcpx_p2p)   # or tcpx_p2p::tcpx_p2p_static
```

Python's `tcpx_mpi.Session` is the same library with one remote.
"""


def page(made: str) -> str:
    """The text of the page; `made` says that it is not to be edited."""
    parts = [_INTRODUCTION.format(made=made)]
    for title, header, language in (
        ("C++: `tcpx_p2p/session.h`", CPP, "cpp"),
        ("C: `tcpx_p2p.h`", C, "c"),
    ):
        lines = header.read_text().splitlines()
        head, body = _split_head(lines)
        parts += [f"## {title}\n", *_prose(head), *_declarations(body, language)]
    return "\n".join(parts).rstrip() + "\n"


def _split_head(lines: list[str]) -> tuple[list[str], list[str]]:
    """The comment that a header begins with, and what follows."""
    end = next(i for i, line in enumerate(lines) if line.startswith("#"))
    return [_bare(line) for line in lines[:end]], lines[end:]


def _bare(line: str) -> str:
    """A line of a comment without what makes it one."""
    line = re.sub(r"^\s*(//|/\*| \*(?!/)) ?", "", line)
    return re.sub(r"\s*\*/$", "", line).rstrip()


def _prose(lines: list[str]) -> Iterator[str]:
    """Paragraphs; lines that stand in are shown as they are."""
    block: list[str] = []

    def flush() -> Iterator[str]:
        if not block:
            return
        if block[0].startswith("  "):
            inset = min(len(line) - len(line.lstrip()) for line in block)
            yield "\n".join(["```", *(line[inset:] for line in block), "```", ""])
        else:
            yield "\n".join(block) + "\n"
        block.clear()

    for line in lines:
        if not line:
            yield from flush()
            continue
        # What continues a line that stands in is part of it.
        if block and line.startswith("  ") != block[-1].startswith("  "):
            yield from flush()
        block.append(line)
    yield from flush()


def _declarations(lines: list[str], language: str) -> Iterator[str]:
    comment: list[str] = []
    at, hidden, inside = 0, False, False
    while at < len(lines):
        line = lines[at]
        text = line.strip()
        at += 1
        title = _TITLE.fullmatch(text)
        if title is not None:
            yield f"{'####' if inside else '###'} {title[1]}\n"
            comment = []
        elif text.startswith(("//", "/*")):
            comment.append(_bare(line))
            while text.startswith("/*") and not text.endswith("*/"):
                text = "/*" + lines[at].strip()
                comment.append(_bare(lines[at]))
                at += 1
        elif not text or text.startswith("#") or "namespace" in text or "extern" in text:
            at = _behind_macro(lines, at - 1)
            comment = []
        elif text == "private:":
            hidden = True
        elif text in ("};", "}", "public:"):
            hidden, inside = hidden and text == "public:", inside and text == "public:"
            comment = []
        elif _CLASS.match(text):
            inside = True
            name = re.search(r"class (?:TCPX_P2P_API )?(\w+)", text)
            assert name is not None
            yield f"#### `{name[1]}`\n"
            yield from _prose(comment)
            comment = []
        else:
            declared, at = _declaration(lines, at - 1)
            first = declared[0].strip()
            if (
                not hidden
                and not _SPECIAL.search(" ".join(declared).strip())
                and not re.match(r"(class|friend) \w+;", first)
            ):
                yield "\n".join([f"```{language}", *declared, "```", ""])
                yield from _prose(comment)
            comment = []


def _behind_macro(lines: list[str], at: int) -> int:
    while lines[at].endswith("\\"):
        at += 1
    return at + 1


def _declaration(lines: list[str], at: int) -> tuple[list[str], int]:
    """The lines of one declaration, an enum or a struct with its members, set to the left."""
    start = at
    whole = _WHOLE.match(lines[at].strip()) is not None
    while not (
        re.search(r"^\s*\}.*;", lines[at]) if whole else re.search(r"[;}]\s*(/\*.*)?$", lines[at])
    ):
        at += 1
    taken = lines[start : at + 1]
    inset = len(taken[0]) - len(taken[0].lstrip())
    return [_EXPORT.sub("", line[inset:]) for line in taken], at + 1
