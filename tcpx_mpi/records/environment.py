"""Which environment variables are kept with a result, and which values are hidden."""

from __future__ import annotations

from collections.abc import Mapping

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
SECRET_WORDS = ("TOKEN", "KEY", "PASS", "SECRET")
REDACTED = "(redacted)"


def filter_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The allowed variables in order of name; a value whose name sounds secret is redacted."""
    return {
        name: REDACTED if any(word in name.upper() for word in SECRET_WORDS) else environ[name]
        for name in sorted(environ)
        if name.startswith(ALLOWED_PREFIXES) or name in ALLOWED_NAMES
    }
