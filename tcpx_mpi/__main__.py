"""`python -m tcpx_mpi`, the same as `tcpx-mpi`."""

import sys

from tcpx_mpi.cli import main

sys.exit(main())
