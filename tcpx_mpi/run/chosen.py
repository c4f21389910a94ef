"""The pattern of a run as its settings choose it: its root or its seed, where it has one."""

from __future__ import annotations

import dataclasses

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import CHOICES, Choice, load, load_chosen
from tcpx_mpi.schedule.pattern import Pattern


def pattern_of(settings: Settings) -> Pattern:
    """The pattern, a program of nccl-tests in its first form. Raises UsageError, one line."""
    choices = CHOICES.get(settings.pattern)
    if choices is None:
        return load(settings.pattern)
    choice = Choice(root=_root(settings))
    if "seed" in choices:
        choice = dataclasses.replace(choice, seed=settings.seed)
    return load_chosen(settings.pattern, choice)


def _root(settings: Settings) -> int:
    if "root" not in CHOICES[settings.pattern]:
        return 0
    if settings.root == "all":
        raise UsageError(
            f"-r/--root all is for nccl-tests' programs: give {settings.pattern} one rank, or use "
            "gather or scatter"
        )
    return int(settings.root)
