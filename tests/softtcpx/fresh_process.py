"""A test body in a process of its own: a plugin is initialised, and reads its environment, once.

`@in_fresh_process(NAME="value")` runs the body in a new interpreter with these variables. A body
may take parameters (of `pytest.mark.parametrize`) that JSON can carry; one that is called
`environ` adds to the variables. `Other` starts one more process with a function of the same file.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from net_v7 import LIBRARY, softtcpx_path

LIMIT_S = 120
WORKERS_BY_CORES = "WORKERS_BY_CORES"
#: Arguments of a function that is no test body but the other end of a `Line`.
OTHER = {"other": True}


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without a plugin's variables, with loopback and `variables`.

    Without workers, which softtcpx otherwise has where a GPU is current, by this machine's cores;
    WORKERS_BY_CORES among `variables` leaves that to it.
    """
    ours = ("NCCL_", "SOFTTCPX_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    library = {LIBRARY: str(softtcpx_path())}
    none = {} if WORKERS_BY_CORES in variables else {"NCCL_SOCKET_NTHREADS": "0"}
    return {**kept, **library, "NCCL_SOCKET_IFNAME": "lo", **none, **variables}


def command_of(function: Callable[..., None], arguments: Mapping[str, Any]) -> list[str]:
    """Return the command that calls `function` of its test file in a new interpreter."""
    file = inspect.getfile(function)
    return [sys.executable, __file__, file, function.__name__, json.dumps(arguments)]


def in_fresh_process(**variables: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(body)
        def test(**arguments: Any) -> None:
            result = subprocess.run(
                command_of(body, arguments),
                env=clean_environment({**variables, **arguments.get("environ", {})}),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            assert result.returncode == 0, f"exit {result.returncode}\n{result.stderr[-6000:]}"

        test.body = body  # type: ignore[attr-defined]  # for the child, which runs it
        return test

    return decorate


class Other:
    """Another process that runs `function(other)` of a file; both ends exchange lines of bytes."""

    def __init__(self, function: Callable[[Line], None], **variables: str) -> None:
        self.process = subprocess.Popen(
            command_of(function, OTHER),
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.line = Line(self.process.stdout, self.process.stdin)

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class Line:
    """Byte strings to and from the process at the other end."""

    def __init__(self, source: Any, sink: Any) -> None:
        self._source, self._sink = source, sink

    def tell(self, message: bytes) -> None:
        self._sink.write(message.hex().encode() + b"\n")
        self._sink.flush()

    def hear(self) -> bytes:
        text = self._source.readline()
        assert text.endswith(b"\n"), "the other process ended"
        return bytes.fromhex(text.decode().strip())


def _main(file: str, function: str, text: str) -> None:
    # Python ignores SIGPIPE; a host that does not must survive a lost peer too.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    path = Path(file)
    sys.path[:0] = [str(path.parent), str(Path(__file__).parents[1])]
    module = importlib.import_module(path.stem)
    arguments = json.loads(text)
    body = getattr(module, function)
    if arguments.pop("other", False):
        body(Line(sys.stdin.buffer, sys.stdout.buffer))
    else:
        body.body(**arguments)
    # No clearing up under the feet of a worker of the plugin that still has something to send.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
