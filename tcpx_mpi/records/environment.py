"""Which environment variables are kept with a result."""

from __future__ import annotations

from collections.abc import Mapping

from tcpx_mpi.secrets import redacted_value

#: An allow-list: what steers the plugin, CUDA, MPI or the job. Everything else is private.
ALLOWED_PREFIXES = (
    "NCCL_",
    "UCCL_",
    "TCPX_",
    "SOFTTCPX_",
    "CUDA_",
    "OMPI_",
    "UCX_",
    "FI_",
    "SLURM_JOB",
)
ALLOWED_NAMES = frozenset({"LD_LIBRARY_PATH"})


def filter_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The allowed variables in order of name, without secrets."""
    return {
        name: redacted_value(name, environ[name])
        for name in sorted(environ)
        if name.startswith(ALLOWED_PREFIXES) or name in ALLOWED_NAMES
    }
