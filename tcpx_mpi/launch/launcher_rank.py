"""The rank that a launcher gives this process by its environment, and the number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# A launcher sets a rank, and mostly a size. Order: the first pair that is there is the answer.
_RANK_AND_SIZE = (
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("PMI_RANK", ("PMI_SIZE",)),
    # PMIx has the size elsewhere; under srun, Slurm says it.
    ("PMIX_RANK", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


@dataclass(frozen=True)
class LauncherRank:
    """The rank by a launcher's environment; None if that does not say."""

    rank: int
    size: int | None
    #: The number of this rank on its node.
    local_rank: int | None = None

    @property
    def speaks_for_node(self) -> bool:
        """Whether this one of the ranks of its node says what each of them has found."""
        return (self.rank if self.local_rank is None else self.local_rank) == 0


def under_launcher(environ: Mapping[str, str]) -> LauncherRank | None:
    """This process as a rank, or None: nobody started it with others.

    SLURM_PROCID alone is no rank: every sbatch script has it, and so has an srun without PMI.
    """
    for rank_name, size_names in _RANK_AND_SIZE:
        rank = environ.get(rank_name, "")
        if rank.isdecimal():
            size, local = _first_number(environ, size_names), _first_number(environ, _LOCAL_RANKS)
            return LauncherRank(int(rank), size, local)
    return None


def _first_number(environ: Mapping[str, str], names: Sequence[str]) -> int | None:
    values = (environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)


def foreign_library(launched: LauncherRank | None, world: int, library: str) -> str | None:
    """Why ranks cannot meet, where the MPI library is not the launcher's; None: they can.

    A library that knows nothing of its launcher starts each rank as a world of one.
    """
    if launched is None or launched.size is None or launched.size == world:
        return None
    return (
        f"the launcher started {launched.size} ranks, but the MPI library sees {world}: mpirun and "
        f"the library mpi4py loads ({library}) belong to different MPIs; use the mpirun of that "
        "library, or set MPI4PY_LIBMPI to the library of that mpirun"
    )


def srun_without_pmi(environ: Mapping[str, str]) -> bool:
    """srun started us several times over, but in a way that MPI cannot see."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    return under_launcher(environ) is None and "SLURM_STEP_ID" in environ and tasks != "1"
