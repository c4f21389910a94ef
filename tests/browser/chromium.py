"""A real browser for tests: headless Chromium, driven over the pipe of its DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

#: No answer takes a tenth of it on an idle machine with two cores.
LIMIT_S = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser; what it said on its console, or wanted from elsewhere, is kept."""

    def __init__(self, program: str, profile: Path) -> None:
        # At 10 and above: 3 and 4 are where Chromium expects its ends.
        their_in, self._out = (_moved_up(end) for end in os.pipe())
        self._in, their_out = (_moved_up(end) for end in os.pipe())
        self._process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, start_new_session=True,
            preexec_fn=lambda: (os.dup2(their_in, 3), os.dup2(their_out, 4)),
        )  # fmt: skip
        os.close(their_in)
        os.close(their_out)
        self._received = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        pages = self._call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    # --- What a test does -------------------------------------------------------------------------

    def show(self, width: int, *, dark: bool = False, media: str = "screen") -> None:
        """The window: its width in CSS pixels, the appearance that the user prefers, the medium."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, page: Path) -> None:
        """Loads a file, and forgets what earlier pages said."""
        self._events.clear()
        self._call("Page.navigate", url=page.as_uri())
        deadline = time.monotonic() + LIMIT_S
        while not self._seen("Page.loadEventFired"):
            self._events.append(self._receive(deadline))

    def evaluate(self, script: str) -> Any:
        """The value of an expression, as JSON has it."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def complaints(self) -> list[str]:
        """Errors and warnings of the page: its console's, its log's, its exceptions."""
        self.evaluate("0")  # whatever was said before this answer has arrived with it
        found = self._seen("Runtime.exceptionThrown") + self._seen("Log.entryAdded")
        found += [event for event in self._seen("Runtime.consoleAPICalled")
                  if event["type"] in ("error", "warning", "assert")]  # fmt: skip
        return [json.dumps(event) for event in found]

    def requests(self) -> list[str]:
        """Every address that the page asked for, its own included."""
        self.evaluate("0")
        return [event["request"]["url"] for event in self._seen("Network.requestWillBeSent")]

    def close(self) -> None:
        """Ends the browser with all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    # --- The protocol -----------------------------------------------------------------------------

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while (answer := self._receive(deadline)).get("id") != self._number:
            self._events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"Chromium did not answer within {LIMIT_S} s"
            more = os.read(self._in, 1 << 20)
            assert more, "Chromium ended"
            self._received += more
        first, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def _seen(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self._events if event.get("method") == method]


def _moved_up(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved
