"""The pattern of a run as its settings choose it: its root, where it has one."""

from __future__ import annotations

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import CHOICES, Choice, load, load_chosen
from tcpx_mpi.schedule.pattern import Pattern


def pattern_of(settings: Settings) -> Pattern:
    """The pattern, a program of nccl-tests in its first form. Raises UsageError, one line."""
    choices = CHOICES.get(settings.pattern)
    if choices is None:
        return load(settings.pattern)
    return load_chosen(settings.pattern, Choice(root=_root(settings)))


def _root(settings: Settings) -> int:
    if "root" not in CHOICES[settings.pattern]:
        return 0
    if settings.root == "all":
        raise UsageError(
            f"-r/--root all is for nccl-tests' programs: give {settings.pattern} one rank, or use "
            "gather or scatter"
        )
    return int(settings.root)
