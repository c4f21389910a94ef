"""Which NIC loses packets, of a tournament of invented ranks: two nodes with two ranks and NICs."""

from __future__ import annotations

from collections.abc import Mapping

import invented
import numpy as np
import pytest

from tcpx_mpi import patterns
from tcpx_mpi.findings.losses import losses
from tcpx_mpi.records import Plan, Row, RunHeader

WORLD = 4
MIB = 1 << 20


def tournament(again: Mapping[tuple[int, int], int], sent: int = 40 * MIB) -> list[str]:
    """What is found where a way has sent so many segments again, and each so many bytes."""
    settings = [("all_pairs", "true", "command line")]
    header: RunHeader = invented.run_header(
        WORLD, Plan(sizes=(MIB,)), pattern="pairs", settings=settings
    )
    sender_of = patterns.load("pairs").sender
    assert sender_of is not None
    rows: list[Row] = []
    for cycle in range(2 * (WORLD - 1)):
        row = invented.row(0, world=WORLD, size_bytes=MIB)
        row.cycle = cycle
        pairs = [(sender_of(cycle, rank, WORLD), rank) for rank in range(WORLD)]
        ways = [way for way in pairs if way[0] >= 0]
        row.receives = np.array([sender >= 0 for sender, _ in pairs])
        row.net_sent = np.zeros(WORLD, np.int64)
        row.tcp_retransmits = np.zeros(WORLD, np.int64)
        for way in ways:
            row.net_sent[way[0]] = sent
            row.tcp_retransmits[way[0]] = again.get(way, 0)
        rows.append(row)
    return [f"{each.title}: {each.text}" for each in losses(header, rows)]


def test_a_nic_that_loses_what_comes_in_is_named_once() -> None:
    (text,) = tournament({(0, 3): 300, (1, 3): 200, (0, 2): 1})
    assert text == (
        "Loses packets: NIC eth2 of host1, receiving: 0.86 % of the segments were sent again (500)"
        ", over 2 links; at most 0.003 % over the others"
    )


def test_a_nic_that_loses_what_goes_out_is_named_as_sending() -> None:
    (text,) = tournament({(1, 2): 300, (1, 3): 200})
    assert text.startswith("Loses packets: NIC eth2 of host0, sending: ")


def test_a_way_that_alone_loses_packets_is_named_with_both_ends() -> None:
    (text,) = tournament({(2, 1): 300})
    assert text.startswith("Loses packets: the link from NIC eth1 of host1 to NIC eth2 of host0: ")


@pytest.mark.parametrize(
    ("again", "sent"),
    [
        ({}, 40 * MIB),
        # A busy machine: a few here and there.
        ({(0, 3): 9, (1, 3): 9, (2, 0): 5}, 40 * MIB),
        # Many, of very much.
        ({(0, 3): 50, (1, 3): 50}, 40_000 * MIB),
        # Within a node it is the loopback, and no NIC.
        ({(0, 1): 500, (1, 0): 500, (2, 3): 500}, 40 * MIB),
        # Unknown.
        ({(0, 3): 500, (1, 3): 500}, -1),
    ],
)
def test_what_is_usual_or_unknown_names_nobody(
    again: Mapping[tuple[int, int], int], sent: int
) -> None:
    assert tournament(again, sent) == []


def test_a_network_that_loses_packets_everywhere_has_no_bad_nic() -> None:
    """Each way stands by itself: all are told, and no NIC is accused of the whole."""
    ways = [(a, b) for a in range(4) for b in range(4) if a // 2 != b // 2]
    found = tournament(dict.fromkeys(ways, 300))
    assert len(found) == 8
    assert all("the link from" in text for text in found)
