"""Messages between this process and one peer, through a net plugin: Session and Transfer.

    session = Session()
    info = session.listen()                  # to the peer, by any means: MPI, a pipe, a socket
    session.load_remote_conn_info(theirs)
    session.establish()                      # or accept() and connect()
    memory = session.register_memory(array)
    with session.create_transfer() as transfer:
        transfer.post_send(memory, 0, 23)
        transfer.wait()
    session.deregister_memory(memory)
    session.close()

The n-th send of one side meets the n-th receive of the other, which must have as many bytes. Bytes
move only while both sides call something that waits or asks; whoever does so for one session moves
the bytes of all sessions of its process. Nobody works in the background. Needs no MPI.

Every error is a TcpxError. One of the plugin, or of a size, stays: the session can then only be
closed. A wait that was in vain (Stalled) may be repeated. A call of the plugin that does not return
holds the thread that makes it beyond all timeouts, and no thread can be taken out of a call: after
`call_timeout_s` it ends the process, with a line that names the call and exit code 6. So does a
plugin that holds the end of the process, in a destructor.
"""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import SetupFailed, TcpxError, UsageError
from tcpx_mpi.machine.gpu.arrays import gpu_slots
from tcpx_mpi.machine.gpu.compiler import configure_compiler
from tcpx_mpi.open_files import raise_limit
from tcpx_mpi.plugin.find import CHUNK_VARIABLE, SIZES_VARIABLE, choose_plugin
from tcpx_mpi.plugin.request_limits import within_requests_of
from tcpx_mpi.session.errors import (
    ALREADY_DONE,
    CLOSED,
    OUT_OF_BOUNDS,
    PLUGIN_FAILED,
    RELEASED,
    TIMED_OUT,
    UNKNOWN_MEMORY,
    error_of,
    session_errors,
)
from tcpx_mpi.transport.engine import UNPACK_MODES
from tcpx_mpi.transport.load_plugin import LoadedPlugin, RefusedAfterInit, load_plugin
from tcpx_mpi.transport.memory import require_memory
from tcpx_mpi.transport.setup_errors import setup_errors

__all__ = ["Session", "Transfer"]

#: As `--stall-timeout` of a run.
CALL_TIMEOUT_S = 30.0
#: Thirty years, which nanoseconds in 64 bits can still tell.
_LONGEST_WAIT_S = 1e9
#: What the native library takes for a number of bytes.
_MOST_BYTES = 2**64 - 1


