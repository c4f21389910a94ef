"""Each rank's own exit code, of which mpirun tells one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def telling_code(path: str, command: Sequence[str]) -> list[str]:
    """The command of a rank that leaves its exit code in PATH.RANK.

    In a session of its own, where mpirun does not kill it a fraction of a second after another.
    """
    tell = f'"$@"; code=$?; echo $code >{path}.$OMPI_COMM_WORLD_RANK; exit $code'
    return ["setsid", "--wait", "bash", "-c", tell, "tell", *command]


def codes_of(files: Mapping[int, Path]) -> dict[int, int]:
    """Rank -> exit code, of those that have ended, out of the file of each."""
    texts = {rank: file.read_text() for rank, file in files.items() if file.exists()}
    return {rank: int(text) for rank, text in texts.items() if text.endswith("\n")}
