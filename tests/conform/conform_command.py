"""`tcpx-mpi conform` in a process of its own, and what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 120
#: In each clause's process a GPU is current before a plugin begins, a second or two each.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Found:
    """What the command printed, its exit code, and its JSON ({}: none was written)."""

    code: int
    out: str
    err: str
    document: dict[str, Any]

    def verdicts(self) -> dict[str, str]:
        """Of the first version, by clause."""
        clauses = self.document["versions"][0]["clauses"]
        return {clause["clause"]: clause["verdict"] for clause in clauses}

    def reasons(self) -> dict[str, str]:
        clauses = self.document["versions"][0]["clauses"]
        return {clause["clause"]: clause["reason"] for clause in clauses}


def conform(folder: Path, *arguments: str, **environ: str) -> Found:
    """Runs it, with its JSON in `folder`."""
    file = folder / "conform.json"
    file.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "conform", *arguments, "--json", str(file)],
        capture_output=True, text=True, timeout=LIMIT_S, env=os.environ | NO_GPU | environ,
    )  # fmt: skip
    document = json.loads(file.read_text()) if file.exists() else {}
    return Found(done.returncode, done.stdout, done.stderr, document)
