"""A program of NIXL's own, with the backend TCPX where it says UCX: run_example.py FILE ..."""

from __future__ import annotations

import sys
from pathlib import Path

import nixl

import tcpx_mpi.nixl

tcpx_mpi.nixl.enable()
# What an agent has of which nothing is said.
for default in nixl.nixl_agent_config.__init__.__defaults__ or ():
    if default == ["UCX"]:
        default[:] = ["TCPX"]
sys.argv = sys.argv[1:]
program = Path(sys.argv[0]).read_text().replace('"UCX"', '"TCPX"')
exec(compile(program, sys.argv[0], "exec"), {"__name__": "__main__"})
