"""Load and initialise a plugin in a child process first: `python -m tcpx_mpi.plugin.trial`.

A file that was cut off, a constructor or an init that crashes or aborts ends the process that
loads it. That process is not to be a rank, nor the one that lists plugins.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed, TcpxError
from tcpx_mpi.launch.mpirun import PARENT_VARIABLE
from tcpx_mpi.launch.own_python import module_command, without_here
from tcpx_mpi.parent_death import end_with_parent
from tcpx_mpi.plugin.current_gpu import make_gpu_current
from tcpx_mpi.plugin.device_memory import memory_of

LOAD, INIT, DEVICES = "loading the plugin", "init of the plugin", "the devices of the plugin"
#: More network devices than any node has: what says more has not understood the question.
MOST_DEVICES = 1024
#: What native code says of a plugin that calls exit() or crashes: how, and what it had warned of.
END_BY_PLUGIN = re.compile(r"tcpx-mpi: error: .*the plugin .* has ((?:ended|crashed) .*)")
#: What the process says: a step that it begins, then once what it found.
_STEP, _FOUND = "step", "found"


class CallFailed(SetupFailed):
    """A call of the plugin returned an error."""


class NoPlugin(TcpxError):
    """The file cannot be loaded, or is no plugin that we can drive."""


def facts_of(
    path: str, abi: int, environ: Mapping[str, str], patience_s: float
) -> _native.PluginFacts:
    """The facts that `_native.probe` finds in a file, in a process of its own.

    Raises NoPlugin if that fails, or ends the process.
    """
    facts: _native.PluginFacts = _tried(path, abi, "load", environ, patience_s)
    return facts


def devices_of(
    path: str, abi: int, environ: Mapping[str, str], patience_s: float
) -> list[dict[str, Any]]:
    """Name and `memory_of` each device; all else is as of `require_init`."""
    devices: list[dict[str, Any]] = _tried(path, abi, "init", environ, patience_s)["devices"]
    return devices


def require_init(path: str, abi: int, environ: Mapping[str, str], patience_s: float) -> None:
    """Initialise a plugin, and ask for its devices, in a process of its own.

    Not for TCPX, whose manager would see a handshake more. Raises NoPlugin as `facts_of`,
    CallFailed if a call fails, SetupFailed if one ends the process.
    """
    _tried(path, abi, "init", environ, patience_s)


def _tried(path: str, abi: int, how: str, environ: Mapping[str, str], patience_s: float) -> Any:
    # Without the mark of ranks: their launcher is not to take it for one.
    own = {k: v for k, v in without_here(environ).items() if k != PARENT_VARIABLE}
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            module_command("tcpx_mpi.plugin.trial", [path, str(abi), how, str(os.getpid())]),
            env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        try:
            step, found = _follow(process.stdout, path, patience_s)
        except TimeoutError:
            process.kill()
            raise SetupFailed(f"{path}: it took longer than {patience_s:g} s to load it") from None
        code = process.wait()
        if found is None:
            said.seek(0)
            text = f"{path}: {step} {_end(code, path, step, said.read().decode(errors='replace'))}"
            raise NoPlugin(text) if step == LOAD else SetupFailed(text)
    if "no_plugin" in found:
        raise NoPlugin(found["no_plugin"])
    if "incomplete" in found:
        raise SetupFailed(found["incomplete"])
    if "failed" in found:
        raise CallFailed(found["failed"])
    return found


def _follow(pipe: IO[bytes], path: str, patience_s: float) -> tuple[str, dict[str, Any] | None]:
    """The last step that the process began, and what it found; None if it ended before."""
    deadline = time.monotonic() + patience_s
    step, rest = LOAD, b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise TimeoutError
        piece = os.read(pipe.fileno(), 1 << 16)
        if not piece:
            return step, None
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            kind, value = json.loads(line)
            if kind == _FOUND:
                return step, value
            step = value
            _native.watch_waits_for(f"{step} {path} (in a process of its own)")


def _end(code: int, path: str, step: str, said: str) -> str:
    """The end of the process, by its exit code and what was said there."""
    words = [line.strip() for line in said.splitlines() if line.strip()]
    last = words[-1] if words else ""
    told = END_BY_PLUGIN.fullmatch(last)
    after = f"; it said: {last[:200]}" if last else ""
    if told is None and code >= 0:
        return f"ended its process by exit({code}){after}"
    if told is None:
        end = f"ended its process by {signal.Signals(-code).name}"
    else:
        end = re.sub(" in (?:load|init)", "", told[1], count=1)  # the step says so
    if signal.SIGBUS.name in end and step == LOAD:
        with contextlib.suppress(OSError):
            size = os.path.getsize(path)
            return (
                f"{end}: the file ends at {size} bytes, before what it should hold; copy it again"
            )
    return end if told is not None else end + after


# --- In the process of its own -------------------------------------------------------------------


def main(path: str, version: str, how: str, parent: str) -> None:
    """Load a plugin, and with `init` initialise it; say what comes of it."""
    if not end_with_parent(int(parent)):
        return
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a plugin prints what it likes

    def say(kind: str, value: object) -> None:
        print(json.dumps([kind, value]), file=answers, flush=True)

    abi = int(version)
    say(_STEP, LOAD)
    try:
        facts = _native.probe(path, abi)
    except _native.LibraryError as error:
        return say(_FOUND, {"no_plugin": str(error)})
    if how == "init":
        try:
            _native.begin_plugin_init()
            plugin = _native.Plugin(path, abi)
            say(_STEP, INIT)
            make_gpu_current(path, os.environ)
            plugin.init()
            say(_STEP, DEVICES)
            count = plugin.devices()
            # More are refused where it is loaded.
            devices = [plugin.properties(i) for i in range(count if count <= MOST_DEVICES else 0)]
            named = [{"name": each["name"], **memory_of(each)} for each in devices]
            return say(_FOUND, {**facts, "devices": named})
        except _native.IncompleteTable as error:
            return say(_FOUND, {"incomplete": str(error)})
        except _native.PluginError as error:
            return say(_FOUND, {"failed": f"{facts['path']}: {error}"})
    say(_FOUND, facts)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # nothing of a plugin runs at the end
