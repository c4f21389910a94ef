"""In PYTHONPATH: a disk that does not take rank 0's first batch until a FIFO has a writer."""

from __future__ import annotations

import os

_write = os.pwrite


def _pwrite(descriptor: int, data: bytes, offset: int) -> int:
    if b'"record":"batch"' in data[:4096]:
        with open(os.environ["SLOW_JOURNAL"], "rb"):
            pass  # nobody writes: as blocked as by a disk
    return _write(descriptor, data, offset)


if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "0":
    os.pwrite = _pwrite
