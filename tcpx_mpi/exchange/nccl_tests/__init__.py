"""Results of nccl-tests as runs of ours: its text table, or its JSON of version 2 and 3.

nccl-tests tells averages and keeps no samples, and so does the run: each row has the two sides as
they were told, and nothing that was not (`tcpx_mpi.records.Average`).
"""

from tcpx_mpi.exchange.nccl_tests.log import read_log
from tcpx_mpi.exchange.nccl_tests.model import Log
from tcpx_mpi.exchange.nccl_tests.run import run_of, write_run

__all__ = ["Log", "read_log", "run_of", "write_run"]
