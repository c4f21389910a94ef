"""One batch on one rank: durations out of instants, and what the network counted meanwhile."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import invented
import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.transport.samples import Batch, add_network, batch_of, joined_batch


def a_batch() -> Batch:
    end, send, receive = (np.array(x) for x in ([20, 30], [-1, 25], [5, 30]))
    return batch_of(_native.Stamps(10, False, end, send, receive))


def test_a_receive_that_was_there_before_took_no_time_and_what_is_unknown_stays_so() -> None:
    samples = a_batch().samples
    assert samples["iteration"].tolist() == [10, 10]
    assert samples["send"].tolist() == [-1, 5]
    assert samples["receive"].tolist() == [0, 10]


def test_of_timed_lanes_an_iteration_is_from_the_bytes_of_one_to_those_of_the_other() -> None:
    stamps: Any = SimpleNamespace(
        start=10,
        late=False,
        end=np.array([40, 70]),
        send_done=np.array([30, 60]),
        receive_done=np.array([35, 70]),
        # Lane 2 has two peers, and is complete with the later one.
        sources=[1, 1, 0, 1],
        source_lanes=[0, 1, 2, 2],
        source_done=np.array([[22, 15, 35, 30], [55, 45, 68, 70]]).ravel(),
        trace=np.zeros(0, np.int64),
        flush_begun=np.zeros(0, np.int64),
    )
    found = batch_of(stamps, timed_lanes=(1, 0))
    assert found.samples["iteration"].tolist() == [7, 10]
    assert found.samples["receive"].tolist() == [25, 30]
    assert batch_of(stamps, timed_lanes=(1, 2)).samples["iteration"].tolist() == [20, 25]
    assert (found.elapsed_ns, found.sources, found.arrivals.shape) == (60, [], (2, 0))


def test_parts_are_one_batch_that_began_with_the_first_and_is_late_if_any_was() -> None:
    joined = joined_batch([a_batch(), dataclasses.replace(a_batch(), start_ns=40, late=True)])
    assert (joined.start_ns, joined.late) == (10, True)
    assert joined.samples["start"].tolist() == [10, 20, 10, 20]


def test_the_network_is_counted_within_batches_and_half_known_is_unknown() -> None:
    row = invented.rank_row(0, invented.row_facts(0), net_sent=0, net_received=0, tcp_retransmits=0)
    before = {"readable": 2, "count": 2, "sent": 100, "received": 200, "retransmits": 7}
    after = {"readable": 2, "count": 2, "sent": 150, "received": 290, "retransmits": 9}

    def counted(after: dict[str, Any]) -> list[int]:
        add_network(row, before, after)
        return [row.net_sent, row.net_received, row.tcp_retransmits]

    assert counted(after) == [50, 90, 2]
    assert counted({**after, "readable": 1}) == [-1, -1, -1]
    assert counted(after) == [-1, -1, -1]
