"""The ceiling of a bandwidth: line rate of the NICs, if traffic crosses them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from tcpx_mpi.records import RunHeader


@dataclass(frozen=True)
class LineRate:
    """GB/s that a rank's NIC can carry, shared evenly, or NaN; `text` says of what, or why not."""

    gb_per_s: float
    text: str


def line_rate(header: RunHeader) -> LineRate:
    """The line rate of the rank with the least of it; NaN if none is known or none applies."""
    if len({info.node for info in header.ranks}) < 2:
        return LineRate(math.nan, "no NIC line rate: all ranks are on one node, so nothing left it")
    if any(info.nic_speed_mbps <= 0 for info in header.ranks):
        return LineRate(math.nan, "no NIC line rate: the speed of a rank's NIC is unknown")
    sharing = Counter((info.node, info.nic) for info in header.ranks)
    shares = {
        info.rank: info.nic_speed_mbps / 8e3 / sharing[info.node, info.nic] for info in header.ranks
    }
    least = min(header.ranks, key=lambda info: shares[info.rank])
    ranks = sharing[least.node, least.nic]
    of = f"{least.nic} of {least.host}, {least.nic_speed_mbps} Mb/s"
    return LineRate(
        shares[least.rank], of + (f", shared by {ranks} ranks" if ranks > 1 else ", one rank")
    )
