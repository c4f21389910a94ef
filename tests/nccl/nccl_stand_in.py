"""Stands in for NCCL where there is no GPU: each rank tells every other one all that it puts in.

It is for tests of the judge alone: what it is told to break (JUDGE_FAULT) the judge must find.
"""

from __future__ import annotations

import os
import secrets
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np
from nccl_cases import Bytes, Case, dtype_of, layout_of, length_of
from nccl_library import LibraryError

#: RANK:BYTE that is wrong in every target, RANK:-1 for a byte in front of it.
FAULT_VARIABLE = "JUDGE_FAULT"
_PATIENCE_S = 20.0


class StandInLibrary:
    def facts(self) -> dict[str, Any]:
        return {"nccl": 0, "gpu": "none"}

    def unique_id(self) -> list[int]:
        return list(secrets.token_bytes(16))

    def memory(self, size: int) -> HostMemory:
        return HostMemory(size)

    def communicator(self, unique_id: list[int], rank: int, world: int) -> StandInCommunicator:
        return StandInCommunicator(unique_id, rank, world)


class HostMemory:
    def __init__(self, size: int) -> None:
        self.bytes: Bytes = np.zeros(size, np.uint8)

    def upload(self, data: Bytes, at: int = 0) -> None:
        self.bytes[at : at + len(data)] = data

    def download(self) -> Bytes:
        return self.bytes.copy()


class StandInCommunicator:
    """Rank 0 collects what all put in, and tells everybody."""

    def __init__(self, unique_id: list[int], rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        address = "\0judge-" + bytes(unique_id).hex()
        self._others: list[Connection] = []
        if rank == 0:
            with Listener(address) as listener:
                self._others = [listener.accept() for _ in range(1, world)]
            return
        end_by = time.monotonic() + _PATIENCE_S
        while not self._others:
            try:
                self._others.append(Client(address))
            except ConnectionError:
                if time.monotonic() > end_by:
                    raise LibraryError("nobody listens") from None

    def launch(
        self, case: Case, source: HostMemory, source_at: int, target: HostMemory, target_at: int
    ) -> None:
        layout = layout_of(case, self._rank, self._world)
        mine = source.bytes[source_at : source_at + layout.source].copy()
        try:
            sources = self._known_to_all({self._rank: mine})
        except (EOFError, OSError) as error:
            raise LibraryError(f"a rank is gone: {error!r}") from None
        came = self._came(case, [sources[rank] for rank in range(self._world)])
        target.bytes[target_at : target_at + layout.target] = came
        rank, _, byte = os.environ.get(FAULT_VARIABLE, "").partition(":")
        if rank == str(self._rank) and layout.target:
            target.bytes[target_at + int(byte)] ^= 1

    def _known_to_all(self, known: dict[int, Any]) -> dict[int, Any]:
        """What every rank knows, by rank."""
        if self._rank:
            self._others[0].send(known)
        else:
            for other in self._others:
                known |= self._heard(other)
            for other in self._others:
                other.send(known)
            return known
        return self._heard(self._others[0])

    @staticmethod
    def _heard(other: Connection) -> dict[int, Any]:
        if not other.poll(_PATIENCE_S):
            raise LibraryError("a rank says nothing")
        heard: dict[int, Any] = other.recv()
        return heard

    def _came(self, case: Case, sources: list[Bytes]) -> Bytes:
        """By other steps than those of the judge's own `target_of`."""
        kind = dtype_of(case.kind)
        if case.program == "sendrecv":
            return sources[self._rank - 1]
        if case.program == "broadcast":
            return sources[case.root]
        if case.program == "scatter":
            return np.split(sources[case.root], self._world)[self._rank]
        if self._rank != case.root and case.program in ("gather", "reduce"):
            return sources[0][:0]
        if case.program == "alltoallv":
            return np.concatenate(
                [self._mine_of(case, of, each) for of, each in enumerate(sources)]
            )
        table = np.stack(sources)
        if case.program in ("all_gather", "hypercube", "gather"):
            return table.reshape(-1)
        if case.program == "alltoall":
            return table.reshape(self._world, self._world, -1)[:, self._rank].reshape(-1)
        rows = table.view(kind).astype(np.float64)
        fold = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[case.operation]
        reduced = np.asarray(fold(rows, axis=0)).astype(kind).view(np.uint8)
        if case.program == "reduce_scatter":
            return reduced.reshape(self._world, -1)[self._rank]
        return reduced

    def _mine_of(self, case: Case, of: int, source: Bytes) -> Bytes:
        size = dtype_of(case.kind).itemsize
        lengths = [length_of(case, of, to, self._world) * size for to in range(self._world)]
        return np.split(source, np.cumsum(lengths)[:-1])[self._rank]

    def wait(self, end_by: float) -> None:
        pass

    def destroy(self) -> None:
        for other in self._others:
            other.close()

    abort = destroy
