"""`python -m tcpx_mpi.preflight.probe PROFILE ABI [PLUGIN]`: initialise a plugin, then use a GPU.

Prints a line of JSON for each. A process of its own: a plugin is initialised once a process, and
some end it when they fail; so may CUDA.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from tcpx_mpi import _native
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import TcpxError, UsageError
from tcpx_mpi.machine.cpu_bindings import bindings_in
from tcpx_mpi.machine.gpu.choice import obstacle_to_cuda
from tcpx_mpi.machine.placement import Node, Request
from tcpx_mpi.machine.topology import read_host, this_machine
from tcpx_mpi.plugin.device_memory import memory_of, memory_text
from tcpx_mpi.plugin.find import choose_plugin, inspect, is_tcpx
from tcpx_mpi.plugin.unsafe_settings import fatal_value
from tcpx_mpi.run.place_ranks import net_devices, place_at
from tcpx_mpi.transport.gpu_memory import RankGpu
from tcpx_mpi.transport.load_plugin import LoadedPlugin, load_plugin


def main(arguments: Sequence[str]) -> int:
    """Prints what is known of the plugin, with `problem` where it did not come up; then of CUDA."""
    profile, abi, *plugins = arguments
    found: dict[str, object] = {}
    given = {"profile": profile, "abi": abi, "plugin": plugins[0] if plugins else None}
    try:
        settings = load_settings(given, os.environ)
    except UsageError as error:
        print(json.dumps({"settings_problem": str(error), "problem": str(error)}), flush=True)
        return 0
    try:
        file = inspect(choose_plugin(settings, os.environ))
        found |= {"path": file.path, "sha256": file.sha256, "name": file.name}
        found["abi_versions"] = list(file.abi_versions)
        plugin = load_plugin(settings, os.environ, tried=True)
        found["devices"] = [_device_text(nic) for nic in plugin.nics]
    except TcpxError as error:
        found |= {"problem": str(error), "advised": isinstance(error, UsageError)}
        # By now with what a profile sets.
        found["fatal_value"] = fatal_value(str(found.get("name", "")), os.environ) or ""
    print(json.dumps(found), flush=True)
    if "problem" not in found:
        print(json.dumps(cuda(plugin)), flush=True)
    return 0


def _device_text(nic: _native.DeviceProperties) -> str:
    speed = this_machine().line_rate_mbps(nic["name"], nic["speed_mbps"])
    rate = f"{speed} Mb/s" if speed > 0 else "speed unknown"
    return f"{nic['name']} {rate} ({memory_text(memory_of(nic))})"


def cuda(plugin: LoadedPlugin) -> dict[str, str]:
    """Memory of the buffers of this node's first rank: a GPU's, described by `cuda`; a GPU's that
    cannot be had, for the reason in `cuda_problem`; or the host's, for that in `no_cuda`."""
    host = read_host()
    devices, bindings = net_devices(plugin), bindings_in(os.environ)
    nic_of_gpu = plugin.profile.nic_of_gpu if plugin.profile is not None else ()
    node = Node(host.name, this_machine(), devices, bindings, nic_of_gpu)
    try:
        place = place_at(0, [host], node, Request())
        name = plugin.file.name
        nic = plugin.nic(place.device)
        obstacle = obstacle_to_cuda(name, nic, place, host.name, is_tcpx(name))
        if obstacle:
            return {"no_cuda": obstacle}
        gpu = RankGpu(place)
        _native.cuda_compile(gpu.ordinal)
        facts = gpu.facts()
    except Exception as error:  # whatever CuPy and CUDA raise: a preflight goes on
        return {"cuda_problem": " ".join(str(error).split()) or type(error).__name__}
    versions = (("CUDA", "driver_cuda"), ("NVRTC", "nvrtc"), ("CuPy", "cupy"))
    return {"cuda": ", ".join(f"{name} {facts[f'gpu_{key}']}" for name, key in versions)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
