"""The tap as tests use it: its files, and messages through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tcpx_mpi.plugin.find import bundled_dir
from tcpx_mpi.tap.file import TapFile, read_tap

LIMIT_S = 60
MESSAGES = Path(__file__).with_name("messages.py")


def bundled(name: str, abi: int = 7) -> Path:
    """A plugin of this package, the tap or softtcpx, by its version."""
    return Path(bundled_dir()) / f"libnccl-net-{name}{'' if abi == 7 else f'-v{abi}'}.so"


def command(
    sizes: Sequence[int], *then: str, abi: int = 7, plugin: Path | None = None
) -> list[str]:
    plan = json.dumps({"sizes": list(sizes), "then": then})
    return [sys.executable, str(MESSAGES), str(plugin or bundled("tap", abi)), str(abi), plan]


def environment(abi: int = 7, **more: str) -> dict[str, str]:
    named = {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
             "TCPX_TAP_PLUGIN": str(bundled("softtcpx", abi))}  # fmt: skip
    return os.environ | named | more


@dataclass(frozen=True)
class Sent:
    """What came of messages, and what was warned of."""

    messages: list[str]
    err: str


def send(sizes: Sequence[int], *then: str, abi: int = 7, **environ: str) -> Sent:
    """Messages through the tap, in a process of their own, to its end."""
    done = subprocess.run(
        command(sizes, *then, abi=abi), env=environment(abi, **environ), capture_output=True,
        text=True, timeout=LIMIT_S, input="\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Sent([json.loads(line) for line in done.stdout.splitlines()], done.stderr)


def only_file(folder: Path) -> TapFile:
    (path,) = folder.glob("*.tap")
    return read_tap(str(path))
