"""The results as text, as JSON and as JUnit's XML."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.outcome import Verdict
from tcpx_mpi.conform.suite import Result, Version
from tcpx_mpi.exchange import junit

_FORMAT = 1
_WIDTH = 96
#: Where the reason of a line begins.
INDENT = " " * 35


def heading(name: str, abi: int, path: str, memory: str) -> str:
    """Above the lines of a version."""
    return f"# {name}, v{abi}, {memory} memory: {path}"


def line(result: Result) -> str:
    """One clause in one line."""
    verdict = result.outcome.verdict
    shown = verdict.value.upper() if verdict is Verdict.FAIL else verdict.value
    harm = ""
    if verdict is Verdict.FAIL:
        harm = " [hurts NCCL]" if result.hurts else " [NCCL is not hurt]"
    return f"{shown:<12} {result.clause.name:<21} {result.outcome.reason}{harm}"


def summary(version: Version, known: Collection[str] = ()) -> str:
    """Below the lines of a version. `known`: the clauses that a user's file excuses."""
    counts = [f"{version.count(verdict)} {verdict.value}" for verdict in Verdict]
    text = f"# v{version.abi}: {', '.join(counts)}"
    for verdict, said in (
        (Verdict.PASS, "excuses what passes here, and need not"),
        (Verdict.FAIL, "excuses another fault, whose words were not seen"),
    ):
        there = {one.clause.name for one in version.results if one.outcome.verdict is verdict}
        if named := [name for name in known if name in there]:
            text += f"\n# --expect {said}: {', '.join(named)}"
    return text


def explained(clause: Clause, columns: int | None = None) -> str:
    """The text of a clause for a reader of its verdict, who has so many columns."""
    needs = ", ".join(clause.needs) or "nothing"
    since = f"v{clause.since} and later" if clause.since > 6 else "all versions"
    parts = (
        ("what", clause.what),
        ("why", clause.why),
        ("source", clause.source),
        ("NCCL", clause.nccl),
        ("hurts NCCL", "yes" if clause.hurts else "no"),
        ("needs", needs),
        ("of", since),
    )
    width = min(_WIDTH, columns or _WIDTH)
    lines = [clause.name]
    for title, text in parts:
        lines += textwrap.wrap(text, width, initial_indent=f"  {title + ':':<12}",
                               subsequent_indent=" " * 14)  # fmt: skip
    return "\n".join(lines)


def document(versions: Sequence[Version], memory: str) -> dict[str, Any]:
    """The whole as JSON has it."""
    return {
        "format": _FORMAT,
        "memory": memory,
        "versions": [
            {
                "abi": version.abi,
                "plugin": version.name,
                "path": version.path,
                "clauses": [
                    {
                        "clause": result.clause.name,
                        "verdict": result.outcome.verdict.value,
                        "reason": result.outcome.reason,
                        "hurts_nccl": result.hurts,
                    }
                    for result in version.results
                ],
            }
            for version in versions
        ],
    }


def write_json(path: str, versions: Sequence[Version], memory: str) -> None:
    """Raises OutputFailed."""
    junit.overwrite(path, json.dumps(document(versions, memory), indent=1) + "\n")


def write_junit(path: str, versions: Sequence[Version]) -> None:
    """A suite a version, a case a clause. Raises OutputFailed."""
    suites = {
        f"{version.name}.v{version.abi}": [_case(version, result) for result in version.results]
        for version in versions
    }
    junit.write_junit(path, suites)


def _case(version: Version, result: Result) -> junit.Case:
    verdict, reason = result.outcome.verdict, result.outcome.reason
    place = f"conform.v{version.abi}"
    if verdict is Verdict.FAIL:
        what = result.clause.what
        return junit.Case(place, result.clause.name, failure=reason, detail=what)
    skipped = "" if verdict is Verdict.PASS else f"{verdict.value}: {reason}"
    return junit.Case(place, result.clause.name, skipped=skipped)