class Session:
    """The connections of this process to one peer: `channels` each way.

    What is not given comes from the environment (UCCL_TCPX_NUM_CHANNELS, UCCL_TCPX_CHUNK_BYTES,
    UCCL_TCPX_PLUGIN_PATH) or is the default of `tcpx-mpi run`. Both sides need equal channels,
    chunk bytes and plugin. `abi` is the version of its table (None: the newest that it offers).
    Timeouts are seconds without any progress.

    `call_timeout_s` is how long a call of the plugin may take before it ends this process (None:
    this session sets no limit); its load and init may take `--setup-timeout`, 300 s. A process has
    one such limit, of the session that was made last; TCPX_P2P_CALL_TIMEOUT_S in the environment
    wins. A forked child has none.

    With `gpu`, CUDA's number of one, arrays in its memory may be registered too. It is current on
    the calling thread within each call, and only there.
    """

    def __init__(
        self,
        *,
        plugin: str | None = None,
        abi: int | None = None,
        device: int = 0,
        channels: int | None = None,
        chunk_bytes: int | None = None,
        window_send: int | None = None,
        window_recv: int | None = None,
        connect_timeout_s: float | None = None,
        stall_timeout_s: float | None = None,
        call_timeout_s: float | None = CALL_TIMEOUT_S,
        gpu: int | None = None,
    ) -> None:
        self._gpu = gpu
        settings = _settings_of(
            {
                "plugin": plugin,
                "abi": abi,
                "channels": channels,
                "chunk": chunk_bytes,
                "window_send": window_send,
                "window_recv": window_recv,
                "connect_timeout": _duration(connect_timeout_s),
                "stall_timeout": _duration(stall_timeout_s),
            }
        )
        with _calls_guarded(call_timeout_s, settings.setup_timeout_s):
            self._plugin = _plugin_of(settings)
            self._settings = settings = within_requests_of(self._plugin.file.abi, settings)
            with setup_errors():
                #: The plugin's context of this session: in versions that have none, that of all.
                self._context = self._plugin.another_context()
        devices = self._plugin.devices
        if not 0 <= device < devices:
            raise UsageError(
                f"device ({device}) is not one of the plugin's {devices}: use 0 to {devices - 1}"
            )
        if gpu is not None:
            require_memory("cuda", self._plugin, device, f"gpu ({gpu})")
        self._knows_peer = False
        self._closed = False
        with session_errors():
            self._native = _native.Session(
                self._context, _wire_chunk_bytes(self._plugin), device, settings.channels,
                settings.chunk_bytes, settings.window_send, settings.window_recv,
                *_gpu_of(gpu, settings),
            )  # fmt: skip

    # --- Connections -----------------------------------------------------------------------------

    def listen(self) -> bytes:
        """Listen once a channel; what the peer's load_remote_conn_info needs."""
        self._require_open()
        with session_errors():
            return self._native.listen()

    def load_remote_conn_info(self, info: bytes) -> None:
        """Take what the peer's listen() returned, by which connect() finds it.

        Raises UsageError where it is none, or where the peer has other channels, chunks or plugin.
        """
        self._require_open()
        if self._knows_peer:
            raise error_of(
                ALREADY_DONE,
                "the peer's connection info was loaded before: a session has one peer",
            )
        with session_errors():
            self._native.load_remote_conn_info(bytes(info))
        self._knows_peer = True

    def accept(self, timeout_s: float | None = None) -> None:
        """Wait until the peer has connected; then messages can be received.

        Connections to the peer come up meanwhile, if its info is loaded.
        """
        self._wait_for_peer(self._native.accept, timeout_s)

    def connect(self, timeout_s: float | None = None) -> None:
        """Connect to the peer; then messages can be sent. It is accepted meanwhile, if it comes."""
        self._wait_for_peer(self._native.connect, timeout_s)

    def establish(self, timeout_s: float | None = None) -> None:
        """Accept and connect together, in any order that the two sides come in."""
        self._wait_for_peer(self._native.establish, timeout_s)

    # --- Memory ----------------------------------------------------------------------------------

    def register_memory(self, array: object) -> int:
        """Register an array, or anything with a writable buffer; returns its mem_id.

        It must be contiguous. One in a GPU's memory (CuPy's, or any with
        `__cuda_array_interface__`) must be on the session's GPU, begin at a multiple of 4096 and be
        whole pages. Wait for work that still writes to it before it is sent. The session keeps it
        alive until it is deregistered or closed. Raises UsageError for what cannot be, SetupFailed
        if the plugin refuses it.
        """
        self._require_open()
        if hasattr(array, "__cuda_array_interface__"):
            return self._register_gpu_memory(array)
        data = _bytes_of(array)
        with session_errors():
            return self._native.register_memory(data)

    def _register_gpu_memory(self, array: object) -> int:
        if self._gpu is None:
            raise UsageError(
                "register_memory: the array is a GPU's, and the session has none: make it with "
                "Session(gpu=...), which the plugin must know before it listens or connects"
            )
        with session_errors():
            slots = gpu_slots(array, self._gpu)
            return self._native.register_gpu_memory(slots, (array, slots))

    def deregister_memory(self, mem_id: int) -> None:
        """Let the array go. Raises UsageError while a message uses it."""
        self._require_open()
        with session_errors(PLUGIN_FAILED):
            self._native.deregister_memory(_mem_id(mem_id))

    # --- Transfers -------------------------------------------------------------------------------

    def create_transfer(self) -> Transfer:
        """A transfer without messages yet; any number may be under way."""
        self._require_open()
        return Transfer(self, self._native, self._native.create())

    def close(self) -> None:
        """Close all connections; what is not complete is lost. May be called again.

        The peer must have received everything before: a sender that closes early can give its
        receiver an error for data that is whole. Let it answer, or meet it in a barrier.
        """
        if self._closed:
            return
        self._closed = True
        with session_errors(PLUGIN_FAILED):
            self._native.close()
            if self._context is not self._plugin.handle:
                self._context.finalize()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except TcpxError:
            if error is None:  # else the first error is the one to tell
                raise

    # --- Inside ----------------------------------------------------------------------------------

    def _wait_for_peer(self, step: Callable[[float], None], timeout_s: float | None) -> None:
        self._require_open()
        patience_s = _patience(timeout_s, self._settings.connect_timeout_s)
        with session_errors(TIMED_OUT):
            step(patience_s)

    def _require_open(self) -> None:
        if self._closed:
            raise error_of(CLOSED, "the session is closed: make a new one")


