"""A side whose agents move nothing."""

from __future__ import annotations

from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.nixl.agent_process import AgentPlan
from tcpx_mpi.nixl.ranks import Alone
from tcpx_mpi.nixl.roles import Roles
from tcpx_mpi.nixl.side import Side


def idle_side() -> Side:
    roles = Roles((0,), (1,))

    def plan(rank: int) -> AgentPlan:
        return AgentPlan(rank, roles, "IDLE", "idle_nixl", "dram", 4096, 4096, 0, 1, False, {})

    return Side("IDLE", roles, Alone(2, read_host()), plan)
