"""Verdicts as JUnit's XML, which shows them in most systems that run tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from tcpx_mpi.errors import OutputFailed

#: What no document of XML may have.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One verdict; without a failure and a reason to be skipped it is good."""

    place: str
    name: str
    failure: str = ""
    skipped: str = ""
    #: More about the failure.
    detail: str = ""


def write_junit(path: str, suites: Mapping[str, Sequence[Case]]) -> str:
    """A file of suites by their names; its name. Raises OutputFailed."""
    top = ElementTree.Element("testsuites")
    for title, cases in suites.items():
        suite = ElementTree.SubElement(
            top, "testsuite", name=_text(title), tests=str(len(cases)),
            failures=str(sum(bool(case.failure) for case in cases)),
            skipped=str(sum(bool(case.skipped) for case in cases)),
        )  # fmt: skip
        for case in cases:
            element = ElementTree.SubElement(
                suite, "testcase", classname=_text(case.place), name=_text(case.name)
            )
            if case.failure:
                failure = ElementTree.SubElement(element, "failure", message=_text(case.failure))
                failure.text = _text(case.detail)
            elif case.skipped:
                ElementTree.SubElement(element, "skipped", message=_text(case.skipped))
    ElementTree.indent(top)
    text = ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"
    overwrite(path, text)
    return path


def overwrite(path: str, text: str) -> None:
    """A file of verdicts, in place of that of the last time. Raises OutputFailed."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OutputFailed(f"{path} could not be written: {error.strerror}") from None


def _text(text: str) -> str:
    """It may quote a plugin, or a user's file."""
    return _NOT_IN_XML.sub("?", text)
