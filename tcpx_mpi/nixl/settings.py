"""What `tcpx-mpi nixl` was asked for, and what runs beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError
from tcpx_mpi.nixl.request import Request, kv_shape, request_of_kv, request_of_size
from tcpx_mpi.slips import did_you_mean
from tcpx_mpi.units import parse_size


@dataclass(frozen=True)
class Beside:
    """A backend of the wheel that may take turns with ours, and the variables that let it use the
    network: by default it would not, on one machine."""

    backend: str
    environ: dict[str, str]

    def variables(self) -> dict[str, str]:
        """The variables as this process has them, or else as they are set here."""
        return {name: os.environ.get(name, value) for name, value in self.environ.items()}


#: On a machine with a GPU, NIXL refuses a UCX that cannot copy the GPU's memory, for DRAM too.
_UCX_TLS = "tcp,cuda_copy" if os.path.exists("/dev/nvidiactl") else "tcp"
BESIDE = {
    "ucx": Beside("UCX", {"UCX_TLS": _UCX_TLS, "UCX_WARN_UNUSED_ENV_VARS": "n"}),
    "libfabric": Beside("LIBFABRIC", {"FI_PROVIDER": "tcp"}),
}


@dataclass(frozen=True)
class NixlSettings:
    """The settings of a measurement; `requests` are those of the rows."""

    requests: tuple[Request, ...]
    operation: str
    memory: str
    kv: str
    iterations: int
    warmup_iterations: int
    batch: int
    threads: int
    against: tuple[str, ...]
    check: bool
    progress_thread: bool
    plugin: str
    #: Of the plugin, for one rank of a node after the other; none: TCPX_NIXL_DEVICE, or 0.
    devices: tuple[int, ...]
    hdf5: str

    @property
    def slot_bytes(self) -> int:
        return max(request.slot_bytes for request in self.requests)


def requests_of(
    sizes: str | None, kv: str | None, operation: str, descriptors: int
) -> tuple[Request, ...]:
    """The requests of the rows. Raises UsageError."""
    if kv is not None:
        if sizes is not None or descriptors != 1:
            raise UsageError("--kv says sizes and descriptors: leave --size and --descriptors out")
        return (request_of_kv(operation, kv_shape(kv)),)
    text = "64M" if sizes is None else sizes
    try:
        found = [parse_size(part) for part in text.split(",")]
    except (UsageError, ValueError) as error:
        raise UsageError(f"--size: {error}") from None
    if min(found) < 1:
        raise UsageError(f"--size ({text}): a request moves at least 1 byte")
    return tuple(request_of_size(operation, size, descriptors) for size in found)


def against_of(text: str) -> tuple[str, ...]:
    """The names of `--against`. Raises UsageError."""
    names = tuple(dict.fromkeys(part.strip() for part in text.lower().split(",")))
    if names == ("none",):
        return ()
    for name in names:
        if name not in BESIDE:
            raise UsageError(
                f"--against ({name[:40]}) is unknown{did_you_mean(name, BESIDE)}: use none, or "
                f"{' or '.join(BESIDE)}, or both"
            )
    return names


def devices_of(text: str | None) -> tuple[int, ...]:
    """The numbers of `--device`. Raises UsageError."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < 4 for word in words):
        raise UsageError(f"--device ({text}) is no list of devices: write 0 or 0,1,2,3")
    return tuple(map(int, words))
