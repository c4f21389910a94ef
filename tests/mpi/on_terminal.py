"""Runs a command on a terminal of its own and keeps what came out of it, byte by byte.

    python on_terminal.py SEEN both|stderr COLUMNS COMMAND...

SEEN is the file for it. With "stderr" the standard output of the command is that of this program.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def main(seen: str, what: str, columns: str, *command: str) -> int:
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(columns), 0, 0))
    child = subprocess.Popen(command, stdout=end if what == "both" else None, stderr=end)
    os.close(end)
    with open(seen, "wb") as file, contextlib.suppress(OSError):  # EIO: nobody has it open now
        while data := os.read(terminal, 65536):
            file.write(data)
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
