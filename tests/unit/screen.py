"""What a person sees of bytes that were sent to a terminal: lines, without what was erased."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])")


def screen(sent: str) -> list[str]:
    """The lines at the end. ValueError for a control sequence other than colours and erasing."""
    lines, column, position = [""], 0, 0
    for control in [*_CONTROL.finditer(sent), None]:
        text = sent[position : control.start() if control else len(sent)]
        lines[-1] = lines[-1][:column].ljust(column) + text + lines[-1][column + len(text) :]
        column += len(text)
        if control is None:
            break
        position = control.end()
        if control[3] == "\r":
            column = 0
        elif control[3] == "\n":
            lines.append("")
            column = 0
        elif (control[1], control[2]) == ("2", "K"):
            lines[-1] = ""
        elif control[2] != "m":
            raise ValueError(f"unknown control sequence {control[0]!r}")
    return [line.rstrip() for line in lines]
