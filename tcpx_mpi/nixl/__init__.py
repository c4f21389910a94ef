"""NIXL over any NCCL network plugin: where the backend TCPX lies, and how NIXL learns it.

import tcpx_mpi.nixl
tcpx_mpi.nixl.enable()            # before the first agent of this process
agent = nixl_agent("me", nixl_agent_config(backends=["TCPX"]))
"""

from __future__ import annotations

from tcpx_mpi.nixl.wheel import (
    BACKEND,
    TESTED,
    Wheel,
    enable,
    installed_wheel,
    plugin_dir,
)

__all__ = ["BACKEND", "TESTED", "Wheel", "enable", "installed_wheel", "plugin_dir"]
