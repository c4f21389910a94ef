"""The known faults of a plugin: clauses that it breaks, each with a reason and what is seen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcpx_mpi.conform.table import BY_NAME
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import read_toml
from tcpx_mpi.slips import did_you_mean

_SHIPPED = Path(__file__).parent / "known"
_FORM = "its form is in docs/reference/conformance.md"


@dataclass(frozen=True)
class Excuse:
    """Why a clause is not kept, and words of what is seen then; none: whatever is seen."""

    reason: str
    seen: tuple[str, ...]

    def holds(self, seen: str) -> bool:
        """Whether it is this that was seen, and not another fault of the same clause."""
        return not self.seen or any(words in seen for words in self.seen)


Excuses = Mapping[str, Excuse]


def shipped_for(name: str) -> dict[str, Excuse]:
    """The expectations that this package ships for a plugin of this name."""
    known: dict[str, Excuse] = {}
    for file in sorted(_SHIPPED.glob("*.toml")):
        content = read_toml("known", str(file), _FORM)
        if any(part in name for part in content["plugins"]):
            known.update(_known(str(file), content))
    return known


def of_file(path: str) -> dict[str, Excuse]:
    """The clauses that a user's file knows to fail, each with what is seen. Raises UsageError."""
    known = _known(os.fspath(path), read_toml("--expect", path, _FORM))
    for clause, excuse in known.items():
        if not excuse.seen:
            raise UsageError(
                f"--expect: {path}: {clause} excuses whatever is seen: write {clause} = {{reason = "
                '"...", seen = "words of its line of FAIL"}'
            )
    return known


def _known(path: str, content: Mapping[str, Any]) -> dict[str, Excuse]:
    known = content.get("known")
    if not isinstance(known, dict) or set(content) - {"known", "plugins"}:
        raise UsageError(
            f'--expect: {path}: expected one table [known] of CLAUSE = {{reason = "...", seen = '
            '"..."}'
        )
    for clause in known:
        if clause not in BY_NAME:
            raise UsageError(f"--expect: {path}: {no_clause(clause)}")
    return {clause: _excuse(path, clause, said) for clause, said in known.items()}


def no_clause(name: str) -> str:
    """That it is none, and where they are listed."""
    close = did_you_mean(name, BY_NAME)
    return f"{name} is no clause{close}; `tcpx-mpi conform --explain all` lists them"


def _excuse(path: str, clause: str, said: object) -> Excuse:
    parts = said if isinstance(said, dict) else {"reason": said}
    reason, seen = parts.get("reason"), parts.get("seen", [])
    words = seen if isinstance(seen, list) else [seen]
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"--expect: {path}: {clause} has no reason: write one in quotes")
    if set(parts) - {"reason", "seen"} or not all(isinstance(w, str) and w.strip() for w in words):
        raise UsageError(f"--expect: {path}: {clause} has a reason and seen, texts in quotes")
    return Excuse(reason, tuple(words))
