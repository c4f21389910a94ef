"""The ten lines of docs/how-to/nixl.md in a process of their own, and who is judged by its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "nixl.md").read_text()
(TEN_LINES,) = re.findall(r"```python\n(import numpy.*?)```", PAGE, re.S)
#: Over UCX, without a word of ours.
OVER_UCX = re.sub(r".*tcpx_mpi.*\n", "", TEN_LINES).replace('"TCPX"', '"UCX"')
DONE = "DONE True {'a': [b'done']}"
LIMIT_S = 200


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, timeout=LIMIT_S
    )


def passes(environ: dict[str, str], *arguments: str) -> str:
    """What Python prints; its end must be 0."""
    done = run(environ, *arguments)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def ucx_beside_it(environ: dict[str, str]) -> str:
    """Both backends in one agent, which asks ours. UCX may end a process at its very end; then ours
    is judged by what was moved and by its own end, and the text says whose end was bad. "": none.
    """
    text = TEN_LINES.replace("enable()", 'enable(beside=["UCX"])')
    text = text.replace('backends=["TCPX"]))', 'backends=["TCPX", "UCX"]))')
    done = run(environ, "-c", text)
    assert done.stdout.splitlines()[-1:] == [DONE], done.stderr[-4000:]
    if done.returncode == 0:
        return ""
    assert done.returncode == -signal.SIGSEGV, done.stderr[-4000:]
    assert passes(environ, "-c", TEN_LINES).splitlines()[-1] == DONE
    alone = run(environ, "-c", OVER_UCX)
    return (
        "UCX beside ours ended its process by SIGSEGV after the last line; "
        f"alone it ended with {alone.returncode}"
    )
