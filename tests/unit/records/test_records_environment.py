"""What of the environment is kept with a result."""

from __future__ import annotations

import pytest

from tcpx_mpi.records import filter_environment


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_DEBUG",
        "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
        "UCCL_TCPX_NUM_CHANNELS",
        "TCPX_DEBUG",
        "SOFTTCPX_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "OMPI_MCA_pml",
        "UCX_TLS",
        "FI_PROVIDER",
        "SLURM_JOBID",
        "SLURM_JOB_ID",
        "LD_LIBRARY_PATH",
    ],
)
def test_what_steers_a_run_is_kept(name: str) -> None:
    assert filter_environment({name: "value"}) == {name: "value"}


@pytest.mark.parametrize(
    "name", ["HOME", "PATH", "AWS_SECRET_ACCESS_KEY", "MY_NCCL_DEBUG", "LD_LIBRARY_PATH_64", "NCCL"]
)
def test_everything_else_is_private(name: str) -> None:
    assert filter_environment({name: "value"}) == {}


def test_the_order_is_that_of_the_names() -> None:
    assert list(filter_environment({"UCX_B": "", "NCCL_A": "", "FI_C": ""})) == [
        "FI_C",
        "NCCL_A",
        "UCX_B",
    ]
