"""Spread of a row over nodes: how far one node is behind the others. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tcpx_mpi.records import Row
from tcpx_mpi.stats.blocks import batch_means
from tcpx_mpi.stats.series import rank_times_ns, samples_received
from tcpx_mpi.stragglers.outlier import QUARTERS


def node_spread(row: Row, nodes: Sequence[str]) -> float:
    """The slowest node's time over the median of the others, in the quarter of the row with the
    smallest ratio: a slow node is slow in each quarter, a disturbed one is not.

    A node's time is the median over its ranks that receive, `nodes` are by rank; of a single node
    its ranks are compared. NaN if there are not two.
    """
    receivers = np.flatnonzero(row.receives).tolist()
    if row.iterations < 1 or len(receivers) < 2 or len(nodes) < len(row.receives):
        return math.nan
    blocks = np.array(
        [
            batch_means(rank_times_ns(samples, 1, row.spool), row.batches)
            for samples in samples_received(row)
        ]
    )
    parts = np.array_split(blocks, min(QUARTERS, blocks.shape[1]), axis=1)
    quarters = np.stack([np.median(part, axis=1) for part in parts], axis=1)
    names = [nodes[rank] for rank in receivers]
    if len(set(names)) < 2:
        names = [str(rank) for rank in receivers]
    ours = {
        name: np.median(quarters[[each == name for each in names]], axis=0)
        for name in dict.fromkeys(names)
    }
    by_node = np.stack(list(ours.values()))
    if np.isnan(by_node).any() or (by_node <= 0).any():
        return math.nan
    behind = []
    for place, times in enumerate(by_node):
        others = np.sort(np.delete(by_node, place, axis=0), axis=0)
        # Of an even number the lower one: the good half has it.
        behind.append(float((times / others[(len(others) - 1) // 2]).min()))
    return max(behind)
