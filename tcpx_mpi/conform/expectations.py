"""What is known of a plugin: clauses that it does not keep, each with a reason."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tcpx_mpi.conform.table import BY_NAME
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import read_toml

_SHIPPED = Path(__file__).parent / "known"
_FORM = "its form is in docs/reference/conformance.md"


def shipped_for(name: str) -> dict[str, str]:
    """What this package knows of a plugin that calls itself so."""
    known: dict[str, str] = {}
    for file in sorted(_SHIPPED.glob("*.toml")):
        content = read_toml("known", str(file), _FORM)
        if any(part in name for part in content["plugins"]):
            known.update(_known(str(file), content))
    return known


def of_file(path: str) -> dict[str, str]:
    """What a user knows of a plugin. Raises UsageError."""
    return _known(os.fspath(path), read_toml("--expect", path, _FORM))


def _known(path: str, content: Mapping[str, Any]) -> dict[str, str]:
    known = content.get("known")
    if not isinstance(known, dict) or set(content) - {"known", "plugins"}:
        raise UsageError(f'--expect: {path}: expected one table [known] of CLAUSE = "reason"')
    for clause, reason in known.items():
        if clause not in BY_NAME:
            raise UsageError(
                f"--expect: {path}: {clause} is no clause; `tcpx-mpi conform --explain all` lists "
                "them"
            )
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError(f"--expect: {path}: {clause} has no reason: write one in quotes")
    return dict(known)
