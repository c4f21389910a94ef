"""The tables of a job for notebooks: every request, and the comms that they are of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.tap.joined import NONE, REQUEST, Job

#: As long as any name of a host or a NIC.
_TEXT = "S64"
_FILES = np.dtype([("rank", "<i4"), ("process", "<i8"), ("host", _TEXT)])
_COMMS = np.dtype(
    [
        ("process", "<i4"),  # its file: a row of /tap/files
        ("comm", "<u4"),
        ("sends", "u1"),
        ("device", "<i4"),
        ("nic", _TEXT),
        ("peer_process", "<i4"),  # -1: its file is not there
        ("peer_comm", "<i8"),
        ("opened_ns", "<i8"),
    ]
)


def tables_of(job: Job) -> Mapping[str, NDArray[np.void]]:
    """By name: files, comms, requests. `process` is a row of files in all of them."""
    files = [(file.rank, file.process, _text(file.host)) for file in job.files]
    comms = []
    for link in job.links:
        ends = ((link.sender, link.send_comm), (link.receiver, link.receive_comm))
        for (number, comm), (peer, other) in (ends, ends[::-1]):
            if comm is None:
                continue
            nic = _text(job.files[number].devices.get(comm.device, ""))
            comms.append(
                (number, comm.number, comm.sends, comm.device, nic, peer,
                 other.number if other else NONE, comm.opened_ns)
            )  # fmt: skip
    return {
        "files": np.array(files, _FILES),
        "comms": np.array(sorted(comms), _COMMS),
        "requests": np.concatenate([np.zeros(0, REQUEST), *job.requests]),
    }


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:64]
