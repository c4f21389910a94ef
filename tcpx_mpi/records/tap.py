"""The tap's records as HDF5: the group /tap, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_GROUP = "tap"


def write_tap(
    tables: Mapping[str, NDArray[np.void]], texts: Mapping[str, str], file: BinaryIO
) -> None:
    """Fills a file: a dataset a table, and attributes of the group."""
    import h5py

    with h5py.File(file, "w") as made:
        group = made.create_group(_GROUP)
        group.attrs.update(texts)
        for name, table in tables.items():
            options: dict[str, Any] = {"compression": 4, "shuffle": True} if len(table) else {}
            group.create_dataset(name, data=table, **options)
