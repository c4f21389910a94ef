"""`python -m tcpx_mpi.preflight.probe [PLUGIN]`: load and initialise a plugin, print it as JSON.

A process of its own: a plugin is initialised once a process, and some end it when they fail.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from tcpx_mpi.config import load_settings
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.plugins import choose_plugin, inspect
from tcpx_mpi.rank_setup import load_plugin


def main(arguments: Sequence[str]) -> int:
    """Prints what is known of the plugin, with `problem` where it did not come up."""
    found: dict[str, object] = {}
    try:
        settings = load_settings({"plugin": arguments[0] if arguments else None}, os.environ)
        file = inspect(choose_plugin(settings, os.environ))
        found |= {"path": file.path, "sha256": file.sha256, "name": file.name}
        found["abi_versions"] = list(file.abi_versions)
        plugin = load_plugin(settings, os.environ)
        each = [plugin.handle.properties(device) for device in range(plugin.devices)]
        found["devices"] = [f"{nic['name']} {nic['speed_mbps']} Mb/s" for nic in each]
    except TcpxError as error:
        found["problem"] = str(error)
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
