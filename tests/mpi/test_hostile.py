"""Real runs in bad company: strangers at every port of the ranks, and no secret told to anybody."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest
from jobs import LIMIT_S, Job, Result, started

from tcpx_mpi.launch import mpirun

pytestmark = pytest.mark.multirank

RANK = Path(__file__).parent / "telling_rank.py"
HANDLE_BYTES = 128
#: How long every accept of the run keeps its peer waiting, so that strangers meet the handshakes.
HANDSHAKE_MS = 500
PLUGIN_FAILED = 13


@pytest.fixture
def handles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the ranks leave their handles: not among what is searched."""
    return tmp_path_factory.mktemp("handles")


@contextlib.contextmanager
def running(place: Path, handles: Path, *options: str, **variables: str) -> Iterator[Job]:
    """Two ranks in debug mode that tell their handles and leave all files that they can leave."""
    command = [mpirun.find_mpirun(os.environ), "-n", "2", sys.executable, str(RANK), str(handles)]
    command += ["run", "pair", "--plugin", "softtcpx", "--hdf5", "o.h5", "-J", "o.json",
                "--spool", "spool", *options]  # fmt: skip
    debug = {"UCCL_TCPX_DEBUG": "1", "NCCL_DEBUG": "TRACE", "NCCL_NSOCKS_PERTHREAD": "2"}
    with started(command, place, {**debug, **variables}) as job:
        yield job


# --- Under siege --------------------------------------------------------------------------------


def ports_of(processes: list[int]) -> list[tuple[str, int]]:
    """The addresses on 127.0.0.1 of the ranks' TCP sockets, listening or connected."""
    inodes = set()
    for pid in processes:
        with contextlib.suppress(OSError):  # gone meanwhile
            # Not mpirun; and one that is just being started or ending has no words.
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [bytes(RANK)]:
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        address, port = words[1].split(":")
        if address == "0100007F" and f"socket:[{words[9]}]" in inodes:
            found.append(("127.0.0.1", int(port, 16)))
    return found


class Attacker:
    """A thread that goes from port to port, with another thing to say each time, until `end`."""

    SAYS = (b"", os.urandom(200), bytes(64), b"stcpxHEL" + bytes(20), b"GET / HTTP/1.0\r\n\r\n")

    def __init__(self, job: Job) -> None:
        self.connected = 0
        self.refused = 0
        self._job = job
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._attack)
        self._thread.start()

    def _attack(self) -> None:
        kept: list[socket.socket] = []
        number = 0
        while not self._ended.is_set():
            for port in ports_of(self._job.processes()):
                for _ in range(20):
                    number += 1
                    try:
                        stranger = socket.create_connection(port, timeout=5)
                        stranger.sendall(self.SAYS[number % len(self.SAYS)])
                    except ConnectionRefusedError:
                        self.refused += 1
                        break
                    except OSError:
                        continue
                    self.connected += 1
                    if number % 3 == 0:
                        linger = struct.pack("ii", 1, 0)
                        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    kept.append(stranger)
                    if len(kept) > 200:
                        kept.pop(0).close()
        for stranger in kept:
            stranger.close()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.variant
def test_a_run_whose_ports_are_hammered_moves_every_byte(place: Path, handles: Path) -> None:
    options = ("-b", "1M", "-e", "1M", "-n", "200", "-w", "1")
    with running(place, handles, *options, SOFTTCPX_TRAP_ACCEPT_MS=str(HANDSHAKE_MS)) as job:
        attacker = Attacker(job)
        try:
            result = job.finish(LIMIT_S)
        finally:
            attacker.end()
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0], result.text
    assert attacker.connected >= 4 * len(attacker.SAYS), "the handshakes were attacked"
    assert attacker.refused > 0, "and so was the transfer, on ports that were closed or taken"
    assert "# plugin: " in result.err
    assert "refused 127.0.0.1:" in result.err
    assert (place / "o.json").exists()
    assert_no_secret(place, handles, result)


# --- No secret is told --------------------------------------------------------------------------


def secrets(handles: Path) -> list[bytes]:
    """That of every handle of a run."""
    return [
        text[at : at + HANDLE_BYTES][24:40]
        for text in (path.read_bytes() for path in handles.iterdir())
        for at in range(0, len(text), HANDLE_BYTES)
    ]


def everything_in(path: Path) -> bytes:
    """The bytes of a file; of an HDF5 file also those of each object in it, uncompressed."""
    parts = [path.read_bytes()]
    if path.suffix == ".h5":

        def look(_: str, thing: h5py.Group | h5py.Dataset) -> None:
            values = [*thing.attrs.values()]
            if isinstance(thing, h5py.Dataset):
                values.append(thing[()])
            for value in values:
                plain = getattr(value, "tobytes", lambda value=value: repr(value).encode())
                parts.append(plain() + repr(value).encode())

        with h5py.File(path) as file:
            look("/", file)
            file.visititems(look)
    return b"".join(parts)


def is_secret_in(text: bytes, secret: bytes) -> bool:
    """Is the secret there, as it is or in a way that bytes are printed in?"""
    pairs = [f"{byte:02x}" for byte in secret]
    written = [*(joint.join(pairs) for joint in ("", " ", ":", "-", "\\x", ", 0x")),
               base64.b64encode(secret).decode()[:20], repr(list(secret))[1:-1]]  # fmt: skip
    lower = text.lower()
    return secret in text or any(way.lower().encode() in lower for way in written)


def assert_no_secret(place: Path, handles: Path, result: Result) -> None:
    places = {str(path.relative_to(place)): path for path in place.rglob("*") if path.is_file()}
    texts = {name: everything_in(path) for name, path in places.items()}
    texts["what was printed"] = (result.out + result.err).encode()
    assert "o.h5" in texts
    found = secrets(handles)
    assert len(found) >= 2
    assert len(set(found)) == len(found)
    for name, text in texts.items():
        assert len(text) > 100, f"{name} is empty"
        assert not any(is_secret_in(text, secret) for secret in found), f"{name} has a secret"


def test_no_secret_is_in_what_a_run_that_failed_leaves(place: Path, handles: Path) -> None:
    options = ("-b", "4K", "-e", "16K", "-f", "2", "-n", "10", "-w", "1")
    trap = {"SOFTTCPX_TRAP_ERROR_AT": "20", "SOFTTCPX_TRAP_ERROR_CODE": "3"}
    with running(place, handles, *options, **trap) as job:
        result = job.finish(LIMIT_S)
    assert result.code == PLUGIN_FAILED, result.text
    assert len(list((place / "spool").glob("*.journal"))) == 2, result.text
    assert_no_secret(place, handles, result)


@pytest.mark.parametrize("way", ["as it is", "hex", "HEX", "0x", "base64", "list"])
def test_a_secret_would_be_found(way: str, tmp_path: Path) -> None:
    secret = bytes(range(1, 250, 16))
    written = {
        "as it is": secret,
        "hex": secret.hex().encode(),
        "HEX": secret.hex(" ").upper().encode(),
        "0x": ", ".join(f"0x{byte:02X}" for byte in secret).encode(),
        "base64": base64.b64encode(b"x" * 3 + secret),
        "list": repr(list(b"x" + secret)).encode(),
    }[way]
    path = tmp_path / "o.h5"
    with h5py.File(path, "w") as file:
        kept = file.create_dataset("d", data=list(b"no" * 500 + written), compression="gzip")
        kept.attrs["secret"] = written
    assert is_secret_in(everything_in(path), secret)
    assert not is_secret_in(everything_in(path), secret[::-1])