class Transfer:
    """A few messages that are waited for together; made by Session.create_transfer."""

    def __init__(self, session: Session, native: _native.Session, number: int) -> None:
        self._session = session
        self._native = native
        self._number = number
        self._released = False

    def post_send(self, mem_id: int, offset: int = 0, bytes: int | None = None) -> None:
        """Send bytes of a registered memory (None: to its end); they may not change until complete.

        Returns at once, whatever is in flight: what the windows do not take now waits here.
        """
        self._post(_native.Direction.SEND, mem_id, offset, bytes)

    def post_recv(self, mem_id: int, offset: int = 0, bytes: int | None = None) -> None:
        """Receive the peer's next message into registered memory (None: to its end)."""
        self._post(_native.Direction.RECEIVE, mem_id, offset, bytes)

    def is_complete(self) -> bool:
        """Whether all messages posted so far are complete; makes progress and does not wait.

        Sent bytes may then be overwritten, received ones used. Raises what has failed.
        """
        self._require_usable()
        try:
            return self._native.is_complete(self._number)
        except _native.SessionError as error:
            raise error_of(*error.args) from None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until complete. Raises Stalled if nothing has moved for `timeout_s` (None: the
        session's stall timeout), LostRank if the peer is gone, PluginFailed, and WrongBytes if the
        peer's message has another size.
        """
        self._require_usable()
        patience_s = _patience(timeout_s, self._session._settings.stall_timeout_s)
        try:
            self._native.wait(self._number, patience_s)
        except _native.SessionError as error:
            raise error_of(*error.args) from None

    def release(self) -> None:
        """Forget the transfer; messages that are not complete go on. May be called again."""
        if not self._released and not self._session._closed:
            self._native.release(self._number)
        self._released = True

    def __enter__(self) -> Transfer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _post(
        self, direction: _native.Direction, mem_id: int, offset: int, size: int | None
    ) -> None:
        self._require_usable()
        try:
            number, start = _mem_id(mem_id), _byte_count("offset", offset)
            if size is None:
                length = max(self._native.memory_bytes(number) - start, 0)
            else:
                length = _byte_count("bytes", size)
            if start < 0 or length < 0:
                raise UsageError(f"offset ({start}) and bytes ({length}) must not be negative")
            if start + length > _MOST_BYTES:
                raise error_of(
                    OUT_OF_BOUNDS,
                    f"offset ({start}) + bytes ({length}) is outside of mem_id {number}",
                )
            self._native.post(self._number, direction, number, start, length)
        except _native.SessionError as error:
            raise error_of(*error.args) from None

    def _require_usable(self) -> None:
        self._session._require_open()
        if self._released:
            raise error_of(RELEASED, f"transfer {self._number} was released: create another")


atexit.register(_native.guard_end)


@contextlib.contextmanager
def _calls_guarded(limit_s: float | None, setup_limit_s: float) -> Iterator[None]:
    """While a plugin is set up its calls may take as long as that; from then on `limit_s`."""
    if limit_s is not None and not 0 < limit_s <= _LONGEST_WAIT_S:
        raise UsageError(
            f"call_timeout_s ({limit_s}) is not a number of seconds above 0; use None for no limit"
        )
    with session_errors():
        _native.guard_calls("--setup-timeout", max(setup_limit_s, limit_s) if limit_s else 0)
    try:
        yield
    finally:
        _native.guard_calls("call_timeout_s", limit_s or 0)


# --- Plugins of this process ----------------------------------------------------------------------

# A plugin is initialised once a process, also where that fails: sessions share it by its path.
_loaded: dict[tuple[str, int], LoadedPlugin | TcpxError] = {}
_loading = threading.Lock()


def _plugin_of(settings: Settings) -> LoadedPlugin:
    with _loading:
        choice = choose_plugin(settings, os.environ)
        key = choice.path, choice.abi
        if key not in _loaded:
            raise_limit()
            os.environ.setdefault(SIZES_VARIABLE, "1")
            try:
                _loaded[key] = load_plugin(settings, os.environ)
            except (SetupFailed, RefusedAfterInit) as error:
                _loaded[key] = error
                raise
        found = _loaded[key]
        if isinstance(found, TcpxError):
            raise type(found)(
                f"{found} (the plugin was initialised then, which is possible once a process: "
                "correct it and start a new one)"
            )
        if settings.chunk_bytes > _wire_chunk_bytes(found):
            raise UsageError(
                f"chunk_bytes ({settings.chunk_bytes}) is larger than {CHUNK_VARIABLE} "
                f"({_wire_chunk_bytes(found)}), with which this process has loaded the plugin: use "
                "that or less, or set the variable before the first session"
            )
        return found


def _wire_chunk_bytes(plugin: LoadedPlugin) -> int:
    """The chunk that the plugin read when it was initialised; the environment may be another by
    now."""
    return next(int(value) for name, value, _ in plugin.derived if name == CHUNK_VARIABLE)


def _settings_of(given: Mapping[str, object]) -> Settings:
    command_line = {name: value if value is None else str(value) for name, value in given.items()}
    return load_settings(
        # Nothing is set behind the back of a program; it can load a profile by `tcpx-mpi env`.
        {**command_line, "memory": "host", "pattern": "session", "profile": "none"},
        os.environ,
    )


def _gpu_of(gpu: int | None, settings: Settings) -> tuple[int, int]:
    """The native session's GPU, -1 for none, and how it unpacks."""
    if gpu is None:
        return -1, _native.UNPACK_KERNEL
    try:
        count = len(_native.cuda_devices())
    except _native.CudaUnavailable as error:
        raise UsageError(f"gpu ({gpu}): {error}") from None
    if not 0 <= gpu < count:
        raise UsageError(f"gpu ({gpu}) is not one of the {count} that CUDA shows here: use 0 to "
                         f"{count - 1}")  # fmt: skip
    if settings.unpack == "none":
        raise UsageError(
            "UCCL_TCPX_UNPACK_IMPL (none) leaves messages scattered: use kernel, d2d or host"
        )
    configure_compiler()
    return gpu, UNPACK_MODES[settings.unpack]


def _patience(asked_s: float | None, default_s: float) -> float:
    return default_s if asked_s is None else min(max(asked_s, 0.0), _LONGEST_WAIT_S)


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.6f}s"


# --- Arguments ------------------------------------------------------------------------------------


def _bytes_of(array: object) -> NDArray[np.uint8]:
    """The bytes of an array, without a copy; they keep it alive."""
    try:
        # Of anything else, a list for example, numpy would make an array of its own.
        source: Any = array if hasattr(array, "__array_interface__") else memoryview(array)  # type: ignore[arg-type]  # tried
        view: NDArray[Any] = np.asarray(source)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"register_memory needs an array or a writable buffer, found {type(array).__name__} "
            f"({error})"
        ) from None
    if view.dtype.hasobject:
        raise UsageError("register_memory: an array of Python objects has no bytes to move")
    if not view.flags.c_contiguous:
        raise UsageError(
            "register_memory: the array is not contiguous; register its base, or a copy "
            "(numpy.ascontiguousarray)"
        )
    if not view.flags.writeable:
        raise UsageError("register_memory: the array is read-only; register a writable copy")
    return view.reshape(-1).view(np.uint8)


def _byte_count(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} ({value!r}) is not a whole number of bytes") from None


def _mem_id(value: SupportsIndex) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 < number <= _MOST_BYTES:
        raise error_of(UNKNOWN_MEMORY, f"no memory is registered as mem_id {value!r}")
    return number
