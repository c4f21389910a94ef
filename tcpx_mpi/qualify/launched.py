"""Ranks of a launcher as the nodes of a qualification: they tell where they are and end, all but
the first, which then starts ranks there itself, as often as it takes."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager

from tcpx_mpi import _native
from tcpx_mpi import world as mpi
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.profiles import keep_mpi_on_control_nic
from tcpx_mpi.machine.topology import read_host, this_machine
from tcpx_mpi.preflight.facts import read_mpirun
from tcpx_mpi.preflight.hostfile_forms import launcher_of, line_of

#: What a launcher tells a rank, by which an mpirun would take itself for one; what users set for
#: Open MPI goes on.
_OF_A_RANK = re.compile(
    r"PMIX?_|PRTE_(?!MCA_)|OMPI_(?!MCA_|ALLOW_RUN)|OMPI_MCA_(?:ess|initial|orte)|MPI_LOCAL"
    r"|SLURM_(?:STEP|PROCID|LOCALID|NODEID|TASK_PID|GTIDS|SRUN|LAUNCH|CPU_BIND|UMASK|PMI|MPI_TYPE)"
)


#: What is used in place of ssh, as Open MPI 4 calls it and as 5 does, which takes its own name for
#: it away from ranks.
_AGENT, _AGENT_OF_5 = "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"


def nodes_of_ranks(profile: str, environ: MutableMapping[str, str]) -> dict[str, int] | None:
    """Collective: the ranks of each node, by its name, on rank 0; None elsewhere. Ends MPI."""
    _native.install_signal_handlers()
    keep_mpi_on_control_nic(profile, this_machine(), environ)
    world = mpi.start(_native.stop_signal, environ)
    name = environ.get("SLURMD_NODENAME") or read_host().name
    told = world.gather(name, "nodes")
    mpi.finish()
    return None if told is None else Counter(told)


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes a process a rank. Within a step of Slurm, another one
    gets the same CPUs, which wait meanwhile."""
    kept = {name: value for name, value in environ.items() if not _OF_A_RANK.match(name)}
    if agent := kept.get(_AGENT):
        kept.setdefault(_AGENT_OF_5, agent)
    return {**kept, "SLURM_OVERLAP": "1"} if "SLURM_STEP_ID" in environ else kept


@contextmanager
def as_hostfile(nodes: Mapping[str, int], environ: Mapping[str, str]) -> Iterator[str]:
    """A hostfile of them. Raises UsageError if they have not as many ranks each."""
    if len(set(nodes.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in nodes.items())
        raise UsageError(f"nodes have other numbers of ranks ({counts}); give each the same")
    _, version = read_mpirun(environ)
    with tempfile.NamedTemporaryFile("w", prefix="tcpx-mpi-hosts-") as file:
        for name, count in nodes.items():
            file.write(line_of(name, count, launcher_of(version)) + "\n")
        file.flush()
        yield file.name
