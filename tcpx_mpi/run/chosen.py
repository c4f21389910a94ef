"""The pattern of a run as its settings choose it: its root, seed or matrix, where it has one."""

from __future__ import annotations

import dataclasses
import functools

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import CHOICES, Choice, load, load_chosen
from tcpx_mpi.patterns.matrix import Matrix, read_matrix
from tcpx_mpi.schedule.pattern import Pattern


def pattern_of(settings: Settings) -> Pattern:
    """The pattern, a program of nccl-tests in its first form. Raises UsageError, one line."""
    choices = CHOICES.get(settings.pattern)
    if choices is None:
        return load(settings.pattern)
    if "load_bytes" in choices:
        _refuse_beside_load(settings)
    choice = Choice(root=_root(settings), weights=weights_of(settings))
    if "load_bytes" in choices:
        choice = dataclasses.replace(choice, load_bytes=settings.load_bytes)
    if "seed" in choices:
        choice = dataclasses.replace(choice, seed=settings.seed)
    return load_chosen(settings.pattern, choice)


def _refuse_beside_load(settings: Settings) -> None:
    """What a pattern with a load cannot have: its two sides take the turns, one round trip each."""
    if settings.against:
        raise UsageError(
            f"--against has no {settings.pattern}: run pingpong beside peers, and this one alone"
        )
    if settings.agg_iters > 1:
        raise UsageError(
            f"-m/--agg_iters ({settings.agg_iters}) is more than the one round trip that "
            f"{settings.pattern} times: leave it out"
        )


def weights_of(settings: Settings) -> Matrix | None:
    """The matrix of a pattern that has one, as it was when this was first asked.

    So what all ranks agree upon is what they run, even if the file is written anew meanwhile.
    """
    if "matrix_path" not in CHOICES.get(settings.pattern, ()) or settings.matrix_path is None:
        return None
    return _read_once(settings.matrix_path, settings.matrix_scale)


@functools.lru_cache(maxsize=1)
def _read_once(path: str, scale: float) -> Matrix:
    return read_matrix(path, scale, alignment=1)


def _root(settings: Settings) -> int:
    if "root" not in CHOICES[settings.pattern]:
        return 0
    if settings.root == "all":
        raise UsageError(
            f"-r/--root all is for nccl-tests' programs: give {settings.pattern} one rank, or use "
            "gather or scatter"
        )
    return int(settings.root)
