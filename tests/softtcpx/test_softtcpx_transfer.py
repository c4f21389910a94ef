"""softtcpx: messages that are smaller or larger than their receive, as TCPX has them."""

from __future__ import annotations

import pytest
from ends import OWNERS, ends_of, transfer
from fresh_process import in_fresh_process
from net_v7 import INTERNAL, Memory, Net


@in_fresh_process(SOFTTCPX_TRAP_POLLS="8")
def test_as_slow_as_tcpx_a_smaller_message_than_its_receive_writes_nothing_behind_it() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 24), Memory(b"p" * 100)
    sender, receiver = ends_of(net, source, target)
    receiver.post(0, 100)
    sender.post(0, 24)
    transfer(sender, receiver, [])
    assert target.content() == b"s" * 24 + b"p" * 76


@pytest.mark.only_softtcpx
@pytest.mark.parametrize(("environ", "size"), [
    *((owner, 600_000) for owner in OWNERS),  # in pieces, whoever moves them
    (OWNERS[0], 26),
    (OWNERS[0], 5000),
])  # fmt: skip
@in_fresh_process()
def test_a_larger_message_than_the_posted_receive_is_error_3_and_overflows_nothing(
    environ: dict[str, str], size: int
) -> None:
    net = Net(log=True).started()
    source, target = Memory(b"s" * size), Memory(b"p" * 25)
    sender, receiver = ends_of(net, source, target)
    receiver.post(0, 25)
    sender.post(0, size)
    if "NCCL_SOCKET_NTHREADS" not in environ:
        net.test(sender.pending[0])
    assert net.code_of(receiver.pending[0]) == INTERNAL
    assert target.content() == b"p" * 25
    assert net.code_of(receiver.pending[0]) == INTERNAL, "the error stays"
    assert receiver.post(0, 25) == INTERNAL
    assert any("larger than the receive" in line for line in net.log_lines)
