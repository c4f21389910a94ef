"""What a rank needs of NCCL: NCCL itself (`nccl_by_cupy`), or what stands in for it without a GPU
(`nccl_stand_in`)."""

from __future__ import annotations

from typing import Any, Protocol

from nccl_cases import Bytes, Case


class LibraryError(Exception):
    """A call failed, or took too long."""


class Memory(Protocol):
    """Bytes where the library can reach them."""

    def upload(self, data: Bytes, at: int = 0) -> None: ...

    def download(self) -> Bytes: ...


class Communicator(Protocol):
    """One communicator and a stream of its own. All calls raise LibraryError."""

    def launch(
        self, case: Case, source: Memory, source_at: int, target: Memory, target_at: int
    ) -> None:
        """Queue one call; the addresses are those of the rank's own layout."""

    def wait(self, end_by: float) -> None:
        """Until all that was queued is complete, or time.monotonic() is at `end_by`."""

    def destroy(self) -> None: ...

    def abort(self) -> None: ...


class Library(Protocol):
    """One process's view of it."""

    def facts(self) -> dict[str, Any]: ...

    def unique_id(self) -> list[int]: ...

    def memory(self, size: int) -> Memory: ...

    def communicator(self, unique_id: list[int], rank: int, world: int) -> Communicator: ...
