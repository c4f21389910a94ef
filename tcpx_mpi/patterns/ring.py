"""Everybody to the next rank, at the same time (nccl-tests' sendrecv)."""

from __future__ import annotations

from tcpx_mpi.patterns.one_to_one import by_distance, one_to_one
from tcpx_mpi.patterns.program import of_bytes
from tcpx_mpi.schedule.symmetry import Symmetry

RING = one_to_one("ring", by_distance(1), symmetry=lambda world: Symmetry.SHIFT)
PROGRAMS = (of_bytes("ring", lambda form: RING),)
